"""Content of whole files: reads and writes in pieces, durable under the file's name."""

from collections.abc import Generator, Iterable
from contextlib import closing
from pathlib import Path
from typing import Final

from ternmq_store.disk.filesystem import File, FileSystem

_PIECE_BYTES: Final = 1 << 20


def read_pieces(file: File, start: int, end: int) -> Generator[bytes]:
    """Yield the bytes of `file` from `start` to `end`, 1 MiB at a time."""
    for at in range(start, end, _PIECE_BYTES):
        yield file.read(at, min(_PIECE_BYTES, end - at))


def write_pieces(files: FileSystem, path: Path, pieces: Iterable[bytes]) -> None:
    """Make a file of `pieces`, durably. It has its name only once all of it is on the disk.

    Raises:
        OSError: The disk refused; no draft is left.
    """
    draft = path.with_name(f"{path.name}.tmp")
    file = files.open(draft, create=True)
    try:
        file.resize(0)
        position = 0
        for piece in pieces:
            file.write(position, piece)
            position += len(piece)
        file.sync()
    except OSError:
        files.remove(draft)
        raise
    finally:
        file.close()
    files.rename(draft, path)
    files.sync_folder(path.parent)


def set_length(files: FileSystem, path: Path, length: int) -> None:
    """Cut a file, which need not exist, or lengthen it by zeros, durably."""
    with closing(files.open(path, create=True)) as file:
        file.resize(length)
        file.sync()
    files.sync_folder(path.parent)
