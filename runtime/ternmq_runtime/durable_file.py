"""State files of the operating system that survive a loss of power.

Every function blocks: call them through the blocking pool.

Source:
    RocketMQ `MixAll.string2File` and `ConfigManager.load`, which do not sync.
"""

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, TypeVar, cast

from ternmq_model.file_generations import (
    draft_path,
    newest_generation,
    previous_path,
    replace_generations,
)

T = TypeVar("T")

logger = logging.getLogger(__name__)


_PRIVATE_FILE: Final = 0o600
_PRIVATE_FOLDER: Final = 0o700


def replace_durably(path: Path, data: bytes, *, in_both: bool = False) -> None:
    """Make `data` the content of the state file at `path`, as `replace_generations` does.

    Raises:
        OSError: The disk refused. The generation before can still be read.
    """

    def write(draft: Path) -> None:
        with open_private(draft, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    try:
        replace_generations(_Folder(), write, path, in_both=in_both)
    except OSError:
        with suppress(OSError):
            draft_path(path).unlink(missing_ok=True)
        raise


class _Folder:
    def exists(self, path: Path) -> bool:
        return path.exists()

    def rename(self, old: Path, new: Path) -> None:
        old.replace(new)

    def sync_folder(self, folder: Path) -> None:
        sync_directory(folder)


def open_private(path: Path, mode: str) -> IO[bytes]:
    """Open a file to write; a new one is for this user alone.

    Args:
        path: The file, which is no link.
        mode: As of `open`, in bytes.

    Raises:
        OSError: It cannot be opened.
    """

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW, _PRIVATE_FILE)

    return cast("IO[bytes]", open(path, mode, opener=opener))


def make_directory_durably(path: Path) -> None:
    """Make the directory `path`, and those above it that are missing, for this user alone.

    When this returns, those it made are there even after a loss of power. Those that were there
    are left as they are.

    Raises:
        OSError: The disk refused. Some of them may be there.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
        sync_directory(folder.parent)  # that is where its name stands


def sync_directory(path: Path) -> None:
    """Make the names in the directory `path` survive a loss of power.

    Raises:
        OSError: The disk refused.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_newest(path: Path, parse: Callable[[bytes], T]) -> T | None:
    """Return what the newest right generation of the file at `path` parses to, for its writer.

    Where that is the generation before, a file that is not right is renamed to `<name>.bad`: it
    must not become the generation before. Then the file is written anew; a disk that refuses that
    is logged.

    Args:
        path: As given to `replace_durably`.
        parse: Raises ValueError, LookupError or TypeError for bytes that are not such a file.

    Returns:
        None when neither the file nor its previous generation is there.

    Raises:
        StateUnreadable: One that is needed is there and cannot be read.
        StateDamaged: What is there is damaged, both the file and the generation before.
        OSError: The disk refuses to rename a file that is not right.
    """
    generations = (path, previous_path(path))
    return newest_generation(Path.read_bytes, generations, parse, on_older=_restore)


def _restore(older: Path, reason: str) -> None:
    path = older.with_suffix("")
    logger.error("previous generation taken file=%s reason=%s", older, reason)
    with suppress(FileNotFoundError):
        path.replace(path.with_name(f"{path.name}.bad"))
    try:
        replace_durably(path, older.read_bytes())
    except OSError as error:
        logger.error("file not written anew file=%s error=%s", path, error)
