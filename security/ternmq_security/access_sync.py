"""Copies of the table of users and permissions from NameServers."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ternmq_model.address import Address
from ternmq_model.errors import PermissionRefused, TernError, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import nameserver_pb2 as pb
from ternmq_remoting.environment import Environment
from ternmq_remoting.service_methods import GET_ACCESS
from ternmq_runtime.service import Job
from ternmq_runtime.timers import Wait
from ternmq_security.access.access_table import access_table_from_json
from ternmq_security.access_store import AccessStore

if TYPE_CHECKING:
    from ternmq_remoting.rpc import Connection

HOLD_MS_MAX: Final = 30_000
"""Longest wait of a NameServer for another table, ms."""

_SPARE_S: Final = 5.0
_RETRY_PAUSE_S: Final = 1.0

logger = logging.getLogger(__name__)


class AccessSource:
    """One NameServer that is asked for its table. `step` alone uses the connection.

    Args:
        address: Address of the NameServer.
        env: Network.
        store: Store that takes newer tables.
        on_answer: Called after each answer or failure.

    Attributes:
        failure: Error of the last attempt; None after a success.
        has_answered: True when a table, also an empty one, was received.
        job: Job that asks.
    """

    def __init__(
        self,
        address: Address,
        env: Environment,
        store: AccessStore,
        on_answer: Callable[[], None],
    ) -> None:
        self.address = address
        self.failure: TernError | None = None
        self.has_answered = False
        self.job: Final = Job(
            name=f"users-from-{address}",
            interval_s=_RETRY_PAUSE_S,
            step=self.step,
            wait=Wait.HEARTBEAT,
        )
        self._env = env
        self._store = store
        self._on_answer = on_answer
        self._connection: Connection | None = None
        self._is_leaving = False

    @property
    def is_refused(self) -> bool:
        """True while the NameServer does not let this service read its table: users exist."""
        return isinstance(self.failure, PermissionRefused)

    async def step(self) -> bool:
        """Wait for a newer table than the present one, and take it: one step of a job."""
        if self._is_leaving:
            return False
        before, is_useful = self.failure, False
        try:
            is_useful = await self._ask()
        except TernError as error:
            self.failure = error
            await self._hang_up()
            if before is None and not self._is_leaving:
                logger.warning("users not received nameserver=%s error=%s", self.address, error)
        else:
            self.failure, self.has_answered = None, True
            if before is not None:
                logger.info("users received again nameserver=%s", self.address)
        self._on_answer()
        return is_useful

    async def _ask(self) -> bool:
        """Ask once; return False for a table that this service cannot use."""
        if self._connection is None:
            self._connection = await self._env.network.connect([self.address])
        known = self._store.table
        request = pb.GetAccessRequest(
            known_version=known.version,
            known_digest=known.digest,
            wait_ms=HOLD_MS_MAX if self.has_answered else 0,
        )
        timeout_s = request.wait_ms / 1000 + _SPARE_S
        reply = await self._connection.call(GET_ACCESS, request, timeout_s=timeout_s)
        if reply.table:
            try:
                table = access_table_from_json(reply.table)
            except ValueError as error:
                raise refusal(ResponseCode.SYSTEM_ERROR, str(error), str(self.address)) from error
            await self._store.take(table)
        return not reply.table or self._store.table is not known

    async def leave(self) -> None:
        """End asking: a step that waits returns. Safe to repeat."""
        self._is_leaving = True
        await self._hang_up()

    async def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
