"""Assembly of scheduled messages: delay levels and timer of an open store."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from ternmq_broker.environment import BrokerEnvironment
from ternmq_broker.scheduled.delay_levels import DelayLevels
from ternmq_broker.scheduled.delivery import Deliverer
from ternmq_broker.scheduled.delivery_recovery import delivered_sources
from ternmq_broker.scheduled.timed_messages import TimedMessages
from ternmq_broker.steady_clock import DOUBT_MS
from ternmq_broker.storage.internal_append import InternalWriter
from ternmq_broker.storage.real_topics import RealTopics
from ternmq_broker.storage.system_topic_routing import RoutingRules
from ternmq_model.delay import DELAY_LEVEL_MAX
from ternmq_model.errors import StoreError
from ternmq_model.offsets import PhysicalOffset
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_runtime.service import Job
from ternmq_store.dispatch.log_dispatcher import Arrival

logger = logging.getLogger(__name__)


class ScheduledAssembly:
    """Delayed and timed messages of one broker. Owned by `BrokerAssembly`.

    Args:
        env: Settings, store and tables of the term.
        writer: Writer of internal records.
        topics: Real topics of waiting messages.
    """

    def __init__(self, env: BrokerEnvironment, writer: InternalWriter, topics: RealTopics) -> None:
        self._env = env
        self._deliverer = deliverer = Deliverer(writer, topics.find)
        self._timer_enabled = env.live.broker.timer_enabled
        self.delays = DelayLevels(env, deliverer)
        self.timer = TimedMessages(env, deliverer)
        env.store.cleaner.holders += (self.delays.needed_from, self.timer.needed_from)

    async def begin(self) -> None:
        """Find deliveries that were made but not saved; to be called before the jobs begin.

        A refusal of the disk is logged: then a crash repeats deliveries.
        """
        await self._begin_moving()
        source = self._env.store.reads.source
        offsets = [
            self.delays.search_from(),
            self.timer.search_from() if self._timer_enabled else None,
        ]
        begin = min((each for each in offsets if each is not None), default=None)
        found: Mapping[int, PhysicalOffset] = {}
        try:
            if begin is not None:
                found = await self._env.blocking.run(delivered_sources, source(), begin)
                logger.info("deliveries searched from=%d found=%d", begin, len(found))
            self.delays.begin(found)
            await self.timer.begin(found if self._timer_enabled else {})
            if (error := await self._env.tables.delays_file.save()) is not None:
                raise error
        except (OSError, StoreError) as error:
            logger.warning("messages may be delivered twice after a crash err=%s", error)

    async def _begin_moving(self) -> None:
        """Resume the rescheduling of timed messages, after the steps of the clock are noted."""
        session = self._env.store.session
        self.timer.resume_moves()
        newest_ms = max(self._env.store.last_stored_at_ms, self._env.tables.timer.read_ms)
        if newest_ms > self._env.clock.wall_ms() + DOUBT_MS:
            self.timer.stepped(None)
        try:
            if session.clock != session.notes.clock:
                await self._env.blocking.run(session.note_clock)
        except OSError as error:
            # The broker serves on a full disk, too. A later checkpoint notes the moves.
            logger.warning("moves of the clock not recorded err=%s", error)

    def rules(self) -> RoutingRules:
        """Return the present routing rules for records of clients."""
        return RoutingRules(
            now_ms=self._env.clock.wall_ms(),
            timer_enabled=self._timer_enabled,
            timer_is_full=self.timer.is_full,
        )

    def describe(self) -> admin.WaitingMessages:
        """Return counts of waiting and delivered messages, for operators."""
        delays, timer = self.delays, self.timer
        return admin.WaitingMessages(
            delayed=sum(delays.waiting(level) for level in range(1, DELAY_LEVEL_MAX + 1)),
            timed=timer.waiting,
            timed_unread=timer.behind,
            delivered=self._deliverer.delivered,
            dropped=self._deliverer.dropped,
            cancelled=timer.cancelled,
            rolled=timer.rolled,
            late_p50_ms=timer.delivery_delay.at_most_ms(0.5),
            late_p99_ms=timer.delivery_delay.at_most_ms(0.99),
            late_max_ms=timer.delivery_delay.worst_ms,
        )

    def jobs(self) -> Sequence[Job]:
        """Return the delivery jobs, which begin when the broker listens."""
        jobs = (self.delays.job, self.timer.job)
        return jobs if self._timer_enabled else jobs[:1]

    def stepped(self, by_ms: int) -> None:
        """Record a step of the clock by `by_ms`: ahead, or back."""
        self.delays.stepped(by_ms)
        if self._timer_enabled:
            self.timer.stepped(by_ms)

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Wake the delivery jobs for new messages."""
        self.delays.arrived(arrivals)
        self.timer.arrived(arrivals)

    async def settle(self, flush_to: Callable[[PhysicalOffset], Awaitable[None]]) -> None:
        """Copy the progress of the jobs, which have ended, into the tables.

        Args:
            flush_to: Brings the log to the disk up to an offset, if it can.

        Raises:
            StoreError: The disk refused; the saved progress holds.
        """
        self.delays.stop()
        await flush_to(self.delays.unsettled_end)
        self.delays.settle()
        await self.timer.settle(flush_to)
