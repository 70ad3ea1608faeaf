"""Content of whole files: reads and writes in pieces, durable under the file's name."""

from collections.abc import Generator, Iterable
from contextlib import closing
from pathlib import Path
from typing import Final

from ternmq_model.record.format import BLANK_BYTES
from ternmq_store.disk.filesystem import File, FileSystem

_PIECE_BYTES: Final = 1 << 20

_ZEROS: Final = bytes(256 << 10)
"""Zeros of one write. Writes of 1 MiB took twice the processor time: the kernel looks for longer
ranges of free memory."""

_REST_S: Final = 0.000_25
"""Pause after each write of zeros: 1 GiB takes a second longer, and the disk is free for reads and
syncs every few milliseconds."""


def read_pieces(file: File, start: int, end: int) -> Generator[bytes]:
    """Yield the bytes of `file` from `start` to `end`, in pieces of 1 MiB."""
    for at in range(start, end, _PIECE_BYTES):
        yield file.read(at, min(_PIECE_BYTES, end - at))


def write_pieces(files: FileSystem, path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file of `pieces` durably. The file gets its name when all of it is on the disk.

    Raises:
        OSError: The write failed. No draft is left.
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


def write_records(file: File, position: int, data: bytes | memoryview) -> None:
    """Write records so that a process killed meanwhile leaves none: the first 8 bytes last.

    Raises:
        OSError: The content of the file is unknown from now on.
    """
    data = memoryview(data)
    if len(data) > BLANK_BYTES:
        file.write(position + BLANK_BYTES, data[BLANK_BYTES:])
    file.write(position, data[:BLANK_BYTES])


def write_zeros(files: FileSystem, file: File, start: int, end: int, *, rests: bool = True) -> None:
    """Write zeros from `start` to `end` in a blocking thread, without a sync.

    Without `rests` the disk gets no pauses.

    Raises:
        OSError: A part of the range may be written.
    """
    for position in range(start, end, len(_ZEROS)):
        file.write(position, _ZEROS[: end - position])
        if rests:
            files.rest(_REST_S)


def set_length(files: FileSystem, path: Path, length: int) -> None:
    """Cut a file, or extend it by zeros, durably. A missing file is created."""
    with closing(files.open(path, create=True)) as file:
        file.resize(length)
        file.sync()
    files.sync_folder(path.parent)
