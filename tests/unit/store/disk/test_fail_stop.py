"""Which errors of a disk are kept."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from ternmq_store.disk.fail_stop import FailStopFileSystem
from ternmq_store.disk.filesystem import File
from ternmq_testing.memory.memory_files import MemoryFileSystem

ROOT = Path("/store")
INSIDE = ROOT / "file"


class Disk(MemoryFileSystem):
    """A disk on which every change and every sync fails, when told so."""

    error: OSError | None = None

    def happen(self) -> None:
        if self.error is not None:
            raise self.error


def watched_disk() -> tuple[Disk, FailStopFileSystem, File]:
    """Return a disk, the same watched, and a file of it."""
    disk = Disk()
    watched = FailStopFileSystem(disk, ROOT)
    watched.make_folder(ROOT)
    return disk, watched, watched.open(INSIDE, create=True)


CHANGES: dict[str, Callable[[FailStopFileSystem, File], object]] = {
    "write": lambda _, file: file.write(0, b"1"),
    "resize": lambda _, file: file.resize(2),
    "allocate": lambda _, file: file.allocate(0, 1),
    "sync": lambda _, file: file.sync(),
    "create": lambda files, _: files.open(ROOT / "new", create=True),
    "rename": lambda files, _: files.rename(INSIDE, ROOT / "new"),
    "make": lambda files, _: files.make_folder(ROOT / "folder"),
    "sync folder": lambda files, _: files.sync_folder(ROOT),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_first_failed_change_is_kept_and_raised(
    change: Callable[[FailStopFileSystem, File], object],
) -> None:
    disk, watched, file = watched_disk()
    disk.error = OSError(errno.EIO, "dead")
    with pytest.raises(OSError, match="dead"):
        change(watched, file)
    assert watched.failure is disk.error
    watched.fail(OSError(errno.EROFS, "later"))
    assert watched.failure is disk.error


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_shortage_is_no_failure(code: int) -> None:
    disk, watched, file = watched_disk()
    disk.error = OSError(code, "refused")
    for change in CHANGES.values():
        with pytest.raises(OSError, match="refused"):
            change(watched, file)
    assert watched.failure is None


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_directory_that_is_gone_is_a_failure(
    change: Callable[[FailStopFileSystem, File], object],
) -> None:
    disk, watched, file = watched_disk()
    disk.error = OSError(errno.ENOENT, "gone")
    with pytest.raises(OSError, match="gone"):
        change(watched, file)
    assert watched.failure is disk.error


def test_file_or_folder_removed_here_is_no_failure() -> None:
    disk, watched, file = watched_disk()
    folder = ROOT / "folder"
    watched.make_folder(folder)
    inside = watched.open(folder / "file", create=True)
    with pytest.raises(FileNotFoundError):
        watched.open(ROOT / "never there")
    for path in (INSIDE, folder / "file", folder):
        watched.remove(path)
    disk.error = OSError(errno.ENOENT, "gone")
    for call in (file.sync, inside.sync, lambda: watched.sync_folder(folder)):
        with pytest.raises(FileNotFoundError):
            call()
    assert watched.failure is None
    disk.error = None
    watched.make_folder(folder)
    watched.open(INSIDE, create=True)
    disk.error = OSError(errno.ENOENT, "gone")
    for call in (lambda: watched.sync_folder(folder), file.sync):
        watched.failure = None
        with pytest.raises(FileNotFoundError):
            call()
        assert watched.failure is disk.error


def test_rename_is_watched_by_its_new_name() -> None:
    disk, watched, _ = watched_disk()
    disk.error = OSError(errno.EIO, "dead")
    for old, new, fails in (("/other/a", ROOT / "b", True), (INSIDE, "/other/b", False)):
        watched.failure = None
        with pytest.raises(OSError, match="dead"):
            watched.rename(Path(old), Path(new))
        assert (watched.failure is not None) == fails


def test_reads_removals_and_files_outside_the_directory_are_no_failure() -> None:
    disk, watched, file = watched_disk()
    watched.make_folder(Path("/other"))
    outside = watched.open(Path("/other/file"), create=True)
    disk.read_error = disk.error = OSError(errno.EIO, "dead")
    for call in (
        lambda: file.read(0, 1),
        lambda: watched.remove(INSIDE),
        outside.sync,
        lambda: watched.sync_folder(Path("/")),
    ):
        with pytest.raises(OSError, match="dead"):
            call()
    assert watched.failure is None
    assert watched.open(INSIDE, read_only=True).size() == file.size() == 0


def test_watched_file_system_is_not_watched_twice() -> None:
    disk, watched, _ = watched_disk()
    assert FailStopFileSystem.over(watched, ROOT) is watched
    assert isinstance(FailStopFileSystem.over(disk, ROOT), FailStopFileSystem)
    assert FailStopFileSystem.under(watched) is FailStopFileSystem.under(disk) is disk
