"""What `ternmq broker repair-epoch` makes of what it found."""

from pathlib import Path

import pytest

from ternmq_broker.replication.epochs import Epoch
from ternmq_broker.replication.lives.kept import Kept
from ternmq_client.administration.replication import MemberView, NameServerEpoch
from ternmq_console.repair_epoch import Found, plan_repair, rows_of, silent_members
from ternmq_model.address import Address
from ternmq_model.epochs import EPOCH_STEP_MAX
from ternmq_model.errors import UsageError
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.route import BrokerData, BrokerMember
from ternmq_protos.v1 import replication_pb2 as pb

MADE_UP = 1 << 62
NAMES = Address("ns", 9876)
OTHER = Address("ns2", 9876)


def place(broker_id: int) -> BrokerMember:
    return BrokerMember(broker_id, (Address(f"a-{broker_id}", 1),), 1)


def view(broker_id: int, *numbers: int, highest: int = 0) -> MemberView:
    member = place(broker_id)
    epochs = [pb.Epoch(number=number) for number in numbers]
    known = highest or max(numbers, default=0)
    status = pb.ReplicationStatusReply(epochs=epochs, highest_epoch=known)
    data = BrokerData("c", "a", (member,))
    return MemberView(data, member, status if numbers else None, problem="" if numbers else "away")


def found(*highest: int, members: tuple[MemberView, ...] = ()) -> Found:
    addresses = (NAMES, OTHER)
    kept = [NameServerEpoch(at, each) for at, each in zip(addresses, highest, strict=False)]
    return Found("c", kept, members)


def kept(*numbers: int, highest: int = 0, members: tuple[BrokerMember, ...] = ()) -> Kept:
    epochs = tuple(Epoch(number, PhysicalOffset(0)) for number in numbers)
    return Kept(epochs=epochs, highest_epoch=highest, members=members)


def test_made_up_epoch_becomes_the_highest_of_the_logs() -> None:
    there = found(MADE_UP, 1_001_000, members=(view(0, 1, 1_001_000), view(1, 1)))
    plan = plan_repair(there, None, 0)
    assert (plan.real, plan.kept) == (1_001_000, None)
    assert [each.address for each in plan.nameservers] == [NAMES]


@pytest.mark.parametrize("highest", [0, 1, 2_000_000, 1 + EPOCH_STEP_MAX])
def test_epoch_that_may_be_real_is_kept(highest: int) -> None:
    plan = plan_repair(found(highest, members=(view(0, 1),)), None, 0)
    assert not plan.nameservers


def test_epoch_too_far_for_nameserver_that_forgot_is_told_to_it() -> None:
    real = 2 * EPOCH_STEP_MAX
    there = found(0, real, members=(view(0, real - EPOCH_STEP_MAX, real),))
    with pytest.raises(UsageError, match="runs with epoch"):
        plan_repair(found(0, members=(view(0, real),)), None, 0)
    plan = plan_repair(there, None, 0)
    assert [each.address for each in plan.nameservers] == [NAMES]


def test_member_that_runs_with_a_made_up_epoch_is_repaired_first() -> None:
    with pytest.raises(UsageError, match=r"member 0 at a-0:1 runs with epoch .* stop it"):
        plan_repair(found(MADE_UP, members=(view(0, 1, MADE_UP + 1),)), kept(1), 0)


def test_epoch_is_not_guessed() -> None:
    with pytest.raises(UsageError, match="no member tells"):
        plan_repair(found(MADE_UP), None, 0)
    assert plan_repair(found(MADE_UP), None, 7).real == 7
    assert not plan_repair(found(0), None, 0).nameservers


def test_nameservers_wait_for_members_that_may_have_a_higher_epoch() -> None:
    with pytest.raises(UsageError, match="a-1:1 does not answer"):
        plan_repair(found(MADE_UP, members=(view(0, 1), view(1))), None, 0)
    mine = kept(1, highest=MADE_UP, members=(place(0), place(1)))
    plan = plan_repair(found(MADE_UP), mine, 0)
    assert not plan.nameservers
    assert plan.kept is not None
    rows = rows_of(found(MADE_UP), plan, Path("/a"), mine)
    assert "waits for a member at a-0:1; a-1:1" in str(rows[0]["problem"])
    assert rows[1]["becomes"] == "log 1, highest 1"
    assert plan_repair(found(MADE_UP), mine, 1_001_000).nameservers
    assert plan_repair(found(MADE_UP, members=(view(1, 1),)), mine, 0).nameservers


def test_stopped_member_is_silent_itself() -> None:
    assert not silent_members([view(0)], kept(1, members=(place(0),)))
    assert silent_members([view(0)], None) == [frozenset(place(0).endpoints)]
    assert not silent_members([], kept(1))
    assert len(silent_members([view(2)], kept(1, members=(place(0), place(1))))) == 3


def test_running_member_that_keeps_a_made_up_epoch_is_named() -> None:
    there = found(MADE_UP, members=(view(0, 1, highest=MADE_UP),))
    rows = rows_of(there, plan_repair(there, None, 0), None, None)
    assert rows[0]["becomes"] == 1
    assert "keeps a made-up epoch" in str(rows[1]["problem"])
