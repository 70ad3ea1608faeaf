"""The synchronizer of a slave's tables: a job that asks the master again and again for changes."""

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
"""Between two rounds; one that finds no change lasts half a second itself."""

_WAIT_MS: Final = 500


class TableSynchronizer:
    """Synchronizer of a slave's tables with the present master's. Owned by the broker's loop.

    Source: RocketMQ `SlaveSynchronize`.

    Args:
        env: Clock and blocking calls.
        tables: Tables of the slave.
        applier: Applier of changes to the tables.
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
        self._not_taken = ""
        self._followed_at_ms: int | None = None

    def jobs(self) -> Sequence[Job]:
        """Return the job; `leave` before it is left."""
        return (Job(name="follow-metadata", interval_s=_PAUSE_S, step=self.step),)

    def age_ms(self) -> int:
        """Return how long ago the tables were last those of the master; -1 = never."""
        if self._followed_at_ms is None:
            return -1
        return self._env.clock.monotonic_ms() - self._followed_at_ms

    async def leave(self) -> None:
        """End the step that is under way, and begin no other."""
        self._is_leaving = True
        self._let_go()

    async def step(self) -> bool:
        """Apply the tables that changed at the master: the step of a job."""
        connection = self._master_connection()
        if connection is None or self._is_leaving:
            self._let_go()
            return False
        reader = self._reader
        if reader is None or connection is not self._connection:
            self._let_go()
            for table in self._applier.forget_waiting():
                self._revisions.pop(table, None)
            self._connection = connection
            reader = self._reader = TableReader(connection, self._env.blocking)
        self._not_taken = ""
        try:
            await reader.read_changed(self._revisions, self._take, wait_ms=_WAIT_MS)
            await self._applier.take_waiting()
        except TernError as error:
            self._note(str(error))
            self._let_go()
            return False
        if not self._not_taken:
            self._followed_at_ms = self._env.clock.monotonic_ms()
            self._tables.offsets.is_awaited = False
        self._note(self._not_taken)
        return False

    async def _take(self, told: TableUpdate) -> None:
        try:
            await self._applier.take(told)
        except (StoreError, BrokerBusy) as error:
            # A full disk, say: the table is requested again, and the others are applied.
            self._not_taken = f"its table {told.table!r} cannot be kept: {error}"
            return
        self._revisions[told.table] = told.revision

    def _let_go(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None
        self._connection = None

    def _note(self, problem: str) -> None:
        if problem == self._problem:
            return
        self._problem = problem
        if problem and self._master_connection() is not None and not self._is_leaving:
            logger.warning("tables not those of the master reason=%s", problem)
