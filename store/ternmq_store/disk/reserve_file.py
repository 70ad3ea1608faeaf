"""The reserve file `ternmq.reserve`: a little space for the moment when the disk has none.

To open a store, or to close it in order, `abort` and the notes are written anew beside the old
ones, and so is a broker's part in its name. On a full disk that takes what this file gives back, so
that consumers can read on. Every function blocks.
"""

import logging
from contextlib import closing
from pathlib import Path
from typing import Final

from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import reserve_path
from ternmq_store.disk.resource_exhaustion import is_full
from ternmq_store.disk.state_file import replace_file

logger = logging.getLogger(__name__)

_SIZES: Final = (256 << 10, 128 << 10, 64 << 10)


def give_up_reserve(files: FileSystem, root: Path) -> None:
    """Remove the reserve file, if there is one, so that the disk has its space.

    Raises:
        OSError: The disk failed.
    """
    path = reserve_path(root)
    if files.exists(path):
        files.remove(path)


def keep_reserve(files: FileSystem, root: Path) -> None:
    """Make the reserve file, as long as the disk has space for; a full disk is no error.

    Nothing relies on it, so it is not synced.

    Raises:
        OSError: The disk failed.
    """
    path = reserve_path(root)
    with closing(files.open(path, create=True)) as file:
        for length in _SIZES:
            try:
                file.allocate(0, length)
            except OSError as error:
                if not is_full(error):
                    raise
                file.resize(0)  # a part of it may be real
            else:
                return
    files.remove(path)
    logger.warning("disk full: no space is kept for the next start root=%s", root)


def replace_file_from_reserve(
    files: FileSystem, root: Path, path: Path, data: bytes, *, in_both: bool = False
) -> None:
    """Replace a file like `replace_file`, on a full disk with the space of the reserve.

    Args:
        files: File system of all of them.
        root: The data directory. No other user may change its reserve meanwhile.
        path: In a folder that exists.
        data: All of the file.
        in_both: Make it the generation before as well.

    Raises:
        OSError: The disk refused; what was there can still be read.
    """
    try:
        replace_file(files, path, data, in_both=in_both)
    except OSError as error:
        if not is_full(error):
            raise
        give_up_reserve(files, root)
        try:
            replace_file(files, path, data, in_both=in_both)
        finally:
            keep_reserve(files, root)
