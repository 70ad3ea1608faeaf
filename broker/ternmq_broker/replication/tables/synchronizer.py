"""The synchronizer of a slave's tables, a job that requests changes from the master."""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from ternmq_broker.replication.tables.applier import TableApplier
from ternmq_broker.replication.tables.table_reader import TableReader, TableUpdate
from ternmq_broker.state.tables import Tables
from ternmq_model.errors import BrokerBusy, StoreError, TernError
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Connection
from ternmq_runtime.service import Job

logger = logging.getLogger(__name__)


_PAUSE_S: Final = 0.2
"""Pause between two requests. A request without changes waits `_WAIT_MS` at the master."""

_WAIT_MS: Final = 500


class TableSynchronizer:
    """Synchronizer of a slave's tables with the present master's. Owned by the broker's loop.

    Source: RocketMQ `SlaveSynchronize`.

    Args:
        connection: Returns the connection to the master, while the slave follows.
    """

    def __init__(
        self,
        env: Environment,
        tables: Tables,
        applier: TableApplier,
        *,
        connection: Callable[[], Connection | None],
    ) -> None:
        self._env = env
        self._tables = tables
        self._master_connection = connection
        self._applier = applier
        self._connection: Connection | None = None
        self._reader: TableReader | None = None
        self._revisions: dict[str, str] = {}
        self._is_leaving = False
        self._problem = ""
        self._rejected = ""
        self._followed_at_ms: int | None = None

    def jobs(self) -> Sequence[Job]:
        """Return the job; callers call `leave` before it ends."""
        return (Job(name="follow-metadata", interval_s=_PAUSE_S, step=self.step),)

    def age_ms(self) -> int:
        """Return the time since the tables last equalled the master's; -1 = never."""
        if self._followed_at_ms is None:
            return -1
        return self._env.clock.monotonic_ms() - self._followed_at_ms

    async def leave(self) -> None:
        """End the step that is under way, and begin no other."""
        self._is_leaving = True
        self._cancel_reader()

    async def step(self) -> bool:
        """Apply the tables that changed at the master. The step of a job."""
        connection = self._master_connection()
        if connection is None or self._is_leaving:
            self._cancel_reader()
            return False
        reader = self._reader
        if reader is None or connection is not self._connection:
            self._cancel_reader()
            for table in self._applier.forget_waiting():
                self._revisions.pop(table, None)
            self._connection = connection
            reader = self._reader = TableReader(connection, self._env.blocking)
        self._rejected = ""
        try:
            await reader.read_changed(self._revisions, self._take, wait_ms=_WAIT_MS)
            await self._applier.take_waiting()
        except TernError as error:
            self._note_problem(str(error))
            self._cancel_reader()
            return False
        if not self._rejected:
            self._followed_at_ms = self._env.clock.monotonic_ms()
            self._tables.offsets.is_awaited = False
        self._note_problem(self._rejected)
        return False

    async def _take(self, update: TableUpdate) -> None:
        try:
            await self._applier.take(update)
        except (StoreError, BrokerBusy) as error:
            # For example a full disk: the table is requested again, and the others are applied.
            self._rejected = f"its table {update.table!r} cannot be saved: {error}"
            return
        self._revisions[update.table] = update.revision

    def _cancel_reader(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None
        self._connection = None

    def _note_problem(self, problem: str) -> None:
        if problem == self._problem:
            return
        self._problem = problem
        if problem and self._master_connection() is not None and not self._is_leaving:
            logger.warning("tables differ from the master's reason=%s", problem)
