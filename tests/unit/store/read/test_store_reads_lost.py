"""Reads of files that somebody else removed from an open store."""

from collections.abc import Callable
from typing import TypeVar

import pytest

from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_store.disk.fail_stop import FileLost
from ternmq_store.disk.layout import commit_log_folder, file_name, queue_folder
from ternmq_store.message_store import MessageStore
from ternmq_store.query.key_search import KeyQuery
from ternmq_store.query.time_search import BoundaryType
from ternmq_store.read.record_reader import ColdRecord
from ternmq_store.replication.log_feed import ColdSlice
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, append, open_store, settle

T = TypeVar("T")

END = PhysicalOffset(4096)


def restarted() -> tuple[MessageStore, MemoryFileSystem]:
    """Return a store that was closed and opened again, with files of log, queue and index."""
    files = MemoryFileSystem()
    store = open_store(files)
    for number in range(60):
        append(store, batch_of(record("A", 0, bytes(200), {"KEYS": f"k{number}"})))
    settle(store)
    store.close()
    return open_store(files), files


def task_of(plan: object, kind: type[T]) -> T:
    """Return what a plan wants to be run in another thread."""
    assert isinstance(plan, kind)
    return plan


def read(store: MessageStore) -> None:
    """Read messages from the disk, whatever can be read of them at once."""
    store.read("A", 0, QueueOffset(0))


READS: dict[str, Callable[[MessageStore], object]] = {
    "messages": read,
    "record": lambda store: task_of(
        store.reads.plan_record(PhysicalOffset(0), END), ColdRecord
    ).run(),
    "many": lambda store: store.searches.records_at("A", 0, [0], bytes_max=1).run(),
    "key": lambda store: store.searches.by_key(KeyQuery(topics=("A",), key="k0")).run(),
    "time": lambda store: find_time(store),
    "times": lambda store: store.searches.times_at([("A", 0, [QueueOffset(0)])]).run(),
    "prepared": lambda store: store.searches.prepared(
        PhysicalOffset(0), [PhysicalOffset(1)], skipped_topic=""
    ).step(),
    "slice": lambda store: task_of(store.feed.slice(PhysicalOffset(0), 1024), ColdSlice).run(),
    "checksum": lambda store: store.feed.checksum(PhysicalOffset(0), END).run(),
}


def find_time(store: MessageStore) -> None:
    """Find where a queue stood at a time."""
    search = store.searches.by_time("A", 0, 1, BoundaryType.LOWER)
    assert search is not None
    search.run()


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_read_of_a_log_file_that_somebody_removed_fails_and_so_does_the_store(
    read: Callable[[MessageStore], object],
) -> None:
    store, files = restarted()
    path = commit_log_folder(ROOT) / file_name(0)
    files.remove(path)
    with pytest.raises(FileLost) as lost:
        read(store)
    assert store.failure is lost.value
    assert lost.value.filename == str(path)


@pytest.mark.parametrize("is_size", [False, True])
def test_read_of_a_queue_file_that_somebody_removed_fails(is_size: bool) -> None:
    store, files = restarted()
    size = store.searches.size_of("A", 0, QueueOffset(0), QueueOffset(60), bytes_max=0)
    files.remove(queue_folder(ROOT, "A", 0) / file_name(0))
    with pytest.raises(FileLost):
        size.run() if is_size else read(store)
    assert store.failure is not None
