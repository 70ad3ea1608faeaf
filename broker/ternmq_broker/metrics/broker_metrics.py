"""Metrics of one term of a broker."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from ternmq_broker.environment import BrokerEnvironment
from ternmq_broker.groups.sessions import SessionManager
from ternmq_broker.metrics.connected import collect_connections, collect_role
from ternmq_broker.metrics.group_lag import LagMetrics
from ternmq_broker.metrics.store_metrics import StoreMetrics
from ternmq_broker.metrics.traffic import collect_traffic
from ternmq_broker.metrics.waiting import collect_scheduled, collect_transactions
from ternmq_broker.replication.role.membership import Membership
from ternmq_broker.scheduled.assembly import ScheduledAssembly
from ternmq_broker.transactions.assembly import Transactions
from ternmq_model.errors import RefusedError
from ternmq_runtime.metrics.port import Scrape
from ternmq_runtime.metrics.scrape import LabelValues

logger = logging.getLogger(__name__)


class BrokerMetrics:
    """Metrics of all parts of one term. Owned by `BrokerAssembly`.

    Args:
        env: Settings, store and tables of the term.
        member: Membership of the broker in its name.
        sessions: Sessions of the clients.
        scheduled: Delayed and timed messages; None at a slave.
        transactions: Transactions; None at a slave.
        behind: Returns the id of each slave, and the bytes of the log that it lacks.
    """

    def __init__(
        self,
        env: BrokerEnvironment,
        member: Membership,
        sessions: SessionManager,
        *,
        scheduled: ScheduledAssembly | None,
        transactions: Transactions | None,
        behind: Callable[[], Iterable[tuple[int, int]]],
    ) -> None:
        self._env = env
        self._member = member
        self._sessions = sessions
        self._scheduled = scheduled
        self._transactions = transactions
        self._behind = behind
        self._lags = LagMetrics(env)
        self._store = StoreMetrics(env)

    async def collect(self, scrape: Scrape, node: LabelValues) -> None:
        """Add the series of all parts. Those that need a disk that cannot be read are missing."""
        env = self._env
        collect_role(scrape, node, env, self._member, behind=self._behind())
        await collect_traffic(scrape, node, env)
        await collect_connections(scrape, node, self._sessions.table.unsorted())
        if self._transactions is not None:
            await collect_transactions(scrape, node, self._transactions)
        reading: list[Callable[[Scrape, LabelValues], Awaitable[None]]] = [
            self._store.collect,
            self._lags.collect,
        ]
        if self._scheduled is not None:
            reading.append(partial(collect_scheduled, env=env, scheduled=self._scheduled))
        for each in reading:
            try:
                await each(scrape, node)
            except RefusedError as error:
                logger.warning("metrics incomplete err=%s", error)
