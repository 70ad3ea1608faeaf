"""The commit log by itself."""

import errno
from dataclasses import replace

import pytest

from ternmq_model.errors import BrokerBusy, StoreFull
from ternmq_model.offsets import PhysicalOffset
from ternmq_store.disk.layout import commit_log_folder, file_name, next_file_path
from ternmq_store.log.commit_log import CommitLog
from ternmq_store.log.file_allocation import AllocateTask
from ternmq_testing.memory.memory_files import MemoryFileSystem, PowerLossFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, SMALL, append, open_store, prepare, settle

FILE_BYTES = 8192


def log_with(files: MemoryFileSystem, *, dirty: bool) -> CommitLog:
    """Return a log of three files, full of rubbish or of zeros."""
    files.make_folder(commit_log_folder(ROOT))
    log = CommitLog(files, ROOT, FILE_BYTES)
    for base in range(0, 3 * FILE_BYTES, FILE_BYTES):
        file = log.files.create_file(base, real_bytes=FILE_BYTES)
        file.bytes[:] = 7 if dirty else 0
        file.file.sync()
        files.sync_folder(log.files.folder)
    return log


def test_cut_leaves_zeros_on_disk_and_removes_later_files() -> None:
    files = PowerLossFileSystem()
    log = log_with(files, dirty=True)
    assert log.cut(PhysicalOffset(FILE_BYTES + 100)) == FILE_BYTES - 100
    folder = commit_log_folder(ROOT)
    assert files.files(folder) == [file_name(0), file_name(FILE_BYTES)]
    disk = files.nodes[folder / file_name(FILE_BYTES)].disk
    assert set(disk[:100].tolist()) == {7}
    assert not disk[100:].any()


def test_cut_that_finds_zeros_still_syncs_them() -> None:
    # An attempt that was killed may have zeroed them, and never synced.
    files = PowerLossFileSystem()
    log = log_with(files, dirty=True)
    log.files.at(0).bytes[100:] = 0
    assert log.cut(PhysicalOffset(100)) == 0
    assert not files.nodes[commit_log_folder(ROOT) / file_name(0)].disk[100:].any()


def test_preallocated_file_is_zeros_on_disk_before_it_is_named() -> None:
    files = PowerLossFileSystem()
    files.make_folder(commit_log_folder(ROOT))
    path = commit_log_folder(ROOT) / file_name(0)
    AllocateTask(files, next_file_path(ROOT), path, 3 << 20, 3 << 20).run()
    assert len(files.nodes[path].disk) == 3 << 20
    assert not files.exists(next_file_path(ROOT))


def test_file_the_disk_cannot_hold_leaves_nothing_behind() -> None:
    files = MemoryFileSystem()
    files.make_folder(commit_log_folder(ROOT))
    files.space_bytes = 1 << 20
    path = commit_log_folder(ROOT) / file_name(0)
    with pytest.raises(OSError, match="full") as caught:
        AllocateTask(files, next_file_path(ROOT), path, 3 << 20, 3 << 20).run()
    assert caught.value.errno == errno.ENOSPC
    assert not files.nodes


def test_filling_a_file_yields_the_disk_and_stops_at_90_percent() -> None:
    files = MemoryFileSystem()
    files.make_folder(commit_log_folder(ROOT))
    path = commit_log_folder(ROOT) / file_name(0)
    task = AllocateTask(files, next_file_path(ROOT), path, 3 << 20, 3 << 20)
    task.run()
    assert files.rests == 12
    files.remove(path)
    files.used = 0.91
    with pytest.raises(OSError, match="91% full") as caught:
        task.run()
    assert caught.value.errno == errno.ENOSPC
    assert not files.nodes


def test_large_file_is_never_created_while_an_append_waits() -> None:
    files = MemoryFileSystem()
    config = replace(SMALL, commit_log_file_bytes=8 << 20)
    store = open_store(files, config=config)
    first, second = (commit_log_folder(ROOT) / file_name(base) for base in (0, 8 << 20))
    assert files.exists(first)  # made by opening
    assert files.rests == 32
    body = bytes(3 << 20)
    append(store, batch_of(record(body=body)))
    files.used = 0.91
    task = store.file_due()
    assert task is not None
    with pytest.raises(OSError, match="91% full") as caught:
        task.run()
    store.file_ready(task, caught.value)
    append(store, batch_of(record(body=body)))  # the present file is filled
    for _ in range(2):
        with pytest.raises(StoreFull, match="91% full"):
            append(store, batch_of(record(body=body)))
    files.used = 0.5
    assert prepare(store)
    append(store, batch_of(record(body=body)))
    assert files.exists(second)
    for _ in range(2):
        append(store, batch_of(record(body=bytes(2 << 20))))
    with pytest.raises(BrokerBusy):
        append(store, batch_of(record(body=body)))
    assert prepare(store)
    append(store, batch_of(record(body=body)))
    assert store.failure is None
    settle(store)
    store.close()


def test_store_opens_on_a_full_disk_and_takes_messages_when_there_is_space() -> None:
    files = MemoryFileSystem()
    files.used = 0.91
    store = open_store(files, config=replace(SMALL, commit_log_file_bytes=8 << 20))
    with pytest.raises(StoreFull, match="91% full"):
        append(store, batch_of(record()))
    files.used = 0.5
    assert prepare(store)
    assert append(store, batch_of(record())).physical_offsets.tolist() == [0]
    settle(store)
    store.close()
