import zlib
from dataclasses import replace

import pytest

from ternmq_model.errors import InvalidParameter
from ternmq_model.offsets import PhysicalOffset
from ternmq_store.config import FlushMode
from ternmq_store.message_store import MessageStore
from ternmq_store.replication.log_feed import ColdSlice
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.damage import CONFIG
from tests.support.records import batch_of, record
from tests.support.replicas import follow, log_of, next_slice
from tests.support.stores import SMALL, append, commit, delete, open_store, settle


def filled(files: MemoryFileSystem, count: int = 40) -> MessageStore:
    """Return a store with a log of several files."""
    store = open_store(files)
    for number in range(count):
        append(store, batch_of(record("A", 0, bytes((number,)) * 400)))
    return store


def test_appended_bytes_are_fed_before_they_are_on_disk() -> None:
    store = filled(MemoryFileSystem(), 3)
    assert store.flushed_offset == 0
    found = next_slice(store, 0, 1 << 20)
    assert found is not None
    assert found.end == store.max_physical
    assert next_slice(store, found.end) is None


def test_bytes_before_the_start_are_read_by_a_task() -> None:
    files = MemoryFileSystem()
    first = filled(files)
    settle(first)
    first.close()
    store = open_store(files)
    assert isinstance(store.feed.slice(PhysicalOffset(0), 1024), ColdSlice)
    append(store, batch_of(record()))
    at, data = 0, b""
    while (found := next_slice(store, at, 1024)) is not None:
        assert at == found.start
        at, data = found.end, data + found.data
    assert data == log_of(files, store.max_physical)


def test_slices_end_at_the_end_of_a_file() -> None:
    store = filled(MemoryFileSystem())
    at, ends = 0, list[int]()
    while (found := next_slice(store, at, 1 << 20)) is not None:
        at = found.end
        ends.append(at)
    length = SMALL.commit_log_file_bytes
    assert ends[:-1] == list(range(length, ends[-1], length))


def test_offset_outside_the_log_is_refused() -> None:
    store = filled(MemoryFileSystem(), 2)
    for start in (-1, store.max_physical + 1):
        with pytest.raises(InvalidParameter):
            store.feed.slice(PhysicalOffset(start), 1024)
    with pytest.raises(InvalidParameter):
        store.feed.checksum(PhysicalOffset(5), PhysicalOffset(4))


def test_file_deleted_meanwhile_yields_nothing() -> None:
    files = MemoryFileSystem()
    first = filled(files)
    settle(first)
    first.close()
    store = open_store(files)
    cold = store.feed.slice(PhysicalOffset(0), 1024)
    assert isinstance(cold, ColdSlice)
    delete(store, min(path for path in files.nodes if path.parent.name == "commitlog"))
    cold.run()
    assert store.feed.finish(cold) is None


def test_pooled_bytes_are_fed_once_they_are_in_the_files() -> None:
    config = replace(SMALL, transient_pool_enabled=True)
    store = open_store(MemoryFileSystem(), config=config, flush_mode=FlushMode.ASYNC)
    append(store, batch_of(record()))
    assert next_slice(store, 0) is None
    commit(store)
    assert next_slice(store, 0) is not None


def test_damaged_bytes_are_passed_on_unchanged_and_marked() -> None:
    files, copy = MemoryFileSystem(), MemoryFileSystem()
    first = open_store(files, config=CONFIG)
    ends = [int(append(first, batch_of(record(body=bytes(90)))).end) for _ in range(9)]
    settle(first)
    first.close()
    path = min(path for path in files.nodes if path.parent.name == "commitlog")
    files.nodes[path].data[ends[2] : ends[3]] = 7
    master, slave = open_store(files, config=CONFIG), open_store(copy, config=CONFIG)
    follow(master, slave, bytes_max=200)
    assert log_of(copy, slave.max_physical) == log_of(files, master.max_physical)
    stretches = [(one.start, one.end) for one in slave.reads.quarantine.ranges]
    assert stretches == [(ends[2], ends[3])]
    settle(slave)
    assert slave.failure is None
    assert slave.dispatched_offset == master.max_physical


def test_checksum_covers_the_bytes_over_all_files() -> None:
    files = MemoryFileSystem()
    store = filled(files)
    end = store.max_physical
    task = store.feed.checksum(PhysicalOffset(100), PhysicalOffset(end - 7))
    assert task.run() == zlib.crc32(log_of(files, end)[100:-7])


def test_place_without_a_record_changes_nothing() -> None:
    files = MemoryFileSystem()
    store = filled(files)
    settle(store)
    end = int(append(store, batch_of(record())).end)
    before = {path: node.data.tobytes() for path, node in files.nodes.items()}
    for start in (1, 300, 8191, end - 1):
        found = next_slice(store, start, 1 << 20)
        assert found is not None
        assert found.damage
        following = next_slice(store, found.end)
        assert following is None or not following.damage
    assert not store.reads.quarantine.ranges
    assert {path: node.data.tobytes() for path, node in files.nodes.items()} == before
