"""State files that survive a power loss.

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
    """Replace the content of the state file at `path` by `data`. See `replace_generations`.

    Raises:
        OSError: The write failed. The generation before can still be read.
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
    """Open a file for writing. Only this user may read a new file.

    Args:
        path: Path of the file, which must not be a link.
        mode: Mode of `open`, binary.

    Raises:
        OSError: The file cannot be opened.
    """

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW, _PRIVATE_FILE)

    return cast("IO[bytes]", open(path, mode, opener=opener))


def make_directory_durably(path: Path) -> None:
    """Create the directory `path` and its missing parents, for this user only.

    When the call returns, the new directories survive a power loss. Existing ones are not changed.

    Raises:
        OSError: The disk refuses. Some directories may exist.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
        sync_directory(folder.parent)  # that is where its name stands


def sync_directory(path: Path) -> None:
    """Sync the directory `path`, so that its names survive a power loss.

    Raises:
        OSError: The sync failed.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_newest(path: Path, parse: Callable[[bytes], T]) -> T | None:
    """Return the parsed content of the newest valid generation of the file, for its writer.

    If the newest file is damaged, it is renamed to `<name>.bad`, so that it does not become the
    generation before, and the file is written again from the generation before. A failure of that
    write is logged.

    Args:
        path: Path given to `replace_durably`.
        parse: Function of the bytes. It raises ValueError, LookupError or TypeError for bytes of
            another form.

    Returns:
        Parsed content; None = neither the file nor its previous generation exists.

    Raises:
        StateUnreadable: A needed file exists and cannot be read.
        StateDamaged: The file and the generation before are damaged.
        OSError: The damaged file cannot be renamed.
    """
    generations = (path, previous_path(path))
    return newest_generation(Path.read_bytes, generations, parse, on_older=_restore)


def _restore(older: Path, reason: str) -> None:
    path = older.with_suffix("")
    logger.error("previous generation used file=%s reason=%s", older, reason)
    with suppress(FileNotFoundError):
        path.replace(path.with_name(f"{path.name}.bad"))
    try:
        replace_durably(path, older.read_bytes())
    except OSError as error:
        logger.error("file not rewritten file=%s err=%s", path, error)
