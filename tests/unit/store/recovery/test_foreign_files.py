"""Keeping what is none of a log."""

import errno
from pathlib import Path

import pytest

from ternmq_store.recovery.foreign_files import set_aside_file, set_aside_surplus
from ternmq_testing.memory.memory_files import MemoryFileSystem

ROOT = Path("/store")
ASIDE = ROOT / "aside"
PATH = ROOT / "commitlog" / "00"


def files_with(data: bytes) -> MemoryFileSystem:
    files = MemoryFileSystem()
    files.make_folder(PATH.parent)
    files.open(PATH, create=True).write(0, data)
    return files


def content(files: MemoryFileSystem, path: Path) -> bytes:
    return files.nodes[path].data.tobytes()


def test_surplus_is_copied_before_it_is_cut() -> None:
    files = files_with(b"kept" + b"more")
    to = set_aside_surplus(files, ROOT, PATH, 4)
    assert to is not None
    assert to == ROOT / "aside" / "00.beyond"
    assert (content(files, PATH), content(files, to)) == (b"kept", b"more")
    assert files.files(ASIDE) == [to.name]


def test_zeros_behind_a_file_are_not_kept() -> None:
    files = files_with(b"kept" + bytes(2 << 20))
    assert set_aside_surplus(files, ROOT, PATH, 4) is None
    assert content(files, PATH) == b"kept"
    assert not files.exists(ASIDE) or not files.files(ASIDE)


def test_file_takes_no_name_that_is_taken() -> None:
    files = files_with(b"")
    for number, name in enumerate(("00", "00.2", "00.3")):
        files.open(PATH, create=True).write(0, b"%d" % number)
        assert set_aside_file(files, ROOT, PATH) == ROOT / "aside" / name
        assert PATH not in files.nodes
    kept = [content(files, ASIDE / name) for name in files.files(ASIDE)]
    assert kept == [b"0", b"1", b"2"]


def test_full_disk_leaves_the_file_as_it_was() -> None:
    files = files_with(b"kept" + b"more")
    files.space_bytes = 0
    with pytest.raises(OSError, match="full") as caught:
        set_aside_surplus(files, ROOT, PATH, 4)
    assert caught.value.errno == errno.ENOSPC
    assert content(files, PATH) == b"keptmore"
    assert not files.exists(ASIDE) or not files.files(ASIDE)
