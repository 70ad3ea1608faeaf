"""Small state files that are replaced as a whole and survive a loss of power.

Beside `topics.json` lie `topics.json.bak`, the generation before, and while a new one is written
`topics.json.tmp`. Every function blocks: call them through the blocking pool.

Source:
    RocketMQ `MixAll.string2File` and `ConfigManager.load`, which do not sync.
"""

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ternmq_model.errors import StoreError

T = TypeVar("T")

logger = logging.getLogger(__name__)


def replace_durably(path: Path, data: bytes, *, in_both: bool = False) -> None:
    """Make `data` the content of the file at `path`; the generation before is `<name>.bak`.

    When this returns, a reader finds `data` even after a loss of power; when it is interrupted at
    any moment, `read_newest` finds either `data` or what was there before. One writer at a time.

    Args:
        path: In a directory that exists.
        data: All of the file.
        in_both: Make it the generation before as well, so that either can be taken.

    Raises:
        OSError: The disk refused. What was there before can still be read.
    """
    for _ in range(1 + in_both):
        _replace(path, data)


def _replace(path: Path, data: bytes) -> None:
    new = _beside(path, ".tmp")
    try:
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # Between the two renames there is no main file; a reader takes the previous one.
        with suppress(FileNotFoundError):
            path.replace(_beside(path, ".bak"))
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def make_directory_durably(path: Path) -> None:
    """Make the directory `path`, and those above it that are missing.

    When this returns, those it made are there even after a loss of power. Those that were there
    are left as they are.

    Raises:
        OSError: The disk refused. Some of them may be there.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
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
    """Return what the newest readable generation of the file at `path` parses to.

    Args:
        path: As given to `replace_durably`.
        parse: Raises ValueError, LookupError or TypeError for bytes that are not such a file.

    Returns:
        None when neither the file nor its previous generation is there.

    Raises:
        StoreError: What is there cannot be read, neither the file nor the generation before.
    """
    reasons: list[str] = []
    for candidate in (path, _beside(path, ".bak")):
        try:
            value = parse(candidate.read_bytes())
        except FileNotFoundError:
            continue
        except (OSError, ValueError, LookupError, TypeError) as error:
            reasons.append(f"{candidate}: {type(error).__name__}: {error}")
            continue
        if candidate != path:
            reason = reasons[0] if reasons else f"{path}: not there"
            logger.error("previous generation taken file=%s reason=%s", candidate, reason)
        return value
    if reasons:
        raise StoreError("unreadable state file: " + "; ".join(reasons))
    return None


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
