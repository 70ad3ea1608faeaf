"""Reserve file `ternmq.reserve`: a little space for a full disk. Every function blocks.

The opening and the orderly closing of a store write new versions of `abort`, the notes and the
broker's replication state. On a full disk they use the space of this file, so that consumers can
still read.
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
    """Remove the reserve file to free its space.

    Raises:
        OSError: The disk failed.
    """
    path = reserve_path(root)
    if files.exists(path):
        files.remove(path)


def keep_reserve(files: FileSystem, root: Path) -> None:
    """Create the reserve file, as long as the disk has space. A full disk is no error.

    No promise depends on the file, so it is not synced.

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
    logger.warning("disk full: no space is kept for the next start folder=%s", root)


def replace_file_from_reserve(
    files: FileSystem, root: Path, path: Path, data: bytes, *, in_both: bool = False
) -> None:
    """Replace a file like `replace_file`, on a full disk with the space of the reserve.

    Args:
        files: File system of the files.
        root: Data directory. No other task may change its reserve meanwhile.
        path: Path in an existing folder.
        data: Content of the file.
        in_both: True = the generation before gets the content too.

    Raises:
        OSError: The write failed. The old content can still be read.
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
