"""The broker's tables on disk: read once, and saved when they changed."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ternmq_broker.loose_json import parse_json, write_json
from ternmq_model.errors import StoreError
from ternmq_remoting.environment import Blocking
from ternmq_runtime.whole_calls import run_whole
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.state_file import read_generations, replace_file

T = TypeVar("T")

logger = logging.getLogger(__name__)


def read_table(files: FileSystem, path: Path, parse: Callable[[Mapping[str, Any]], T]) -> T | None:
    """Return the table that the newest readable generation of `path` holds; None without a file.

    Raises:
        StoreError: There is one, and no generation of it can be read.
    """
    return read_generations(files, path, lambda data: parse(parse_json(data.decode())))


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
        outcome: list[OSError | None] = []
        await run_whole(
            self._blocking.run, partial(replace_file, self._files, self._path, data), outcome.append
        )
        for error in filter(None, outcome):
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
