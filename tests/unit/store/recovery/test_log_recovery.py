import errno
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from ternmq_model.errors import StateUnreadable
from ternmq_model.file_generations import previous_path
from ternmq_model.offsets import PhysicalOffset
from ternmq_store.config import FlushMode
from ternmq_store.disk.layout import (
    abort_path,
    checkpoint_path,
    commit_log_folder,
    consume_queue_folder,
    deletions_path,
    file_name,
    notes_path,
)
from ternmq_store.log.checkpoint import decode_checkpoint, encode_checkpoint
from ternmq_store.log.flush import write_checkpoint
from ternmq_store.message_store import MessageStore
from ternmq_store.queues.units import PADDING_SIZE
from ternmq_testing.memory.memory_files import MemoryFileSystem, PowerLossFileSystem, PowerLost
from tests.support.damage import CONFIG, blank_record, check_index, copied, readable
from tests.support.records import batch_of, record
from tests.support.replicas import follow, log_of
from tests.support.stores import (
    ROOT,
    HandClock,
    append,
    checkpoint,
    flush,
    queue_files,
    settle,
    units_in,
)

CLEAN = pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])


class Used(NamedTuple):
    """A store that was used."""

    files: MemoryFileSystem
    ends: list[int]
    """Where its records end."""
    served: dict[tuple[str, int, int], bytes]


def opened(files: MemoryFileSystem, serve_to: int | None = None) -> MessageStore:
    """Open a store, perhaps as a replica."""
    return MessageStore.open(
        ROOT,
        CONFIG,
        FlushMode.SYNC,
        files,
        HandClock(),
        serve_to=None if serve_to is None else PhysicalOffset(serve_to),
    )


def used(*, is_clean: bool, count: int = 30) -> Used:
    """Return a store of several files, all of it dispatched."""
    files = MemoryFileSystem()
    store, ends = opened(files), list[int]()
    for number in range(count):
        one = record("AB"[number % 2], 0, bytes((number,)) * 200, {"KEYS": f"k{number}"})
        ends.append(int(append(store, batch_of(one)).end))
        if number == count // 2:
            settle(store)
            assert checkpoint(store, 1 << 50)
    settle(store)
    assert checkpoint(store)
    served = readable(store)
    if is_clean:
        store.close()
    files.locks.clear()
    return Used(files, ends, served)


@CLEAN
@pytest.mark.parametrize("row", [0, 7, 15, 29])
@pytest.mark.parametrize("shift", [0, -3, 5])
def test_replica_serves_nothing_beyond_its_masters_confirmation(
    is_clean: bool, row: int, shift: int
) -> None:
    before = used(is_clean=is_clean)
    limit = before.ends[row] + shift
    store = opened(before.files, limit)
    assert store.max_physical == before.ends[-1], "the log is whole"
    settle(store)
    served = readable(store)
    expected = sum(end <= limit for end in before.ends)
    assert len(served) == expected
    assert served.items() <= before.served.items()
    check_index(store, served)
    assert sum(store.queue_range(*queue)[1] for queue in store.queues()) == expected
    assert store.confirm_offset >= store.dispatched_offset
    assert store.last_stored_at_ms == HandClock().now_ms


@CLEAN
@pytest.mark.parametrize("stops_cleanly", [True, False])
@pytest.mark.parametrize("row", [0, 11, 29])
def test_replica_opened_as_a_master_serves_everything(
    is_clean: bool, stops_cleanly: bool, row: int
) -> None:
    before = used(is_clean=is_clean)
    store = opened(before.files, before.ends[row])
    settle(store)
    if stops_cleanly:
        store.close()
        assert store.failure is None
    before.files.locks.clear()
    again = opened(before.files)
    assert again.report.was_clean is stops_cleanly
    assert not again.report.queues_rebuilt
    assert readable(again) == before.served
    assert again.next_offset("A", 0) == 15
    check_index(again, before.served)


def test_stopped_replica_dispatches_no_more_than_its_limit() -> None:
    master = opened(MemoryFileSystem())
    ends = [int(append(master, batch_of(record(body=bytes(50)))).end) for _ in range(9)]
    copy = MemoryFileSystem()
    slave = opened(copy, 0)
    follow(master, slave)
    slave.confirm_limit = PhysicalOffset(ends[3] + 7)
    slave.close()
    assert slave.failure is None
    again = opened(copy, ends[3])
    assert again.report.was_clean
    assert again.max_physical == ends[-1]
    assert len(readable(again)) == 4
    again.confirm_limit = PhysicalOffset(ends[-1])
    settle(again)
    assert len(readable(again)) == 9


def test_killed_replica_resumes_where_it_was() -> None:
    files, copy = MemoryFileSystem(), MemoryFileSystem()
    master = opened(files)
    for number in range(30):
        append(master, batch_of(record("A", number % 3, bytes(100 + number))))
    slave = opened(copy, 0)
    follow(master, slave)
    flush(slave)
    slave.confirm_limit = slave.max_physical
    slave.dispatch(messages_max=7)
    checkpoint(slave)
    end = slave.max_physical
    killed = copied(copy)
    again = opened(killed, int(slave.dispatched_offset))
    assert again.max_physical == end
    append(master, batch_of(record("B", 0)))
    settle(master)
    follow(master, again)
    again.confirm_limit = again.max_physical
    settle(again)
    assert log_of(killed, again.max_physical) == log_of(files, master.max_physical)
    assert queue_files(killed) == queue_files(files)
    assert readable(again) == readable(master)


def test_replica_with_damage_beyond_its_limit_keeps_its_log() -> None:
    before = used(is_clean=True)
    damaged = before.ends[20]
    base = damaged - damaged % CONFIG.commit_log_file_bytes
    path = next(path for path in before.files.nodes if path.name == f"{base:020d}")
    position = damaged - base
    before.files.nodes[path].data[position + 100 : position + 120] = 1
    store = opened(before.files, before.ends[5])
    assert store.max_physical == before.ends[-1]
    store.confirm_limit = store.max_physical
    settle(store)
    assert len(readable(store)) == 29
    assert store.failure is None


@CLEAN
def test_replica_reads_no_more_of_its_log_than_needed(is_clean: bool) -> None:
    before = used(is_clean=is_clean)
    store = opened(before.files, before.ends[25])
    assert store.report.scanned_from >= before.ends[25 if is_clean else 15]
    assert store.report.records_scanned <= 14


@pytest.mark.parametrize("path_of", [abort_path, checkpoint_path, notes_path, deletions_path])
@pytest.mark.parametrize("error", [errno.EACCES, errno.EIO, errno.EISDIR, errno.ELOOP])
def test_unreadable_state_file_refuses_the_start_by_name(
    path_of: Callable[[Path], Path], error: int
) -> None:
    files = used(is_clean=False).files
    path = path_of(ROOT)
    files.open(path, create=True)
    files.open(previous_path(path), create=True)
    files.unreadable[path] = OSError(error, "refused")
    with pytest.raises(StateUnreadable, match=f"{path} exists but cannot be read: refused"):
        opened(files)
    assert not files.locks


@pytest.mark.parametrize("row", [20, 28, 29])
def test_unit_of_a_record_damaged_before_a_crash_stays_as_it_was(row: int) -> None:
    files, ends, _ = used(is_clean=False)
    saved = files.nodes[checkpoint_path(ROOT)].data.tobytes()
    dispatched = replace(decode_checkpoint(saved), dispatched_offset=ends[14])
    write_checkpoint(files, checkpoint_path(ROOT), encode_checkpoint(dispatched))
    before = queue_files(files)
    unit = units_in(before[f"{'AB'[row % 2]}/0/{file_name(row // 20 * 200)}"])[row // 2 % 10]
    base = unit[0] // CONFIG.commit_log_file_bytes * CONFIG.commit_log_file_bytes
    log = files.nodes[commit_log_folder(ROOT) / file_name(base)].data
    log[unit[0] - base + 100] ^= 1
    store = opened(files)
    assert queue_files(files) == before
    assert readable(store).keys() == {
        (topic, 0, number) for topic in "AB" for number in range(15)
    } - {("AB"[row % 2], 0, row // 2)}


@pytest.mark.parametrize("lost", [1, 10, 30])
@pytest.mark.parametrize("is_clean", [True, False])
def test_queue_goes_back_with_the_end_of_a_log_that_is_not_noted(
    is_clean: bool, lost: int, caplog: pytest.LogCaptureFixture
) -> None:
    files, _, before = used(is_clean=is_clean)
    for name in ("ternmq.store", "ternmq.store.bak"):
        files.nodes.pop(ROOT / name, None)
    names = [("AB"[number % 2], 0, number // 2) for number in range(30)]
    for key in names[-lost:]:
        blank_record(files, before[key])
    store = opened(files)
    assert readable(store) == {key: before[key] for key in names[:-lost]}
    ends = {topic: sum(key[0] == topic for key in names[:-lost]) for topic in "AB"}
    assert [
        line for line in caplog.messages if "action=cut" in line and "consumequeue" in line
    ] == [
        f"store recovery action=cut file={ROOT}/consumequeue/{topic}/0 position={end * 20}"
        f" bytes={(15 - end) * 20} reason={topic} 0 ended at 15 and ends at {end} now: "
        "the log has lost its last messages"
        for topic, end in ends.items()
        if end < 15
    ]
    for number in range(6):
        append(store, batch_of(record("AB"[number % 2], 0, b"later")))
    settle(store)
    store.close()
    for name, data in queue_files(files).items():
        assert PADDING_SIZE not in [size for _, size, _ in units_in(data)], name
    again = opened(files)
    served = readable(again)
    assert len(served) == 30 - lost + 6
    check_index(again, served)


def test_number_of_a_record_that_is_lost_before_good_ones_is_not_given_again() -> None:
    files, _, before = used(is_clean=True)
    for name in ("ternmq.store", "ternmq.store.bak"):
        files.nodes.pop(ROOT / name, None)
    blank_record(files, before["A", 0, 14])
    store = opened(files)
    assert (store.next_offset("A", 0), store.next_offset("B", 0)) == (15, 15)


def test_number_of_a_record_lost_before_a_good_one_stays_though_its_queue_is_cut() -> None:
    files, _, before = used(is_clean=True)
    for name in ("ternmq.store", "ternmq.store.bak"):
        files.nodes.pop(ROOT / name, None)
    for number in (13, 14):  # the record of A 14 lies between them
        blank_record(files, before["B", 0, number])
    store = opened(files)
    assert (store.next_offset("A", 0), store.next_offset("B", 0)) == (15, 14)
    append(store, batch_of(record("B", 0, b"later")))
    settle(store)
    assert readable(store).keys() == before.keys() - {("B", 0, 13)}


def killed_ahead_of_its_notes() -> PowerLossFileSystem:
    """Return a killed store with a queue that begins behind its notes, before its checkpoint."""
    files = PowerLossFileSystem()
    store = opened(files)
    for number in range(17):
        append(store, batch_of(record("A" if number < 4 else "AB"[number % 2], 0, bytes(200))))
        settle(store)
        if number in {3, 11}:  # too soon for the second one to note the queues again
            assert checkpoint(store, (1 << 50) + 1_000 * number)
    saved = decode_checkpoint(files.nodes[checkpoint_path(ROOT)].data.tobytes())
    assert 0 < store.session.notes.queues_at < saved.dispatched_offset < store.dispatched_offset
    return files.restart()


EVERYTHING = {("A", 0, number) for number in range(11)} | {("B", 0, number) for number in range(6)}


def test_checkpoint_vouches_for_no_unit_that_an_opening_wrote_anew() -> None:
    files = killed_ahead_of_its_notes()
    start = opened(files).report.scanned_from
    for seed in range(20):
        again = opened(files.lose_power(random.Random(seed)))
        assert again.report.scanned_from <= start
        assert not again.report.queues_rebuilt
        assert readable(again).keys() == EVERYTHING


def test_checkpoint_is_not_lowered_where_nothing_before_it_is_wiped() -> None:
    files = killed_ahead_of_its_notes()
    opened(files)
    saved = files.nodes[checkpoint_path(ROOT)].data.tobytes()
    opened(again := files.restart())
    assert again.nodes[checkpoint_path(ROOT)].data.tobytes() == saved


@pytest.mark.parametrize("topic", ["A", "B"])
def test_opening_that_is_killed_leaves_no_padding_for_units_that_are_missing(topic: str) -> None:
    lost = consume_queue_folder(ROOT) / topic / "0" / file_name(0)
    is_done, step = False, 0
    while not is_done:
        files = killed_ahead_of_its_notes()
        del files.nodes[lost]
        files = files.restart()
        files.happenings_left = step
        try:
            opened(files)
            is_done = True
        except PowerLost:
            step += 1
        assert readable(opened(files.restart())).keys() == EVERYTHING, f"killed at step {step}"
    assert step > 20
