"""What a store notes of the broker's clock, and of where its log begins."""

import random
from contextlib import suppress

import pytest

from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_store.disk.layout import notes_path
from ternmq_store.disk.state_file import read_generations, replace_file
from ternmq_store.log.clock_moves import ClockDoubt, ClockMove, ClockNotes, TimerMove
from ternmq_store.log.log_notes import decode_notes
from ternmq_store.message_store import MessageStore
from ternmq_testing.memory.memory_files import MemoryFileSystem, PowerLossFileSystem, PowerLost
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, append, checkpoint, open_store, settle


def stepped(files: MemoryFileSystem) -> tuple[MessageStore, PhysicalOffset]:
    """Return a store whose clock moved behind its only message, and where that ends."""
    store = open_store(files)
    append(store, batch_of(record("A", 0, b"before")))
    settle(store)
    end = store.max_physical
    store.session.note_doubt(ClockDoubt(end, 0))
    store.session.clock_believed()
    store.session.clock_stepped(5_000, end)
    store.session.clock_left(7)
    return store, end


def test_moves_of_the_clock_survive_a_clean_stop() -> None:
    files = MemoryFileSystem()
    store, end = stepped(files)
    store.close()
    assert open_store(files).session.clock == ClockNotes((ClockMove(end, 5_000),), None, 7)


def test_moves_of_the_clock_survive_a_crash_once_a_checkpoint_noted_them() -> None:
    files = MemoryFileSystem()
    store, end = stepped(files)
    assert checkpoint(store)
    files.locks.clear()  # the process was killed
    assert open_store(files).session.clock.moves == (ClockMove(end, 5_000),)


def test_doubt_is_durable_at_once() -> None:
    files = MemoryFileSystem()
    store, end = stepped(files)
    store.session.note_doubt(ClockDoubt(end, 3))
    files.locks.clear()  # the process was killed
    assert open_store(files).session.clock.doubt == ClockDoubt(end, 3)


def test_start_of_the_log_is_noted_when_its_first_files_have_expired() -> None:
    files = MemoryFileSystem()
    store, end = stepped(files)
    session, start = store.session, PhysicalOffset(4096)
    notes = session.notes_due(end, start)
    assert notes is not None
    session.notes_done(notes, is_good=True)
    assert session.notes.log_start == start
    assert session.notes_due(end, start) is None


def test_moves_that_timed_messages_have_followed_are_noted_no_more() -> None:
    files = MemoryFileSystem()
    store, _ = stepped(files)
    first, second = (TimerMove(QueueOffset(5), None), TimerMove(QueueOffset(9), -70))
    for move in (first, second):
        store.session.timer_follows(move)
    store.session.timer_followed(4)
    store.session.note_clock()
    files.locks.clear()  # the process was killed
    store = open_store(files)
    assert store.session.clock.timer_moves == (first, second)
    store.session.timer_followed(5)
    store.session.timer_cut(QueueOffset(7))
    store.close()
    assert open_store(files).session.clock.timer_moves == (TimerMove(QueueOffset(7), -70),)


@pytest.mark.parametrize("seed", range(40))
def test_power_loss_at_any_moment_of_a_start_leaves_notes_though_they_were_damaged(
    seed: int,
) -> None:
    chance = random.Random(seed)
    files = PowerLossFileSystem()
    stepped(files)[0].close()
    open_store(files).close()
    replace_file(files, notes_path(ROOT), b"damaged", keep_previous=False)
    files.happenings_left = chance.randrange(40)
    with suppress(PowerLost):
        settle(open_store(files))
    assert read_generations(files.lose_power(chance), notes_path(ROOT), decode_notes) is not None
