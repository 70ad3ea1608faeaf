"""Copies of the table of users and permissions from NameServers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from ternmq_model.address import Address
from ternmq_model.errors import ClosedError, RefusedError, StoreFailed, TernError, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import nameserver_pb2 as pb
from ternmq_remoting.environment import Environment
from ternmq_remoting.service_methods import GET_ACCESS
from ternmq_runtime.service import Job
from ternmq_runtime.timers import Wait
from ternmq_security.access.access_table import (
    AccessTable,
    Doubt,
    access_table_from_json,
)
from ternmq_security.access.table_choice import is_newer
from ternmq_security.access_store import AccessStore

if TYPE_CHECKING:
    from ternmq_remoting.rpc import Connection

HOLD_MS_MAX: Final = 30_000
"""Longest wait of a NameServer for another table, ms."""

_SPARE_S: Final = 5.0
_RETRY_PAUSE_S: Final = 1.0
_FOREIGN_PAUSE_S: Final = 30.0
"""Pause after a table that is never taken, and may have 3 MiB."""

logger = logging.getLogger(__name__)


class AccessSource:
    """One NameServer that is asked for its table. `step` alone uses the connection.

    Args:
        address: Address of the NameServer.
        env: Network.
        store: The present table.
        take: Takes the table of the NameServer, or the doubt in its place.

    Attributes:
        problem: Reason for which the present table may be out of date; empty = there is none.
        job: Job that asks.
    """

    def __init__(
        self,
        address: Address,
        env: Environment,
        store: AccessStore,
        take: Callable[["AccessSource", AccessTable | None], Awaitable[None]],
    ) -> None:
        self.problem = ""
        self.job: Final = Job(
            name=f"users-from-{address}",
            interval_s=lambda: self._pause_s,
            step=self.step,
            wait=Wait.HEARTBEAT,
        )
        self._address = address
        self._env = env
        self._store = store
        self._take = take
        self._connection: Connection | None = None
        self._has_answered = False
        self._is_older = False
        self._pause_s = _RETRY_PAUSE_S
        self._is_leaving = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def step(self) -> bool:
        """Wait for a newer table than the present one, and take it: one step of a job."""
        if self._is_leaving:
            return False
        self._idle.clear()
        try:
            return await self._renew()
        finally:
            self._idle.set()

    async def _renew(self) -> bool:
        before, self._pause_s = self.problem, _RETRY_PAUSE_S
        try:
            self.problem = await self._ask()
        except StoreFailed as error:
            self.problem = f"those of NameServer {self._address} are not kept: {error}"
        except TernError as error:
            self.problem = f"NameServer {self._address} gives none: {error}"
            await self._hang_up()
            await self._take(self, None)
        if self.problem and not before and not self._is_leaving:
            level = logging.WARNING if self._store.table.users else logging.INFO
            logger.log(level, "users may be out of date reason=%s", self.problem)
        elif before and not self.problem:
            logger.info("users received again nameserver=%s", self._address)
        return not self.problem and self._store.table.doubt is Doubt.NONE

    async def _ask(self) -> str:
        """Ask once; return the reason for which the NameServer's table is not taken, if any."""
        if self._connection is None:
            connection = await self._env.network.connect([self._address])
            if self._is_leaving:
                await connection.close()
                raise ClosedError(f"{self._address}: the service is leaving")
            self._connection = connection
        known = self._store.table
        # An older table with users replaces one without.
        is_any_wanted = known.doubt is not Doubt.NONE or (self._is_older and not known.users)
        waits = self._has_answered and not self.problem and known.doubt is Doubt.NONE
        request = pb.GetAccessRequest(
            known_version=0 if is_any_wanted else known.version,
            known_digest=b"" if is_any_wanted else known.digest,
            wait_ms=HOLD_MS_MAX if waits else 0,
        )
        timeout_s = request.wait_ms / 1000 + _SPARE_S
        try:
            reply = await self._connection.call(GET_ACCESS, request, timeout_s=timeout_s)
        except RefusedError as error:
            doubt = _DOUBTS.get(error.code)
            if doubt is None:
                raise
            await self._take(self, AccessTable(doubt=doubt))
            return f"NameServer {self._address} gives none: {error}"
        self._has_answered, self._is_older = True, reply.version < known.version
        older = f"NameServer {self._address} has version {reply.version}" if self._is_older else ""
        if not reply.table:
            await self._take(self, known)
            return older
        try:
            table = access_table_from_json(reply.table)
        except ValueError as error:
            raise refusal(ResponseCode.SYSTEM_ERROR, str(error), str(self._address)) from error
        await self._take(self, table)
        present = self._store.table
        if present.doubt is not Doubt.NONE or present.digest == table.digest:
            return ""
        is_foreign = bool(table.users) and table.origin != present.origin
        if not is_foreign and not is_newer(table, present):
            return older
        self._pause_s = _FOREIGN_PAUSE_S
        what = "users of another origin" if is_foreign else "a newer table without users"
        return f"NameServer {self._address} has {what}"

    async def leave(self) -> None:
        """End asking, and wait until a table that was received is taken. Safe to repeat."""
        self._is_leaving = True
        await self._hang_up()
        await self._idle.wait()

    async def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


_DOUBTS: Final[Mapping[int, Doubt]] = {
    ResponseCode.NO_PERMISSION: Doubt.REFUSED,
    ResponseCode.SERVICE_NOT_AVAILABLE: Doubt.UNASKED,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Doubt.NONE,  # an older NameServer knows no users
}
"""Meaning of a refusal, by its code."""
