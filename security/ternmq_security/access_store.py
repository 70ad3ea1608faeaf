"""The table of users and permissions, with the file that stores it."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ternmq_model.errors import StoreError, StoreFailed, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_runtime.blocking_pool import Blocking
from ternmq_runtime.durable_file import read_newest
from ternmq_runtime.table_store import TableStore, replace_in_both
from ternmq_security.access.access_table import AccessTable, Doubt, access_table_from_json
from ternmq_security.access.table_choice import replaces

FILE_NAME: Final = "access.json"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AccessFile:
    """File of the table. Its functions block."""

    path: Path
    read: Callable[[Path, Callable[[bytes], AccessTable]], AccessTable | None] = read_newest
    """Returns the newest valid generation; None = there is none."""

    replace: Callable[[Path, bytes], None] = replace_in_both
    """Replaces both generations durably."""


class AccessStore(TableStore[AccessTable]):
    """The users and permissions of one service.

    The caller of `load` holds the directory of the file.

    Args:
        file: File of the table; None = the table is in memory alone.
        blocking: Runs calls that wait for the disk.
        is_copy: True = the table is a copy of that of NameServers, and counts before it is on the
            disk: a denial must not wait for a full one. False = a table counts once it is on the
            disk.
        on_change: Called after each change of the table that counts.
    """

    def __init__(
        self,
        file: AccessFile | None,
        blocking: Blocking,
        *,
        is_copy: bool = False,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(
            None if file is None else file.path,
            blocking,
            AccessTable(),
            kind="users",
            undoes_refused=not is_copy,
            replace=replace_in_both if file is None else file.replace,
        )
        self._file = file
        self._is_copy = is_copy
        self._on_change = on_change
        self._changed = asyncio.Event()

    @property
    def table(self) -> AccessTable:
        """The table that counts."""
        return self._newest if self._is_copy else self._saved

    async def load(self, absent: AccessTable) -> None:
        """Load the file.

        Args:
            absent: Table where there is no file.

        Raises:
            StoreError: Neither the file nor its previous generation can be read. A copy asks for
                another table instead.
        """
        self._loaded(absent)
        if self._file is not None:
            try:
                found = await self._blocking.run(
                    self._file.read, self._file.path, access_table_from_json
                )
            except StoreError as error:
                if not self._is_copy:
                    raise
                logger.error("users not loaded, calls are refused meanwhile err=%s", error)
                found = AccessTable(doubt=Doubt.UNASKED)
            self._loaded(found or absent)
            logger.info("users loaded file=%s version=%s", self._path, self.table.version)
        self._note_change()

    async def put(self, table: AccessTable, *, expected_version: int) -> None:
        """Replace the table of the expected version by a newer one. Durable on return.

        Raises:
            RefusedError: ILLEGAL_OPERATION: another version is present; nothing changes.
            UsageError: The table may not replace the present one, for example because nobody could
                change it any more; nothing changes.
            StoreFailed: The disk refused; nothing changes, unless this NameServer ends before it
                has written the file again.
        """
        present = self._newest
        if present.version != expected_version:
            remark = f"version {present.version} of users and permissions is present"
            raise refusal(ResponseCode.ILLEGAL_OPERATION, remark)
        table.check_replacement_of(present)
        await self._change_to(table)
        logger.info("users changed version=%s", table.version)

    async def take(self, table: AccessTable) -> None:
        """Take the table of another service if it replaces the present one.

        Durable on return, but for a copy, which counts at once and is saved soon.

        Raises:
            StoreFailed: The disk refused.
        """
        present = self._newest
        if not replaces(table, present):
            saving = None if self._is_copy else self._saver.saved()
            if saving is not None:  # of the same table, perhaps
                await saving
            return
        logger.info(
            "users taken version=%s before=%s doubt=%s", table.version, present.version, table.doubt
        )
        if not self._is_copy:
            await self._change_to(table)
            return
        self._newest = table
        self._note_change()
        self.job.wake()

    async def changed(self) -> None:
        """Wait for the next change of the table that counts, or `wake`. Cancelling is safe."""
        await self._changed.wait()

    def wake(self) -> None:
        """End the waits of `changed`."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _ended(self, table: AccessTable, reason: OSError | None) -> StoreFailed | None:
        error = super()._ended(table, reason)
        if error is None and not self._is_copy:
            self._note_change()
        return error

    def _note_change(self) -> None:
        self.wake()
        self._on_change()
