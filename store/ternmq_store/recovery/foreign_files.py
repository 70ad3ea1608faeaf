"""Foreign files in the log's folder: they are set aside, and nothing of them is deleted."""

from contextlib import closing
from itertools import count
from pathlib import Path

from ternmq_store.disk.file_content import read_pieces, write_pieces
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import aside_folder


def set_aside_file(files: FileSystem, root: Path, path: Path) -> Path:
    """Move a file out of the log's folder, durably; return where it lies now.

    Raises:
        OSError: It may lie in either place.
    """
    to = _place(files, root, path.name)
    files.rename(path, to)
    files.sync_folder(to.parent)
    files.sync_folder(path.parent)
    return to


def set_aside_surplus(files: FileSystem, root: Path, path: Path, length: int) -> Path | None:
    """Cut a file to `length` bytes, durably, and keep what lies behind them.

    Returns:
        Where that lies; None when it was zeros.

    Raises:
        OSError: The file may be as it was; then a copy may be there.
    """
    with closing(files.open(path)) as file:
        to, size = None, file.size()
        if any(map(any, read_pieces(file, length, size))):
            to = _place(files, root, f"{path.name}.beyond")
            write_pieces(files, to, read_pieces(file, length, size))
        file.resize(length)
        file.sync()
    return to


def _place(files: FileSystem, root: Path, name: str) -> Path:
    """Return a path that nothing has, in the folder of such files."""
    folder = aside_folder(root)
    files.make_folder(folder)
    names = (name if number == 1 else f"{name}.{number}" for number in count(1))
    return next(folder / each for each in names if not files.exists(folder / each))
