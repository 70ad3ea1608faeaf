from pathlib import Path

import pytest

from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.inspection.index_inspection import (
    find_index_files,
    find_slots,
    read_index_head,
    walk_entries,
)
from tests.support.rocketmq import unpack_store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a copy of the store."""
    return unpack_store(tmp_path)


def test_slots_are_found_though_the_file_does_not_count_them(root: Path) -> None:
    files = RealFileSystem()
    for path, count in zip(find_index_files(files, root), (399, 399, 270), strict=True):
        head = read_index_head(files, path)
        assert head is not None
        assert find_slots(files, head) == 500
        assert sum(len(found.entries) for found in walk_entries(files, head, 500)) == count


def test_file_with_a_wrong_header_has_no_slots(root: Path) -> None:
    files = RealFileSystem()
    path = find_index_files(files, root)[0]
    data = bytearray(path.read_bytes())
    data[16:24] = (12_345).to_bytes(8, "big")
    path.write_bytes(data)
    head = read_index_head(files, path)
    assert head is not None
    assert find_slots(files, head) is None
    path.write_bytes(data[:30])
    assert read_index_head(files, path) is None
