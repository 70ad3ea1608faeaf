"""The commit log by itself."""

import errno

import pytest

from ternmq_model.offsets import PhysicalOffset
from ternmq_store.commit_log import CommitLog, PrepareTask
from ternmq_store.layout import commit_log_folder, file_name, next_file_path
from tests.support.files import MemoryFileSystem, PowerLossFileSystem
from tests.support.stores import ROOT

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


def test_what_a_cut_leaves_behind_is_zero_on_the_disk_and_later_files_are_gone() -> None:
    files = PowerLossFileSystem()
    log = log_with(files, dirty=True)
    assert log.cut(PhysicalOffset(FILE_BYTES + 100)) == FILE_BYTES - 100
    folder = commit_log_folder(ROOT)
    assert files.files(folder) == [file_name(0), file_name(FILE_BYTES)]
    disk = files.nodes[folder / file_name(FILE_BYTES)].disk
    assert set(disk[:100].tolist()) == {7}
    assert not disk[100:].any()


def test_a_cut_that_finds_zeros_syncs_them_all_the_same() -> None:
    # An attempt that was killed may have zeroed them, and never synced.
    files = PowerLossFileSystem()
    log = log_with(files, dirty=True)
    log.files.at(0).bytes[100:] = 0
    assert log.cut(PhysicalOffset(100)) == 0
    assert not files.nodes[commit_log_folder(ROOT) / file_name(0)].disk[100:].any()


def test_a_file_made_ahead_is_zeros_on_the_disk_before_it_has_its_name() -> None:
    files = PowerLossFileSystem()
    files.make_folder(commit_log_folder(ROOT))
    path = commit_log_folder(ROOT) / file_name(0)
    PrepareTask(files, next_file_path(ROOT), path, 3 << 20).run()
    assert len(files.nodes[path].disk) == 3 << 20
    assert not files.exists(next_file_path(ROOT))


def test_a_file_that_the_disk_cannot_hold_leaves_nothing_behind() -> None:
    files = MemoryFileSystem()
    files.make_folder(commit_log_folder(ROOT))
    files.space_bytes = 1 << 20
    path = commit_log_folder(ROOT) / file_name(0)
    with pytest.raises(OSError, match="full") as caught:
        PrepareTask(files, next_file_path(ROOT), path, 3 << 20).run()
    assert caught.value.errno == errno.ENOSPC
    assert not files.nodes
