import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq_broker.replication.role.epoch_repair import (
    is_made_up,
    load_record,
    real_epochs,
    repaired,
    save_record,
)
from ternmq_broker.replication.role.replication_state import ReplicationState
from ternmq_broker.state.epochs import (
    Epoch,
    Epochs,
    newest,
    number_after_restart,
    number_of_promotion,
)
from ternmq_broker.state.replication_record import ReplicationRecord
from ternmq_model.address import Address
from ternmq_model.epochs import EPOCH_MAX, EPOCH_STEP_MAX
from ternmq_model.errors import StoreError, StoreNotFound
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.route import BrokerMember
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.memory.memory_files import MemoryFileSystem

ROOT = Path("/broker")
MADE_UP = 1 << 62
PROMOTED = MADE_UP // 1_000_000 * 1_000_000 + 1_001_000  # of id 1, by one that knows it


def epochs(*entries: tuple[int, int]) -> Epochs:
    return tuple(Epoch(number, PhysicalOffset(start)) for number, start in entries)


@pytest.mark.parametrize(
    ("found", "real"),
    [
        (epochs((1, 0), (2, 60)), epochs((1, 0), (2, 60))),
        (epochs((1, 0), (MADE_UP + 1, 60)), epochs((1, 0), (2, 60))),
        (
            epochs((1, 0), (MADE_UP + 1, 60), (MADE_UP + 2, 90)),
            epochs((1, 0), (2, 60), (3, 90)),
        ),
        (
            epochs((1, 0), (PROMOTED, 60), (PROMOTED + 1, 90)),
            epochs((1, 0), (1_001_000, 60), (1_001_001, 90)),
        ),
        (epochs((MADE_UP + 1, 0)), epochs((1, 0))),
    ],
)
def test_made_up_epoch_becomes_what_its_master_would_have_begun(
    found: Epochs, real: Epochs
) -> None:
    assert real_epochs(found) == real_epochs(found, real=1) == real


@pytest.mark.parametrize(
    ("found", "real"),
    [
        (epochs((7, 0), (10**12, 9)), epochs((7, 0), (1_000_000, 9))),
        (epochs((1, 0), (1_000_000_001_000, 9)), epochs((1, 0), (1_001_000, 9))),
    ],
)
def test_epoch_that_can_be_is_made_up_only_far_above_the_real_one(
    found: Epochs, real: Epochs
) -> None:
    assert real_epochs(found) == real_epochs(found, real=10**12) == found
    assert real_epochs(found, real=1_001_000) == real


@given(st.lists(st.booleans(), max_size=30), st.integers(0, 999), st.integers(EPOCH_STEP_MAX))
def test_repair_changes_no_history_of_restarts_and_promotions(
    are_promotions: list[bool], broker_id: int, told: int
) -> None:
    entries: list[Epoch] = []
    for place, is_promotion in enumerate(are_promotions):
        highest = newest(tuple(entries))
        if is_promotion:
            # It had heard of one that is believed.
            number = number_of_promotion(highest + told % EPOCH_STEP_MAX, broker_id)
        else:
            number = number_after_restart(highest)
        entries.append(Epoch(number, PhysicalOffset(place)))
    for real in (1, newest(tuple(entries)), EPOCH_MAX):
        assert real_epochs(tuple(entries), real=real) == tuple(entries)


@given(st.lists(st.integers(1, (1 << 63) - 1), unique=True, max_size=9).map(sorted))
def test_repaired_epochs_ascend_keep_their_starts_and_are_real(numbers: list[int]) -> None:
    found = epochs(*((number, place) for place, number in enumerate(numbers)))
    real = real_epochs(found, real=1)
    assert [each.start for each in real] == [each.start for each in found]
    before = 0
    for each in real:
        assert before < each.number <= EPOCH_MAX
        assert not is_made_up(each.number, before)
        before = each.number
    assert real_epochs(real, real=1) == real


def test_highest_epoch_becomes_that_of_the_logs() -> None:
    kept = ReplicationRecord(epochs=epochs((1, 0), (2, 60)), highest_epoch=MADE_UP)
    assert repaired(kept, real=0).highest_epoch == 2
    assert repaired(kept, real=1_001_000).highest_epoch == 1_001_000
    heard = ReplicationRecord(epochs=epochs((1, 0)), highest_epoch=1_001_000)
    assert repaired(heard, real=1) == heard


def test_member_that_knows_nothing_is_told_the_epoch_of_the_others() -> None:
    far = 2 * EPOCH_STEP_MAX
    assert repaired(ReplicationRecord(), real=far).highest_epoch == far
    assert repaired(ReplicationRecord(), real=5) == ReplicationRecord()


def test_made_up_epochs_of_other_members_are_forgotten() -> None:
    places = (Address("a", 1),)
    members = (BrokerMember(0, places, 2), BrokerMember(1, places, MADE_UP))
    kept = repaired(ReplicationRecord(epochs=epochs((2, 0)), members=members), real=0)
    assert kept.members == (members[0], BrokerMember(1, places, 0))


def test_repaired_state_is_what_the_next_start_finds() -> None:
    async def main() -> None:
        files = MemoryFileSystem()
        files.make_folder(ROOT / "config")
        with pytest.raises(StoreNotFound, match="is not there"):
            load_record(files, ROOT)
        save_record(files, ROOT, ReplicationRecord(epochs=epochs((MADE_UP + 1, 0)), store_id="5f"))
        with pytest.raises(StoreError, match="repair-epoch BROKER --data /broker"):
            await ReplicationState.load(ROOT, files, InlineBlocking())
        kept, previous = load_record(files, ROOT)
        assert kept == previous
        save_record(files, ROOT, repaired(kept, real=0))
        state = await ReplicationState.load(ROOT, files, InlineBlocking())
        assert (state.epochs, state.highest_epoch, state.store_id) == (epochs((1, 0)), 1, "5f")

    asyncio.run(main())
