"""Small file systems of their own, for tests of what a disk does when it is full or dies."""

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

_EXT4_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2


@contextlib.contextmanager
def memory_disk(folder: Path, *, size_bytes: int) -> Generator[Path]:
    """Mount an empty tmpfs for the block; skip the test where that is not allowed."""
    folder.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        _unmount(folder)


class LoopDisk:
    """An ext4 file system in a file, which can lose its power."""

    def __init__(self, image: Path, folder: Path) -> None:
        self.folder = folder
        self._image = image

    @contextlib.contextmanager
    def mounted(self) -> Generator[Path]:
        """Mount it for the block, as it was left."""
        _mount("-o", "loop", str(self._image), str(self.folder))
        try:
            yield self.folder
        finally:
            _unmount(self.folder)

    def lose_power(self) -> None:
        """Let nothing more reach the disk: every sync fails from now on.

        What was not synced is gone when it is mounted again.
        """
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _EXT4_SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(descriptor)


def loop_disk(folder: Path, *, size_bytes: int) -> LoopDisk:
    """Make an ext4 file system; skip the test where that cannot be."""
    make = shutil.which("mkfs.ext4", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if make is None:
        pytest.skip("a disk that loses its power needs mkfs.ext4")
    folder.mkdir()
    image = folder / "image"
    with image.open("wb") as file:
        file.truncate(size_bytes)
    subprocess.run([make, "-q", "-F", str(image)], check=True, capture_output=True)
    disk = LoopDisk(image, folder / "mounted")
    disk.folder.mkdir()
    return disk


def _mount(*arguments: str) -> None:
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a file system of its own needs root and mount")
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a file system of its own cannot be mounted: {done.stderr.strip()}")


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", str(folder)], check=True, capture_output=True)
