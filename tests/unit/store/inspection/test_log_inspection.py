from dataclasses import replace
from pathlib import Path

import pytest

from ternmq_model.errors import StoreNotFound
from ternmq_store.inspection.log_inspection import (
    BadRange,
    FoundBlank,
    FoundRecord,
    LogItem,
    find_log_files,
    walk_log,
)
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, SMALL, append, open_store, settle

FILE_BYTES = 4096
CONFIG = replace(SMALL, commit_log_file_bytes=FILE_BYTES, record_checksum=True)


def store_with(bodies: int, *, body: bytes = b"x" * 900) -> MemoryFileSystem:
    """Return a closed store."""
    files = MemoryFileSystem()
    store = open_store(files, config=CONFIG)
    for number in range(bodies):
        append(store, batch_of(record(body=body + bytes((number,)))))
    settle(store)
    store.close()
    return files


def walk(files: MemoryFileSystem) -> list[LogItem]:
    """Return what lies in the log."""
    return list(walk_log(files, find_log_files(files, ROOT)))


def log_file(number: int) -> Path:
    """Return the path of a file of the log."""
    return ROOT / "commitlog" / f"{number * FILE_BYTES:020d}"


def kinds(pieces: list[LogItem]) -> str:
    """Return a letter for each piece."""
    letters = {FoundRecord: "r", FoundBlank: "-", BadRange: "x"}
    return "".join(letters[type(piece)] for piece in pieces)


def test_records_and_blanks_come_in_log_order_without_the_rest() -> None:
    pieces = walk(store_with(5))
    assert kinds(pieces) == "rrr-rr"
    ends = [p.offset + p.record.header.total_bytes for p in pieces if isinstance(p, FoundRecord)]
    assert [piece.offset for piece in pieces][1:3] == ends[:2]
    found = [piece for piece in pieces if isinstance(piece, FoundRecord)]
    assert all(piece.is_checksummed and piece.is_checksum_right for piece in found)


@pytest.mark.parametrize("at", [0, 4, 30, 35, 39, 85])
def test_bad_range_ends_where_the_next_record_begins(at: int) -> None:
    files = store_with(5)
    good = walk(files)
    files.nodes[log_file(0)].data[good[1].offset + at] ^= 0xFF
    pieces = walk(files)
    assert kinds(pieces) == "rxr-rr"
    bad = pieces[1]
    assert isinstance(bad, BadRange)
    assert (bad.offset, bad.offset + bad.size) == (good[1].offset, good[2].offset)
    assert bad.reason


def test_record_with_an_altered_body_is_shown_with_its_fault() -> None:
    files = store_with(3)
    files.nodes[log_file(0)].data[200] ^= 0xFF
    first = walk(files)[0]
    assert isinstance(first, FoundRecord)
    assert first.problem == "the body's checksum differs"
    assert not first.is_checksum_right


def test_altered_property_is_detected_by_the_whole_checksum() -> None:
    files = store_with(1)
    first = walk(files)[0]
    assert isinstance(first, FoundRecord)
    end = first.record.header.total_bytes
    files.nodes[log_file(0)].data[end - 25] ^= 1
    first = walk(files)[0]
    assert isinstance(first, FoundRecord)
    assert (first.problem, first.is_checksum_right) == ("", False)


def test_torn_record_at_the_end_is_reported_up_to_its_last_byte() -> None:
    files = store_with(2)
    last = walk(files)[-1]
    assert isinstance(last, FoundRecord)
    data = files.nodes[log_file(0)].data
    data[last.offset : last.offset + 4] = 0
    data[last.offset + 500 :] = 0
    pieces = walk(files)
    assert kinds(pieces) == "rx"
    assert isinstance(pieces[1], BadRange)
    assert pieces[1].size == 500


def test_zeros_inside_the_log_are_bad_and_behind_its_end_are_not() -> None:
    files = store_with(5)
    third = walk(files)[2]
    files.nodes[log_file(0)].data[third.offset :] = 0
    assert kinds(walk(files)) == "rrxrr"
    files.nodes[log_file(1)].data[:] = 0
    assert kinds(walk(files)) == "rr"


def test_blank_record_must_end_with_its_file() -> None:
    files = store_with(5)
    blank = walk(files)[3]
    files.nodes[log_file(0)].data[blank.offset + 3] ^= 1
    assert kinds(walk(files)) == "rrrxrr"


def test_record_in_a_body_is_not_taken_for_one_of_the_log() -> None:
    inner = record(body=b"inner")
    files = store_with(2, body=inner)
    files.nodes[log_file(0)].data[4] ^= 1
    assert kinds(walk(files)) == "xr"


def test_folder_without_a_log_is_no_store() -> None:
    with pytest.raises(StoreNotFound, match="commitlog"):
        find_log_files(MemoryFileSystem(), ROOT)
