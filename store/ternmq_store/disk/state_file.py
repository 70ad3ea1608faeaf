"""State files in the store's file system, which a simulation can replace. Every function blocks.

Source: RocketMQ `MixAll.string2File`, `ConfigManager.load`, which do not sync.
"""

import logging
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from ternmq_model.file_generations import (
    newest_generation,
    previous_path,
    replace_generations,
)
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
    """Replace the content of the state file at `path` by `data`. See `replace_generations`.

    Raises:
        OSError: The write failed. The generation before can still be read.
    """

    def write(draft: Path) -> None:
        with closing(files.open(draft, create=True)) as file:
            file.resize(0)
            file.write(0, data)
            file.sync()

    replace_generations(files, write, path, keep_previous=keep_previous, in_both=in_both)


def read_generations(files: FileSystem, path: Path, parse: Callable[[bytes], T]) -> T | None:
    """Return the parsed content of the newest valid generation of `path`; None = no file.

    Args:
        files: File system of `path`.
        path: Path of the file. `<name>.bak` beside it is the generation before.
        parse: Function of the bytes. It raises ValueError, LookupError or TypeError for bytes of
            another form.

    Raises:
        StateUnreadable: A needed file exists and cannot be read.
        StateDamaged: The file and its `.bak` are damaged. The state is unknown, not empty.
    """
    read = partial(read_whole, files)
    return newest_generation(read, (path, previous_path(path)), parse, on_older=_tell_older)


def _tell_older(path: Path, reason: str) -> None:
    logger.warning("previous generation used file=%s reason=%s", path, reason)


def read_whole(files: FileSystem, path: Path, *, bytes_max: int = STATE_FILE_BYTES_MAX) -> bytes:
    """Return the content of a small file.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file has more than `bytes_max` bytes.
    """
    with closing(files.open(path, read_only=True)) as file:
        size = file.size()
        if size > bytes_max:
            raise ValueError(f"{size} bytes are too many for a state file")
        return file.read(0, size)
