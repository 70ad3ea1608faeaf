from dataclasses import replace

import pytest

from ternmq_model.errors import CorruptRecord, StoreFull
from ternmq_model.offsets import PhysicalOffset
from ternmq_store.log.log_notes import load_notes
from ternmq_store.message_store import MessageStore
from ternmq_store.replication.log_slice import LogSlice
from ternmq_store.retention.retention import DiskLevel
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.damage import CONFIG, readable
from tests.support.records import batch_of, record
from tests.support.replicas import follow, log_of, next_slice, take
from tests.support.stores import (
    ROOT,
    SMALL,
    append,
    checkpoint,
    drain,
    open_store,
    queue_files,
    settle,
    whole,
)


def test_log_is_copied_byte_for_byte_with_its_blank_ends() -> None:
    files, copy = MemoryFileSystem(), MemoryFileSystem()
    master, slave = open_store(files), open_store(copy)
    for number in range(40):
        append(master, batch_of(record("A", number % 3, bytes(100 + 60 * number))))
    assert follow(master, slave) > 10
    assert master.max_physical > 5 * SMALL.commit_log_file_bytes
    assert log_of(copy, slave.max_physical) == log_of(files, master.max_physical)
    settle(master)
    settle(slave)
    assert queue_files(copy) == queue_files(files)
    assert readable(slave) == readable(master)
    assert slave.last_stored_at_ms == master.last_stored_at_ms


def test_piece_not_starting_at_the_end_changes_nothing() -> None:
    files, copy = MemoryFileSystem(), MemoryFileSystem()
    master, slave = open_store(files), open_store(copy)
    append(master, batch_of(record(), record(), record()))
    piece = next_slice(master, 0)
    assert piece is not None
    size = len(piece.data) // 3
    first = replace(piece, data=piece.data[:size])
    take(slave, first)
    before = log_of(copy, 1 << 20)
    for bad in (
        first,
        replace(piece, start=PhysicalOffset(2 * size), data=piece.data[2 * size :]),
        replace(piece, start=PhysicalOffset(size), data=piece.data[2 * size :]),
        replace(piece, start=PhysicalOffset(size), data=piece.data[size:-1]),
        replace(piece, start=PhysicalOffset(size), data=b""),
    ):
        with pytest.raises(CorruptRecord):
            take(slave, bad)
        assert slave.max_physical == size
        assert log_of(copy, 1 << 20) == before
    take(slave, replace(piece, start=PhysicalOffset(size), data=piece.data[size:]))
    assert slave.max_physical == master.max_physical


def test_full_disk_takes_no_piece() -> None:
    master, slave = open_store(MemoryFileSystem()), open_store(MemoryFileSystem())
    append(master, batch_of(record()))
    slave.cleaner.level = DiskLevel.FULL
    with pytest.raises(StoreFull):
        follow(master, slave)
    assert slave.max_physical == 0


def test_checksum_ranges_equal_those_of_the_other_log() -> None:
    files, copy = MemoryFileSystem(), MemoryFileSystem()
    plain = replace(CONFIG, record_checksum=False)
    borders = [0]
    for config in (CONFIG, plain, CONFIG, plain):
        master = open_store(files, config=config)
        append(master, batch_of(record(), record()))
        settle(master)
        borders.append(int(master.max_physical))
        master.close()
    master, slave = open_store(files, config=CONFIG), open_store(copy, config=plain)
    slices = list[LogSlice]()
    while (piece := next_slice(master, slave.max_physical)) is not None:
        take(slave, piece)
        slices.append(piece)
    assert [one.start for one in slices] == borders[:-1]
    assert [one.is_checksummed for one in slices] == [True, False, True, False]
    settle(slave)
    checkpoint(slave)
    ranges = load_notes(copy, ROOT, pytest.fail).checksummed
    assert [(r.start, r.end) for r in ranges] == [
        (0, borders[1]),
        (borders[2], borders[3]),
    ]


def bodies(store: MessageStore, topic: str) -> list[bytes]:
    return [whole(data).body for _, data in drain(store, topic, 0)]


@pytest.mark.parametrize("is_ahead", [True, False])
def test_topic_is_deleted_where_the_other_log_had_it_deleted(*, is_ahead: bool) -> None:
    files, copy = MemoryFileSystem(), MemoryFileSystem()
    master, slave = open_store(files), open_store(copy)
    append(master, batch_of(record("A", 0, b"old"), record("B", 0, b"b1"), record("A", 0, b"old")))
    if not is_ahead:
        follow(master, slave)
        settle(slave)
    settle(master)
    at = master.max_physical
    master.delete_topic("A")
    append(
        master, batch_of(record("A", 0, b"new"), record("B", 0, b"b2"), record("A", 0, b"newer"))
    )
    if is_ahead:  # all of it is dispatched when the slave hears that the topic was deleted
        follow(master, slave)
        settle(slave)
    slave.delete_topic("A", at=at)
    if not is_ahead:
        follow(master, slave)
    settle(master)
    settle(slave)
    assert bodies(slave, "A") == bodies(master, "A") == [b"new", b"newer"]
    assert bodies(slave, "B") == bodies(master, "B") == [b"b1", b"b2"]
    assert slave.deletions == master.deletions == {"A": at}
