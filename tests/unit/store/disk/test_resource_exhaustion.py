"""What a full disk costs at each place where the store writes: a refusal, never the store."""

import errno
from pathlib import Path

import pytest

from ternmq_model.errors import StoreFailed, StoreFull
from ternmq_store.config import FlushMode
from ternmq_store.disk.resource_exhaustion import check_full, check_only_full, is_exhausted, is_full
from ternmq_store.message_store import MessageStore
from ternmq_testing.memory.memory_files import MemoryFile, MemoryFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import append, drain, flush, open_store, prepare, settle


class Refusing(MemoryFileSystem):
    """A disk that fails whatever is done to files of some name.

    Attributes:
        refused: Part of their path; empty = none.
        kind: "write", "sync" or "create".
        error: What is raised.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refused = ""
        self.kind = ""
        self.error = errno.ENOSPC

    def check(self, path: Path, kind: str) -> None:
        """Raise, if it is the time."""
        if self.refused and self.refused in str(path) and self.kind == kind:
            raise OSError(self.error, "the disk is full", str(path))

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if create and path not in self.nodes:
            self.check(path, "create")
        return RefusingFile(self, super().open(path, create=create, read_only=read_only))


class RefusingFile(MemoryFile):
    """A file of that disk."""

    def __init__(self, disk: Refusing, file: MemoryFile) -> None:
        super().__init__(disk, file.path, file._node)  # pyright: ignore[reportPrivateUsage]
        self._disk = disk

    def write(self, position: int, data: bytes | memoryview) -> None:
        self._disk.check(self.path, "write")
        super().write(position, data)

    def sync(self) -> None:
        self._disk.check(self.path, "sync")
        super().sync()


def run_checkpoint(store: MessageStore, now_ms: int) -> OSError | None:
    """Run the checkpoint that is due and report how it ended."""
    task = store.checkpoint_due(now_ms)
    assert task is not None
    try:
        task.run()
    except OSError as error:
        store.checkpoint_done(task, error)
        return error
    store.checkpoint_done(task)
    return None


def fill(store: MessageStore) -> None:
    """Append more than a file of the log and a step of a queue hold."""
    for _ in range(20):
        append(store, batch_of(record("B", 0, bytes(2000))))


@pytest.mark.parametrize(
    ("number", "full", "short"),
    [
        (errno.ENOSPC, True, False),
        (errno.EDQUOT, True, False),
        (errno.EMFILE, False, True),
        (errno.ENOMEM, False, True),
        (errno.EIO, False, False),
    ],
)
def test_disk_errors_are_told_apart(number: int, full: bool, short: bool) -> None:
    error = OSError(number, "why")
    assert is_full(error) is full
    assert is_exhausted(error) is short
    if full or short:
        with pytest.raises(StoreFull, match="queues"):
            check_full(error, "queues")
        check_only_full(error)
    else:
        check_full(error, "queues")
        with pytest.raises(OSError, match="why"):
            check_only_full(error)


@pytest.mark.parametrize("refused", ["/checkpoint", "/ternmq.store"])
@pytest.mark.parametrize("kind", ["create", "write", "sync"])
def test_state_file_without_disk_space_is_written_later(refused: str, kind: str) -> None:
    files = Refusing()
    store = open_store(files)
    append(store, batch_of(record("A")))
    settle(store)
    files.refused, files.kind = refused, kind
    run_checkpoint(store, 1 << 50)
    assert store.failure is None
    append(store, batch_of(record("A")))
    settle(store)
    assert len(drain(store, "A", 0)) == 2
    files.refused = ""
    assert run_checkpoint(store, 1 << 51) is None
    store.close()
    assert open_store(files).report.was_clean


def test_units_whose_sync_finds_no_space_make_the_store_read_only() -> None:
    files = Refusing()
    store = open_store(files)
    append(store, batch_of(record("A")))
    settle(store)
    files.refused, files.kind = "/consumequeue/A", "sync"
    assert run_checkpoint(store, 1 << 50) is not None
    assert store.failure is not None
    with pytest.raises(StoreFailed):
        append(store, batch_of(record("A")))


@pytest.mark.parametrize(
    ("refused", "kind"),
    [("/commitlog", "create"), ("/commitlog", "sync"), ("/consumequeue", "create")],
)
def test_new_file_without_space_fails_the_batch_and_nothing_else(refused: str, kind: str) -> None:
    files = Refusing()
    store = open_store(files, flush_mode=FlushMode.ASYNC)
    append(store, batch_of(record("A")))
    settle(store)
    files.refused, files.kind = refused, kind
    with pytest.raises(StoreFull):
        fill(store)
    assert store.failure is None
    before = store.next_offset("B", 0)
    files.refused = ""
    append(store, batch_of(record("B")))
    settle(store)
    assert len(drain(store, "B", 0)) == before + 1
    assert len(drain(store, "A", 0)) == 1


def test_next_file_without_space_is_created_when_there_is_space() -> None:
    files = Refusing()
    store = open_store(files)
    append(store, batch_of(record("A", 0, bytes(4000))))
    files.refused, files.kind = "/commitlog.next", "create"
    task = store.file_due()
    assert task is not None
    with pytest.raises(OSError, match="full") as caught:
        task.run()
    store.file_ready(task, caught.value)
    with pytest.raises(StoreFull):
        append(store, batch_of(record("A", 0, bytes(6000))))
    files.refused = ""
    assert prepare(store)
    append(store, batch_of(record("A", 0, bytes(6000))))
    assert flush(store)
    assert store.failure is None


def test_disk_error_ends_all_confirmation() -> None:
    files = Refusing()
    store = open_store(files)
    append(store, batch_of(record("A")))
    files.refused, files.kind, files.error = "/commitlog", "sync", errno.EIO
    task = store.flush_due(0)
    assert task is not None
    with pytest.raises(OSError, match="Errno 5") as caught:
        task.run()
    store.flush_done(task, caught.value)
    files.refused = ""
    confirmed = store.confirm_offset
    with pytest.raises(StoreFailed):
        append(store, batch_of(record("A")))
    assert store.flush_due(1 << 60) is None
    assert store.confirm_offset == confirmed < store.max_physical
