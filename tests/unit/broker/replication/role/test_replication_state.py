import asyncio
from pathlib import Path
from random import Random

import pytest

from ternmq_broker.replication.role.replication_state import ReplicationState
from ternmq_broker.state.epochs import Epoch
from ternmq_broker.state.replication_record import LogCut, ReplicationRecord
from ternmq_broker.state.table_formats import REPLICATION
from ternmq_model.address import Address
from ternmq_model.epochs import EPOCH_MAX
from ternmq_model.errors import StoreError
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.route import BrokerMember
from ternmq_store.disk.reserve_file import keep_reserve
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.memory.memory_files import MemoryFileSystem, PowerLossFileSystem, PowerLost
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.failpoints import FailingDisk

ROOT = Path("/broker")
FOLDER = ROOT / "config"
CUT = LogCut(5, starts_over=False, file_bytes=4096)
MEMBERS = (BrokerMember(1, (Address("a", 1),), 2),)


async def load(files: MemoryFileSystem) -> ReplicationState:
    return await ReplicationState.load(ROOT, files, InlineBlocking(lambda: 1.0))


def test_new_member_keeps_nothing() -> None:
    async def main() -> None:
        files = MemoryFileSystem()
        state = await load(files)
        assert state.record == ReplicationRecord()
        assert not await state.save()
        assert files.syncs == 0

    run_in_virtual_time(main())


def test_begun_leadership_survives_power_loss() -> None:
    async def main() -> None:
        files = PowerLossFileSystem()
        files.make_folder(FOLDER)
        state = await load(files)
        await state.begin_epoch(1, PhysicalOffset(0), store_id="5f")
        await state.begin_epoch(2, PhysicalOffset(700), store_id="other")
        for seed in range(8):
            left = files.lose_power(Random(seed))
            found = (await load(left)).record
            assert found.epochs == (Epoch(1, PhysicalOffset(0)), Epoch(2, PhysicalOffset(700)))
            assert (found.store_id, found.highest_known, found.is_master) == ("5f", 2, None)

    run_in_virtual_time(main())


def test_leadership_begins_on_a_full_disk() -> None:
    async def main() -> None:
        files = MemoryFileSystem()
        files.make_folder(FOLDER)
        keep_reserve(files, ROOT)
        files.space_bytes = 0
        for number in range(1, 4):
            await (await load(files)).begin_epoch(number, PhysicalOffset(number), store_id="5f")
            files.space_bytes = 0  # somebody else takes what is left
        assert (await load(files)).highest_epoch == 3

    run_in_virtual_time(main())


def test_crash_at_any_step_leaves_the_state_before_or_after() -> None:
    async def main(dies_after: int) -> bool:
        disk = FailingDisk()
        disk.make_folder(FOLDER)
        state = await load(disk)
        await state.begin_epoch(1, PhysicalOffset(0), store_id="5f")
        disk.dies_at = len(disk.steps) + dies_after
        try:
            await state.promote(1000, PhysicalOffset(700), store_id="")
        except PowerLost:
            is_over = False
        else:
            is_over = True
        for seed in range(4):
            left = disk.lose_power(Random(seed))
            found = (await load(left)).record
            expected = [(1, None), (1000, True)] if not is_over else [(1000, True)]
            assert (found.highest_known, found.is_master) in expected
        return is_over

    steps = 0
    while not run_in_virtual_time(main(steps)):
        steps += 1
    assert steps > 3


def test_refused_save_is_not_seen() -> None:
    async def main() -> None:
        files = MemoryFileSystem()
        state = await load(files)
        await state.begin_epoch(1, PhysicalOffset(0), store_id="5f")
        files.sync_error = OSError("broken disk")
        with pytest.raises(StoreError, match=r"replication\.json not saved: broken disk"):
            await state.promote(1000, PhysicalOffset(9), store_id="")
        assert (state.highest_epoch, state.record.is_master) == (1, None)
        files.sync_error = None
        await state.promote(1000, PhysicalOffset(9), store_id="")
        assert (await load(files)).record.is_master is True

    run_in_virtual_time(main())


def test_save_refused_at_any_step_is_not_in_the_file_after_the_next_change() -> None:
    async def main(fails_after: int) -> bool:
        disk = FailingDisk()
        disk.make_folder(FOLDER)
        state = await load(disk)
        await state.keep_confirmed(PhysicalOffset(10))
        disk.fails_at = len(disk.steps) + fails_after
        try:
            await state.decide_cut(CUT)
        except StoreError:
            await state.keep_confirmed(PhysicalOffset(10))
            assert (await load(disk)).record.cut is None
            return False
        return True

    steps = 0
    while not run_in_virtual_time(main(steps)):
        steps += 1
    assert steps > 3


def test_cancelled_save_is_not_in_the_file_after_the_next_change() -> None:
    async def main() -> None:
        files = MemoryFileSystem()
        state = await load(files)
        await state.keep_confirmed(PhysicalOffset(10))
        deciding = asyncio.ensure_future(state.decide_cut(CUT))
        await asyncio.sleep(0.5)
        deciding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await deciding
        await state.keep_confirmed(PhysicalOffset(10))
        assert (await load(files)).record.cut is None

    run_in_virtual_time(main())


def test_heard_epochs_count_at_once_and_are_saved_soon() -> None:
    async def main() -> None:
        files = MemoryFileSystem()
        state = await load(files)
        keeping = asyncio.ensure_future(state.note_replicated())
        await asyncio.sleep(0.5)
        assert not state.note_epoch(5)
        assert not state.note_epoch(3)
        assert "repair-epoch" in state.note_epoch(EPOCH_MAX + 1)
        state.remember(MEMBERS)
        await keeping
        assert (state.highest_epoch, state.members) == (5, MEMBERS)
        assert (await load(files)).highest_epoch == 0
        await state.save()
        found = await load(files)
        assert (found.highest_epoch, found.members) == (5, MEMBERS)
        assert found.record.is_replicated
        syncs = files.syncs
        await state.save()
        assert files.syncs == syncs

    run_in_virtual_time(main())


def test_concurrent_changes_are_all_kept() -> None:
    async def main() -> None:
        files = MemoryFileSystem()
        state = await load(files)
        await asyncio.gather(
            state.begin_epoch(1, PhysicalOffset(0), store_id="5f"),
            state.note_replicated(),
            state.keep_confirmed(PhysicalOffset(9)),
            state.become_slave(7, confirmed=PhysicalOffset(9)),
        )
        found = (await load(files)).record
        assert found == state.record
        assert (found.is_replicated, found.confirmed, found.is_master) == (True, 9, False)
        assert found.highest_known == 7

    run_in_virtual_time(main())


def test_cut_is_remembered_until_it_is_done() -> None:
    async def main() -> None:
        files = MemoryFileSystem()
        state = await load(files)
        epochs = (Epoch(1, PhysicalOffset(0)), Epoch(2, PhysicalOffset(700)))
        await state.adopt(
            store_id="5f",
            epochs=epochs,
            highest_epoch=2,
            master_role="sync_master",
            in_sync_replicas=2,
        )
        await state.keep_confirmed(PhysicalOffset(750))
        await state.decide_cut(LogCut(700, False, 4096))
        state = await load(files)
        assert state.record.cut == LogCut(700, False, 4096)
        await state.cut_done(PhysicalOffset(700))
        found = (await load(files)).record
        assert (found.cut, found.epochs, found.confirmed) == (None, epochs[:1], 700)
        assert (found.highest_known, found.store_id) == (2, "5f")
        await state.decide_cut(LogCut(900, True, 4096))
        await state.cut_done(PhysicalOffset(900))
        found = (await load(files)).record
        assert (found.cut, found.epochs, found.store_id) == (None, (), "")
        assert found.highest_known == 2

    run_in_virtual_time(main())


def test_slave_forced_to_be_master_stays_it() -> None:
    async def main() -> None:
        state = await load(MemoryFileSystem())
        await state.become_slave(5, confirmed=PhysicalOffset(0))
        assert state.record.is_master is False
        await state.begin_epoch(6, PhysicalOffset(0), store_id="5f")
        assert state.record.is_master is True

    run_in_virtual_time(main())


def test_epoch_far_above_that_of_the_log_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        files = MemoryFileSystem()
        files.make_folder(FOLDER)
        state = await load(files)
        await state.begin_epoch(1, PhysicalOffset(0), store_id="5f")
        await state.become_slave(10**12, confirmed=PhysicalOffset(0))
        assert "repair-epoch" not in caplog.text
        assert (await load(files)).highest_epoch == 10**12

    run_in_virtual_time(main())
    assert "ternmq broker repair-epoch BROKER --data /broker" in caplog.text


def test_unreadable_state_is_an_error_and_not_a_new_member() -> None:
    async def main() -> None:
        files = MemoryFileSystem()
        files.make_folder(FOLDER)
        file = files.open(FOLDER / REPLICATION.name, create=True)
        file.resize(1)
        file.write(0, b"{")
        with pytest.raises(StoreError, match=r"replication\.json"):
            await load(files)

    run_in_virtual_time(main())
