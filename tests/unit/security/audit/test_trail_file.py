"""The file of the audit trail: private, rotated, and whole after a refused write."""

import errno
import os
from pathlib import Path

import pytest

from ternmq_security.audit.trail_file import append


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_files_are_for_their_owner_and_rotated(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for number in range(9):
        append(path, b"line %d\n" % number, max_bytes=16, files=3)
    names = ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    assert sorted(each.name for each in tmp_path.iterdir()) == names
    assert [(tmp_path / name).read_bytes() for name in names] == [
        b"line 8\n",
        b"line 6\nline 7\n",
        b"line 4\nline 5\n",
    ]
    assert {mode(tmp_path / name) for name in names} == {0o600}


def test_file_that_another_program_moved_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    append(path, b"1\n", max_bytes=9, files=2)
    path.rename(tmp_path / "moved")
    append(path, b"2\n", max_bytes=9, files=2)
    assert path.read_bytes() == b"2\n"


def test_data_above_the_size_has_a_file_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for data in (b"long line\n", b"2\n"):
        append(path, data, max_bytes=4, files=2)
    assert path.read_bytes() == b"2\n"
    assert path.with_name("audit.jsonl.1").read_bytes() == b"long line\n"


def test_link_is_not_followed(tmp_path: Path) -> None:
    path, other = tmp_path / "audit.jsonl", tmp_path / "other"
    other.write_bytes(b"")
    path.symlink_to(other)
    with pytest.raises(OSError, match="symbolic links"):
        append(path, b"1\n", max_bytes=9, files=2)
    assert other.read_bytes() == b""


def test_refused_write_leaves_no_part_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.jsonl"
    append(path, b"1\n", max_bytes=99, files=2)
    written: list[int] = []

    def write_half(descriptor: int, data: bytes) -> int:
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(write(descriptor, data[: len(data) // 2]))
        return written[0]

    write = os.write
    monkeypatch.setattr(os, "write", write_half)
    with pytest.raises(OSError, match="No space"):
        append(path, b"22222\n", max_bytes=99, files=2)
    assert written == [3]
    assert path.read_bytes() == b"1\n"
