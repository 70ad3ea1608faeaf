"""Small files that are replaced as a whole and survive a loss of power; every function blocks.

Beside `topics.json` lie `topics.json.bak`, the generation before, and while a new one is written
`topics.json.tmp`. It goes through the store's file system, so that a simulated broker loses or
keeps its tables with its messages.

Source: RocketMQ `MixAll.string2File`, `ConfigManager.load`, which do not sync.
"""

import logging
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from ternmq_model.file_generations import newest_generation
from ternmq_store.disk.filesystem import FileSystem

T = TypeVar("T")

logger = logging.getLogger(__name__)

STATE_FILE_BYTES_MAX: Final = 1 << 30


def replace_file(
    files: FileSystem,
    path: Path,
    data: bytes,
    *,
    keep_previous: bool = True,
    in_both: bool = False,
) -> None:
    """Make `data` the content of `path`, durably. One writer at a time.

    Interrupted at any moment it leaves the new generation or the one before.

    Args:
        files: Where `path` lies.
        path: In a folder that exists.
        data: All of the file.
        keep_previous: True = the generation before stays as `<name>.bak`.
        in_both: Make `data` the generation before as well, so that either can be taken. Each is
            replaced in its place: what was the file never becomes the generation before.

    Raises:
        OSError: The disk refused; what was there can still be read.
    """
    new = _beside(path, ".tmp")
    _replace(files, path, new, data, keep_previous=keep_previous and not in_both)
    if in_both:
        _replace(files, previous_path(path), new, data, keep_previous=False)


def _replace(files: FileSystem, path: Path, new: Path, data: bytes, *, keep_previous: bool) -> None:
    with closing(files.open(new, create=True)) as file:
        file.resize(0)
        file.write(0, data)
        file.sync()
    if keep_previous and files.exists(path):
        # Between the two renames there is no main file; a reader takes the previous one.
        files.rename(path, previous_path(path))
    files.rename(new, path)
    files.sync_folder(path.parent)


def read_generations(files: FileSystem, path: Path, parse: Callable[[bytes], T]) -> T | None:
    """Return what the newest right generation of `path` parses to; None when there is none.

    Args:
        files: Where `path` lies.
        path: The file; `<name>.bak` beside it is the generation before.
        parse: Raises ValueError, LookupError or TypeError for what is no such file.

    Raises:
        StateUnreadable: One that is needed is there and cannot be read.
        StateDamaged: There is one, and both it and its `.bak` are damaged: what it held is
            unknown, which is not the same as empty.
    """
    read = partial(read_whole, files)
    return newest_generation(read, (path, previous_path(path)), parse, on_older=_tell_older)


def _tell_older(path: Path, reason: str) -> None:
    logger.warning("previous generation taken file=%s reason=%s", path, reason)


def read_whole(files: FileSystem, path: Path, *, bytes_max: int = STATE_FILE_BYTES_MAX) -> bytes:
    """Return the content of a small file.

    Raises:
        OSError: It cannot be read.
        ValueError: It has more than `bytes_max` bytes.
    """
    with closing(files.open(path, read_only=True)) as file:
        size = file.size()
        if size > bytes_max:
            raise ValueError(f"{size} bytes are too many for a state file")
        return file.read(0, size)


def previous_path(path: Path) -> Path:
    """Return the path of the generation before."""
    return _beside(path, ".bak")


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
