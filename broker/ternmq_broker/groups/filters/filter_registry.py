"""Registry of the filters of groups: kept as clients tell it, and for a day after they left.

Source: RocketMQ `ConsumerFilterManager`, `ConsumerManager.registerConsumer`.
"""

import logging
from collections.abc import Callable
from typing import Final

from ternmq_broker.state.clients import ClientTable
from ternmq_broker.state.filters import FilterTable
from ternmq_model.clock import Clock
from ternmq_model.offsets import PhysicalOffset
from ternmq_runtime.service import Job

logger = logging.getLogger(__name__)

_CLEAN_PAUSE_S: Final = 60.0


class FilterRegistry:
    """Follows the groups' members. The one who changes the `FilterTable`.

    Args:
        table: What groups filter by.
        clients: Their members.
        clock: For when that changed.
        log_end: Returns what lies behind every message. Times do not tell which messages are older
            than what filters them: a clock may have been set back.
    """

    def __init__(
        self,
        table: FilterTable,
        clients: ClientTable,
        clock: Clock,
        *,
        log_end: Callable[[], PhysicalOffset],
    ) -> None:
        self._table = table
        self._clients = clients
        self._clock = clock
        self._log_end = log_end

    def group_changed(self, group: str) -> None:
        """Take note that members of `group` came, went, or told their subscriptions again."""
        known = self._clients.subscriptions(group).values()
        wanted = [subscription for subscription in known if subscription.condition is not None]
        now_ms = self._clock.wall_ms()
        self._table.register(group, wanted, now_ms=now_ms, log_end=self._log_end())

    def job(self) -> Job:
        """Return what forgets conditions that nobody uses any more."""
        return Job(name="filters-clean", interval_s=_CLEAN_PAUSE_S, step=self.clean)

    async def clean(self) -> bool:
        """Forget conditions that nobody has used for a day: one step of a job."""
        for one in self._table.clean(now_ms=self._clock.wall_ms()):
            logger.info("filter forgotten group=%s topic=%s", one.group, one.topic)
        return False
