"""The files that keep the broker's tables: each is replaced when its table has changed."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ternmq_broker.loose_json import write_json
from ternmq_model.errors import StoreError
from ternmq_model.json_checksum import add_checksum
from ternmq_remoting.environment import Blocking
from ternmq_runtime.whole_calls import run_whole
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.state_file import replace_file

logger = logging.getLogger(__name__)


class StateFile:
    """One table and the file that keeps it. Owned by the broker's loop; `step` is its one writer.

    What somebody waited for is in both generations of the file, so that either can be taken.

    Args:
        path: Its folder exists.
        files: Used in the blocking pool only.
        blocking: That pool.
        changes: Tells the table's present version; any value that differs after a change.
        to_dict: Returns the table in the file's shape.
        wake: Makes `step` run soon.
        on_saved: Called with what `changes` told of the table that the file has come to hold.
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
        on_saved: Callable[[Any], None] = lambda _changes: None,
    ) -> None:
        self._path = path
        self._files = files
        self._blocking = blocking
        self._changes = changes
        self._to_dict = to_dict
        self._wake = wake
        self._on_saved = on_saved
        self._saved: object = None
        self._waiting: list[asyncio.Future[None]] = []
        self._is_failing = False

    @property
    def name(self) -> str:
        """The file's."""
        return self._path.name

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
            error = await self._save(in_both=bool(waiting))
        for future in waiting:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
                future.exception()  # one that nobody awaits any more is no bug
        return error

    async def _save(self, *, in_both: bool) -> StoreError | None:
        saving = self._changes()
        data = add_checksum(write_json(self._to_dict()))
        outcome: list[OSError | None] = []
        write = partial(replace_file, self._files, self._path, data, in_both=in_both)
        await run_whole(self._blocking.run, write, outcome.append)
        for error in filter(None, outcome):
            if not self._is_failing:
                self._is_failing = True
                logger.error("table not saved file=%s error=%s", self._path, error)
            refused = StoreError(f"cannot save {self._path}: {error}")
            refused.may_have_happened = True  # the change itself counts, until a crash
            return refused
        self._saved = saving
        self._on_saved(saving)
        if self._is_failing:
            self._is_failing = False
            logger.info("table saved again file=%s", self._path)
        return None
