"""Foreign files in the log's folder, which are moved to the folder `aside` and never deleted."""

from contextlib import closing
from itertools import count
from pathlib import Path

from ternmq_store.disk.file_content import read_pieces, write_pieces
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import aside_folder


def set_aside_file(files: FileSystem, root: Path, path: Path) -> Path:
    """Move a file to the folder `aside`, durably; return its new path.

    Raises:
        OSError: The file may have either path.
    """
    to = _unused_path(files, root, path.name)
    files.rename(path, to)
    files.sync_folder(to.parent)
    files.sync_folder(path.parent)
    return to


def set_aside_surplus(files: FileSystem, root: Path, path: Path, length: int) -> Path | None:
    """Cut a file to `length` bytes, durably, after a copy of the rest; return the copy's path.

    None = the rest was zeros, which are not copied.

    Raises:
        OSError: The file may be unchanged, and a copy may exist.
    """
    with closing(files.open(path)) as file:
        to, size = None, file.size()
        if any(map(any, read_pieces(file, length, size))):
            to = _unused_path(files, root, f"{path.name}.beyond")
            write_pieces(files, to, read_pieces(file, length, size))
        file.resize(length)
        file.sync()
    return to


def _unused_path(files: FileSystem, root: Path, name: str) -> Path:
    """Return an unused path in the folder `aside`."""
    folder = aside_folder(root)
    files.make_folder(folder)
    names = (name if number == 1 else f"{name}.{number}" for number in count(1))
    return next(folder / each for each in names if not files.exists(folder / each))
