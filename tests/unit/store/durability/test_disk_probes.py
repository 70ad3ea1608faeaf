"""Trying the disk where acknowledgements do not wait for it."""

import errno

import pytest

from ternmq_store.config import FlushMode
from ternmq_store.disk.fail_stop import FileLost
from ternmq_store.disk.layout import abort_path
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, append, open_store


def test_probe_is_due_once_after_appends_and_changes_nothing() -> None:
    files = MemoryFileSystem()
    store = open_store(files, flush_mode=FlushMode.ASYNC)
    assert store.probes is not None
    assert [store.probes.is_due, store.probes.take()] == [False, None]
    append(store, batch_of(record("A"), record("A")))
    assert store.probes.is_due
    before, syncs = files.nodes[abort_path(ROOT)].data.tobytes(), files.syncs
    task = store.probes.take()
    assert task is not None
    assert store.probes.take() is None
    task.run()
    assert files.nodes[abort_path(ROOT)].data.tobytes() == before
    assert files.syncs == syncs + 1


def test_failed_probe_makes_the_store_read_only_before_it_ends() -> None:
    files = MemoryFileSystem()
    store = open_store(files, flush_mode=FlushMode.ASYNC)
    append(store, batch_of(record("A")))
    assert store.probes is not None
    task = store.probes.take()
    assert task is not None
    files.sync_error = OSError(errno.EIO, "dead")
    with pytest.raises(OSError, match="dead"):
        task.run()
    assert store.failure is files.sync_error


def test_probe_of_a_directory_that_is_gone_makes_the_store_read_only() -> None:
    files = MemoryFileSystem()
    store = open_store(files, flush_mode=FlushMode.ASYNC)
    append(store, batch_of(record("A")))
    assert store.probes is not None
    task = store.probes.take()
    assert task is not None
    files.remove(abort_path(ROOT))
    with pytest.raises(FileLost) as lost:
        task.run()
    assert store.failure is lost.value


def test_synchronous_flush_needs_no_probe() -> None:
    assert open_store(MemoryFileSystem()).probes is None
