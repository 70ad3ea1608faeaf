"""The table of users and permissions, with the file that stores it."""

import asyncio
import logging
from pathlib import Path
from typing import Final

from ternmq_model.errors import StoreFailed, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_nameserver.table_store import TableStore
from ternmq_remoting.environment import Blocking
from ternmq_runtime.durable_file import read_newest
from ternmq_security.access.access_table import AccessTable, access_table_from_json, is_newer

FILE_NAME: Final = "access.json"

logger = logging.getLogger(__name__)


class AccessStore(TableStore[AccessTable]):
    """The users and permissions of one NameServer.

    A table counts when it is on the disk. The caller of `load` holds the directory of the file.
    """

    def __init__(self, path: Path | None, blocking: Blocking) -> None:
        super().__init__(path, blocking, AccessTable(), kind="users", undoes_refused=True)
        self._changed = asyncio.Event()

    async def load(self) -> None:
        """Load the file, if there is one.

        Raises:
            StoreError: Neither the file nor its previous generation can be read.
        """
        if self._path is not None:
            found = await self._blocking.run(read_newest, self._path, access_table_from_json)
            self._loaded(found or AccessTable())
            logger.info("users loaded file=%s version=%s", self._path, self.table.version)

    async def put(self, table: AccessTable, *, expected_version: int) -> None:
        """Replace the table of the expected version by a newer one. Durable on return.

        Raises:
            RefusedError: ILLEGAL_OPERATION: another version is present; nothing changes.
            UsageError: Nobody could change the table any more; nothing changes.
            StoreFailed: The disk refused; nothing changes, unless this NameServer ends before it
                has written the file again.
        """
        present = self._newest
        if present.version != expected_version or table.version <= expected_version:
            remark = f"version {present.version} of users and permissions is present"
            raise refusal(ResponseCode.ILLEGAL_OPERATION, remark)
        table.check_replacement_of(present)
        await self._change_to(table)
        logger.info("users changed version=%s", table.version)

    async def take(self, table: AccessTable) -> None:
        """Take the table of a peer if it is newer. Durable on return.

        Raises:
            StoreFailed: The disk refused.
        """
        if is_newer(table, self._newest):
            await self._change_to(table)
            logger.info("users taken from a peer version=%s", table.version)

    async def changed(self) -> None:
        """Wait until another table is on the disk. Cancelling changes nothing."""
        await self._changed.wait()

    def _ended(self, table: AccessTable, reason: OSError | None) -> StoreFailed | None:
        error = super()._ended(table, reason)
        if error is None:
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
        return error
