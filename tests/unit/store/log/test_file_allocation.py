"""Filling a file that is in use, ahead of its writer."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from ternmq_model.errors import BrokerBusy, StoreFailed
from ternmq_store.config import FlushMode
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.disk.layout import commit_log_folder, file_name
from ternmq_store.log.file_allocation import AllocateTask, FillTask
from ternmq_store.message_store import MessageStore
from ternmq_testing.memory.memory_files import MemoryFileSystem, Node
from tests.support.records import batch_of, record
from tests.support.replicas import follow, open_replica
from tests.support.stores import ROOT, SMALL, append, drain, open_store, prepare, settle

MIB = 1 << 20
FILE_BYTES = 8 * MIB
CONFIG = replace(SMALL, commit_log_file_bytes=FILE_BYTES)
FIRST = commit_log_folder(ROOT) / file_name(0)
HALF = batch_of(record(body=bytes((7,)) * (MIB // 2)))


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let opening fill 1 MiB, and each step 2 MiB."""
    monkeypatch.setattr("ternmq_store.log.commit_log._FIRST_ZERO_BYTES", MIB)
    monkeypatch.setattr("ternmq_store.log.file_allocation._SYNC_EVERY_BYTES", 2 * MIB)


def node(files: MemoryFileSystem) -> Node:
    return files.nodes[FIRST]


def test_rest_of_a_first_file_is_filled_ahead_of_its_writer() -> None:
    files = MemoryFileSystem()
    store = open_store(files, config=CONFIG)
    assert node(files).written_bytes == MIB
    assert node(files).real_bytes == FILE_BYTES
    append(store, HALF)
    with pytest.raises(BrokerBusy, match="being filled"):
        append(store, HALF)
    task = store.file_due()
    assert isinstance(task, FillTask)
    assert (task.start, task.end) == (MIB, 3 * MIB)
    assert store.file_due() is None
    with pytest.raises(BrokerBusy):  # not while it is being filled either
        append(store, HALF)
    task.run()
    store.file_ready(task)
    append(store, HALF)
    steps = 0
    while node(files).written_bytes < FILE_BYTES:
        assert prepare(store)
        steps += 1
    assert steps == 3
    settle(store)
    assert len(drain(store, "flights", 0)) == 2
    store.close()


def test_asynchronous_flush_only_reserves_files() -> None:
    files = MemoryFileSystem()
    store = open_store(files, config=CONFIG, flush_mode=FlushMode.ASYNC)
    for _ in range(5):
        append(store, HALF)
    assert prepare(store)
    assert store.file_due() is None
    following = files.nodes[FIRST.with_name(file_name(FILE_BYTES))]
    assert following.real_bytes == node(files).real_bytes == FILE_BYTES
    assert following.written_bytes == 0
    assert node(files).written_bytes < MIB
    store.close()


def test_filling_does_not_pause_while_the_writer_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = MemoryFileSystem()
    rests: list[float] = []

    def rest(_: MemoryFileSystem, seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr(MemoryFileSystem, "rest", rest)
    store = open_store(files, config=CONFIG)
    rests.clear()
    append(store, HALF)
    with pytest.raises(BrokerBusy, match="being filled"):
        append(store, HALF)
    counts: list[int] = []
    for _ in range(2):
        assert prepare(store)
        counts.append(len(rests))
    assert counts == [0, 8]
    store.close()


def test_filled_file_is_followed_by_making_the_next() -> None:
    store = open_store(MemoryFileSystem(), config=CONFIG)
    kinds: list[type] = []
    for _ in range(20):
        try:
            append(store, HALF)
        except BrokerBusy:
            task = store.file_due()
            assert task is not None
            kinds.append(type(task))
            task.run()
            store.file_ready(task)
    assert kinds[:4] == [FillTask] * 4
    assert set(kinds[4:]) == {AllocateTask}
    store.close()


def copied(store: MessageStore, count: int) -> None:
    """Take over what another replica has, until so many half MiB are there."""
    master = open_store(MemoryFileSystem(), config=replace(CONFIG, commit_log_file_bytes=4 * MIB))
    for _ in range(count):
        append(master, HALF)
    follow(master, store)
    master.close()


def test_lagging_copy_waits_for_no_zeros_and_they_follow_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ternmq_store.log.commit_log._FILL_LEAD_BYTES", MIB)
    files = MemoryFileSystem()
    store = open_replica(files, config=CONFIG)
    copied(store, 1)
    assert prepare(store)  # the index
    assert store.file_due(is_copying=True) is None
    copied(store, 6)
    next_ = store.file_due(is_copying=True)
    assert isinstance(next_, AllocateTask)
    next_.run()
    store.file_ready(next_)
    path = commit_log_folder(ROOT) / file_name(FILE_BYTES)
    second = files.nodes[path]
    assert (second.real_bytes, second.written_bytes) == (FILE_BYTES, 0)
    assert store.file_due(is_copying=True) is None
    steps: list[tuple[Path, int, int]] = []
    while isinstance(task := store.file_due(), FillTask):
        steps.append((task.file.path, task.start, task.end))
        task.run()
        store.file_ready(task)
    start = store.max_physical + MIB
    assert steps[0] == (FIRST, start, start + 2 * MIB)
    assert steps[-1] == (path, 6 * MIB, 8 * MIB)
    assert second.written_bytes == FILE_BYTES
    assert store.failure is None
    store.close()


def test_copy_waits_for_zeros_being_written() -> None:
    store = open_replica(MemoryFileSystem(), config=CONFIG)
    copied(store, 1)
    assert prepare(store)  # the index
    task = store.file_due()
    assert isinstance(task, FillTask)
    with pytest.raises(BrokerBusy, match="being filled"):
        copied(store, 2)
    task.run()
    store.file_ready(task)
    copied(store, 6)
    assert store.max_physical == 6 * len(HALF.data)
    store.close()


def reopened(files: MemoryFileSystem, flush_mode: FlushMode = FlushMode.SYNC) -> MessageStore:
    """Kill the process and start again."""
    files.locks.clear()
    return open_store(files, config=CONFIG, flush_mode=flush_mode)


def test_tail_of_an_existing_file_is_filled_before_its_first_append() -> None:
    files = MemoryFileSystem()
    store = open_store(files, config=CONFIG)
    append(store, HALF)
    settle(store)
    node(files).written_bytes = 0  # as another program leaves it: all of it only reserved
    again = reopened(files)
    filled = node(files)
    assert filled.data[: HALF.sizes[0]].any()
    assert len(drain(again, "flights", 0)) == 1
    append(again, HALF)
    with pytest.raises(BrokerBusy):
        append(again, HALF)
    assert prepare(again)
    append(again, HALF)
    settle(again)
    assert len(drain(again, "flights", 0)) == 3
    again.close()


def test_reserved_file_is_filled_once_an_opening_has_synchronous_flush() -> None:
    files = MemoryFileSystem()
    store = open_store(files, config=CONFIG, flush_mode=FlushMode.ASYNC)
    append(store, HALF)
    settle(store)
    end = node(files).written_bytes = store.max_physical  # the rest is only reserved
    again = reopened(files, FlushMode.ASYNC)
    assert node(files).written_bytes == end
    assert not isinstance(again.file_due(), FillTask)
    synchronous = reopened(files)
    assert node(files).written_bytes == end + MIB
    while isinstance(task := synchronous.file_due(), FillTask):
        task.run()
        synchronous.file_ready(task)
    assert node(files).written_bytes == FILE_BYTES
    assert len(drain(synchronous, "flights", 0)) == 1
    synchronous.close()


def test_partly_filled_file_is_filled_no_further_with_asynchronous_flush() -> None:
    files = MemoryFileSystem()
    store = open_store(files, config=CONFIG)
    append(store, HALF)
    settle(store)
    assert node(files).written_bytes == MIB
    again = reopened(files, FlushMode.ASYNC)
    assert node(files).written_bytes == MIB
    for _ in range(4):
        append(again, HALF)
    assert not isinstance(again.file_due(), FillTask)
    settle(again)
    assert len(drain(again, "flights", 0)) == 5
    again.close()


def test_filled_file_is_left_alone_by_the_next_opening() -> None:
    files = MemoryFileSystem()
    store = open_store(files, config=CONFIG)
    while prepare(store):
        pass
    append(store, HALF)
    settle(store)
    rests = files.rests
    again = reopened(files)
    assert files.rests == rests
    assert again.file_due() is None
    again.close()


def test_disk_without_space_for_zeros_has_still_reserved_it() -> None:
    store = open_store(MemoryFileSystem(), config=CONFIG)
    append(store, HALF)
    task = store.file_due()
    assert task is not None
    store.file_ready(task, OSError(errno.ENOSPC, "full"))
    append(store, HALF)
    append(store, HALF)
    assert store.failure is None
    store.close()


def test_disk_failing_during_the_fill_makes_the_store_read_only() -> None:
    store = open_store(MemoryFileSystem(), config=CONFIG)
    task = store.file_due()
    assert task is not None
    store.file_ready(task, OSError(errno.EIO, "broken"))
    with pytest.raises(StoreFailed):
        append(store, HALF)
    store.close()


def test_real_file_reports_where_it_is_only_reserved(tmp_path: Path) -> None:
    file = RealFileSystem().open(tmp_path / "file", create=True)
    file.resize(4 * MIB)
    file.allocate(0, 4 * MIB)
    file.write(0, bytes(MIB))
    file.sync()
    # Where space cannot be reserved, it is written.
    can_tell = hasattr(os, "posix_fallocate") and hasattr(os, "SEEK_HOLE")
    assert file.hole_after(0) == (MIB if can_tell else 4 * MIB)
    assert file.hole_after(2 * MIB) == (2 * MIB if can_tell else 4 * MIB)
    assert file.hole_after(4 * MIB) == 4 * MIB
    file.write(MIB, bytes(3 * MIB))
    file.sync()
    assert file.hole_after(0) == 4 * MIB
    file.close()
    assert os.stat(tmp_path / "file").st_size == 4 * MIB
