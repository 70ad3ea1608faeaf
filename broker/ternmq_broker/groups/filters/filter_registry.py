"""Registry of the filters of groups, with those of groups that left within the last day.

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
    """Conditions of the groups' members. The only writer of the `FilterTable`.

    Args:
        log_end: Returns the end of the log. Offsets show the messages that are older than a
            condition; times do not, because a clock may have been set back.
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
        """Register the conditions of `group` after its members or their subscriptions changed."""
        known = self._clients.subscriptions(group).values()
        conditions = [subscription for subscription in known if subscription.condition is not None]
        now_ms = self._clock.wall_ms()
        self._table.register(group, conditions, now_ms=now_ms, log_end=self._log_end())

    def job(self) -> Job:
        """Return the job that removes unused conditions."""
        return Job(name="filters-clean", interval_s=_CLEAN_PAUSE_S, step=self.clean)

    async def clean(self) -> bool:
        """Remove conditions that were not used for a day. The step of a job."""
        for one in self._table.clean(now_ms=self._clock.wall_ms()):
            logger.info("filter forgotten group=%s topic=%s", one.group, one.topic)
        return False
