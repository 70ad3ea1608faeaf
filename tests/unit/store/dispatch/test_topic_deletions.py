from pathlib import Path

import pytest

from ternmq_model.file_generations import previous_path
from ternmq_model.offsets import PhysicalOffset
from ternmq_store.dispatch.topic_deletions import (
    decode_deletions,
    encode_deletions,
    load_deletions,
    save_deletions,
)
from ternmq_testing.memory.memory_files import MemoryFileSystem

PATH = Path("/store/ternmq.deletions")
DELETIONS = {"A": PhysicalOffset(123_456), "crc32": PhysicalOffset(7)}


def saved() -> MemoryFileSystem:
    files = MemoryFileSystem()
    files.make_folder(PATH.parent)
    save_deletions(files, PATH, DELETIONS)
    return files


def flip(files: MemoryFileSystem, path: Path) -> None:
    """Make another digit of the first one."""
    files.nodes[path].data[0] ^= 2


def test_deletions_are_loaded_as_they_were_saved() -> None:
    reasons: list[str] = []
    assert load_deletions(saved(), PATH, reasons.append) == DELETIONS
    assert load_deletions(MemoryFileSystem(), PATH, reasons.append) == {}
    assert not reasons


@pytest.mark.parametrize("text", ["", "123456 A\n7 crc32\n", "123456 A\n7 crc32\nx ../B\n-1 C\n"])
def test_deletions_of_an_older_version_have_no_checksum(text: str) -> None:
    assert decode_deletions(text.encode()) == (DELETIONS if text else {})


def test_checksum_is_no_line_that_an_older_version_reads() -> None:
    *_, last = encode_deletions(DELETIONS).decode().splitlines()
    assert not last.partition(" ")[0].isdigit()


def test_flipped_digit_hides_no_message() -> None:
    files, reasons = saved(), list[str]()
    flip(files, PATH)
    assert load_deletions(files, PATH, reasons.append) == DELETIONS
    assert not reasons
    flip(files, previous_path(PATH))
    assert load_deletions(files, PATH, reasons.append) == {}
    assert "checksum differs" in reasons[0]
