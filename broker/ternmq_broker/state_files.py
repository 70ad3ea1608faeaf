"""The broker's tables on disk: topics, groups and consumer offsets.

Files are replaced as `ternmq_runtime.durable_file` does it (new bytes synced beside, the previous
generation kept as `.bak`, the folder synced), but through the store's file system, so that a
simulated broker loses or keeps its tables with its messages.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from ternmq_broker.loose_json import parse_json, write_json
from ternmq_model.errors import StoreError
from ternmq_remoting.environment import Blocking
from ternmq_store.filesystem import FileSystem

T = TypeVar("T")

logger = logging.getLogger(__name__)

STATE_FILE_BYTES_MAX: Final = 1 << 30


def replace_file(files: FileSystem, path: Path, data: bytes) -> None:
    """Make `data` the content of `path`, durably; blocks. One writer at a time.

    Interrupted at any moment it leaves the new generation or the one before.

    Raises:
        OSError: The disk refused; what was there can still be read.
    """
    new = path.with_name(path.name + ".tmp")
    file = files.open(new, create=True)
    try:
        file.resize(0)
        file.write(0, data)
        file.sync()
    finally:
        file.close()
    if files.exists(path):
        files.rename(path, path.with_name(path.name + ".bak"))
    files.rename(new, path)
    files.sync_folder(path.parent)


def read_newest(files: FileSystem, path: Path, parse: Callable[[Mapping[str, Any]], T]) -> T | None:
    """Return what the newest readable generation of `path` parses to; None when there is none.

    Raises:
        StoreError: There is one, and neither it nor its `.bak` can be read: what it held is
            unknown, which is not the same as empty.
    """
    reasons: list[str] = []
    for candidate in (path, path.with_name(path.name + ".bak")):
        if not files.exists(candidate):
            continue
        try:
            value = parse(parse_json(_read(files, candidate).decode()))
        except (OSError, ValueError, LookupError, TypeError) as error:
            reasons.append(f"{candidate}: {type(error).__name__}: {error}")
            continue
        if candidate != path:
            reason = reasons[0] if reasons else f"{path} is not there"
            logger.warning("previous generation taken file=%s reason=%s", candidate, reason)
        return value
    if reasons:
        raise StoreError("unreadable state file: " + "; ".join(reasons))
    return None


def _read(files: FileSystem, path: Path) -> bytes:
    file = files.open(path)
    try:
        size = file.size()
        if size > STATE_FILE_BYTES_MAX:
            raise ValueError(f"{size} bytes are too many for a table")
        return file.read(0, size)
    finally:
        file.close()


class StateFile:
    """One table and the file that keeps it. Owned by the broker's loop; `step` is its one writer.

    Args:
        path: Its folder exists.
        files: Used in the blocking pool only.
        blocking: That pool.
        changes: Tells the table's present version; any value that differs after a change.
        to_dict: Returns the table in the file's shape.
        wake: Makes `step` run soon.
    """

    def __init__(
        self,
        path: Path,
        files: FileSystem,
        blocking: Blocking,
        *,
        changes: Callable[[], object],
        to_dict: Callable[[], Mapping[str, Any]],
        wake: Callable[[], None],
    ) -> None:
        self._path = path
        self._files = files
        self._blocking = blocking
        self._changes = changes
        self._to_dict = to_dict
        self._wake = wake
        self._saved: object = None
        self._waiting: list[asyncio.Future[None]] = []
        self._is_failing = False

    @property
    def is_saved(self) -> bool:
        """The file holds the table as it is now."""
        return self._saved == self._changes()

    def mark_saved(self) -> None:
        """Take note that the table is what the file holds."""
        self._saved = self._changes()

    def saved(self) -> asyncio.Future[None] | None:
        """Return None when the file holds the table as it is now, else what is done when it does.

        The future raises StoreError when the disk refuses: then the table is saved later. It may be
        awaited, cancelled or left alone.
        """
        if self.is_saved:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._wake()
        return future

    async def step(self) -> bool:
        """Save the table if it changed: a step of a job."""
        return await self.save() is None and bool(self._waiting)

    async def save(self) -> StoreError | None:
        """Save the table if it changed, and tell who waits; return why that is not possible."""
        waiting, self._waiting = self._waiting, []
        error: StoreError | None = None
        if not self.is_saved:
            error = await self._save()
        for future in waiting:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
                future.exception()  # one that nobody awaits any more is no bug
        return error

    async def _save(self) -> StoreError | None:
        saving = self._changes()
        data = write_json(self._to_dict()).encode()
        try:
            await self._blocking.run(replace_file, self._files, self._path, data)
        except OSError as error:
            if not self._is_failing:
                self._is_failing = True
                logger.error("table not saved file=%s error=%s", self._path, error)
            refused = StoreError(f"cannot save {self._path}: {error}")
            refused.may_have_happened = True  # the change itself counts, until a crash
            return refused
        self._saved = saving
        if self._is_failing:
            self._is_failing = False
            logger.info("table saved again file=%s", self._path)
        return None
