"""What `ternmq broker repair-epoch` makes of what it found."""

from dataclasses import replace
from pathlib import Path

import pytest

from ternmq_client.admin.replication import MemberView, NameServerEpoch
from ternmq_console.broker.epoch_directories import EpochDirectory
from ternmq_console.broker.repair_epoch import (
    EpochViews,
    check_directory,
    missing_members,
    real_epoch,
    rows_of,
)
from ternmq_model.address import Address
from ternmq_model.epochs import EPOCH_MAX, EPOCH_STEP_MAX
from ternmq_model.errors import RefusedError, UsageError
from ternmq_model.route import BrokerData, BrokerMember
from ternmq_protos.v1 import replication_pb2 as pb

MADE_UP = 1 << 62


def place(broker_id: int) -> BrokerMember:
    return BrokerMember(broker_id, (Address(f"a-{broker_id}", 1),), 1)


def view(broker_id: int, *numbers: int, highest: int = 0, store_id: str = "5f") -> MemberView:
    member = place(broker_id)
    epochs = [pb.Epoch(number=number) for number in numbers]
    known = highest or max(numbers, default=0)
    status = pb.ReplicationStatusReply(epochs=epochs, highest_epoch=known, store_id=store_id)
    data = BrokerData("c", "a", (member,))
    return MemberView(data, member, status if numbers else None, problem="" if numbers else "away")


def found(
    *told: MemberView, remembered: tuple[MemberView, ...] = (), kept: int | None = 0
) -> EpochViews:
    """Return what members tell, and a NameServer that keeps an epoch; None = it does not answer."""
    problem = "away" if kept is None else ""
    names = NameServerEpoch(Address("ns", 9876), kept or 0, problem)
    return EpochViews("c", [names], told, remembered)


def directory(**changes: object) -> EpochDirectory:
    settings: dict[str, object] = {"store_id": "5f", "newest": 1, "is_master": True} | changes
    return EpochDirectory(
        root=Path("/d"),
        cluster="c",
        before=f"highest {MADE_UP}",
        after=lambda real: f"highest {real}",
        repair=lambda real: None,
        **settings,  # type: ignore[arg-type]
    )


NAMES = directory(store_id="", newest=0, is_nameserver=True, is_master=False)


def test_highest_log_of_all_that_answer_is_real() -> None:
    there = found(view(0, 1, 1_001_000), view(1, 1, highest=MADE_UP), kept=MADE_UP)
    assert real_epoch(there, NAMES, None) == (1_001_000, "")
    assert real_epoch(there, directory(newest=2_000_000), None) == (2_000_000, "")
    lifted = found(view(0, 5 * EPOCH_STEP_MAX), view(1, EPOCH_MAX + 1))
    assert real_epoch(lifted, NAMES, None) == (5 * EPOCH_STEP_MAX, "")


def test_epoch_of_member_of_another_store_does_not_count() -> None:
    there = found(view(0, 7), view(1, 9, store_id="66"))
    assert real_epoch(there, directory(), None) == (7, "")


@pytest.mark.parametrize("of", [NAMES, directory(), directory(is_alone=True)])
def test_real_epoch_is_not_known_while_registered_member_is_silent(of: EpochDirectory) -> None:
    there = found(view(0, 1), view(1), view(2, 1))
    assert real_epoch(there, of, None)[1].startswith("member 1 at a-1:1: no answer")
    assert "the logs here have 1" in real_epoch(there, of, None)[1]
    assert real_epoch(there, of, 1_001_000) == (1_001_000, "")


@pytest.mark.parametrize("told", [(), (view(0, 1),)])
def test_real_epoch_is_not_known_without_other_members(told: tuple[MemberView, ...]) -> None:
    for of in (NAMES, directory()):
        assert "the members are unknown" in real_epoch(found(*told), of, None)[1]
        assert real_epoch(found(*told), of, 7) == (7, "")
    assert real_epoch(found(), directory(is_alone=True), None) == (1, "")


def test_directory_is_the_member_that_it_remembers_in_its_role() -> None:
    both = (view(0), view(1))
    master, slave = directory(), directory(is_master=False)
    assert missing_members(found(remembered=both), master) == [place(1)]
    assert missing_members(found(remembered=both), slave) == [place(0)]
    assert missing_members(found(view(1, 1), remembered=both[:1]), master) == []
    assert missing_members(found(view(0, 1), remembered=both[1:]), master) == [place(1)]
    assert missing_members(found(*both), master) == [place(0), place(1)]
    three = (view(1), view(2))
    assert missing_members(found(view(0, 1), remembered=three), slave) == [place(1), place(2)]


def test_told_epoch_that_nobody_believes_is_refused() -> None:
    with pytest.raises(UsageError, match="that answers rejects that: epoch 1000000000000000 "):
        real_epoch(found(view(0, 1), view(1, 1)), NAMES, 10**15)
    assert real_epoch(found(view(0, 1), view(1, 10**15)), NAMES, 10**15) == (10**15, "")
    assert real_epoch(found(view(0)), NAMES, 10**15) == (10**15, "")


def test_directory_of_another_store_is_refused() -> None:
    with pytest.raises(UsageError, match=r"/d holds store 66, the members .* have 5f"):
        check_directory(found(view(0, 1)), directory(store_id="66"), "a", is_given=True)
    for of in (directory(), directory(store_id=""), NAMES):
        check_directory(found(view(0, 1), view(1, 1, store_id="66")), of, "a", is_given=False)


def test_directory_that_does_not_tell_the_cluster_of_the_members_is_refused() -> None:
    there = replace(found(view(0, 1)), cluster="X")
    with pytest.raises(UsageError, match="add --cluster X"):
        check_directory(there, replace(NAMES, cluster=None), "a", is_given=False)
    check_directory(there, replace(NAMES, cluster="X"), "a", is_given=False)


def test_broker_that_nobody_knows_is_refused() -> None:
    for of, is_told, kept in (
        (NAMES, True, 0),
        (NAMES, True, None),
        (directory(), False, 0),
    ):
        with pytest.raises(RefusedError, match="no member knows broker a of cluster c"):
            check_directory(found(remembered=(view(1),), kept=kept), of, "a", is_given=is_told)
    known = directory(is_nameserver=True, is_known=True)
    for of, is_told, there in (
        (directory(), True, found()),
        (directory(), False, found(kept=None)),
        (NAMES, False, found(kept=7)),
        (NAMES, False, found(view(1))),
        (NAMES, False, found(remembered=(view(1, 1),))),
        (known, False, found(kept=None)),
    ):
        check_directory(there, of, "a", is_given=is_told)


def test_rows_show_what_is_there_and_what_becomes_of_the_directory() -> None:
    there = found(view(0, 1, highest=MADE_UP), view(1), kept=None)
    rows = [tuple(each.values()) for each in rows_of(there, directory(), 1)]
    assert rows == [
        ("NameServer ns:9876", None, None, "away"),
        ("member 0 at a-0:1", f"log 1, highest {MADE_UP}", None, None),
        ("member 1 at a-1:1", None, None, "away"),
        ("/d (store 5f)", f"highest {MADE_UP}", "highest 1", None),
    ]
