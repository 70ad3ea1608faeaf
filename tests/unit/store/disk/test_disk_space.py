import shutil
from pathlib import Path

import pytest

from ternmq_store.disk.disk_space import DiskSpace, disk_space
from ternmq_store.disk.filesystem import RealFileSystem


def test_space_is_that_of_the_disk(tmp_path: Path) -> None:
    disk, (used_share, free_bytes) = shutil.disk_usage(tmp_path), RealFileSystem().space(tmp_path)
    most = disk.total / 10  # others write meanwhile
    assert abs(free_bytes - disk.free) < most
    assert used_share == pytest.approx(disk.used / (disk.used + disk.free), abs=0.1)
    assert 0 < free_bytes < disk.total


@pytest.mark.parametrize(
    ("used_share", "free_bytes", "until"),
    [(0.5, 500, 400), (0.85, 150, 50), (0.9, 100, 0), (1, 0, 0)],
)
def test_bytes_until_a_used_part(used_share: float, free_bytes: int, until: int) -> None:
    assert DiskSpace(used_share, free_bytes).until(0.9) == pytest.approx(until, abs=1)


def test_space_of_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk_space(tmp_path / "missing")
