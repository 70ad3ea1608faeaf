"""Membership of a pull consumer in its group: it joins, shares queues, and leaves."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from ternmq_client.instance import ClientInstance
from ternmq_consumer.config import PullConsumerConfig
from ternmq_consumer.offsets.remote_offset_store import reset_queries
from ternmq_consumer.pull.pull_assignment import PullAssignment, PullContext, RebalanceCallbacks
from ternmq_consumer.pull.pull_queues import PullQueues
from ternmq_consumer.rebalance.allocation.strategy_names import strategy_of
from ternmq_consumer.rebalance.rebalancer import RETRY_S, Rebalancer
from ternmq_consumer.subscriptions import subscription_message
from ternmq_model.errors import RefusedError, UsageError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.subscription import Subscription
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_runtime.lifecycle import Lifecycle
from ternmq_runtime.service import Job, JobRunner
from ternmq_runtime.timers import Wait

if TYPE_CHECKING:
    from ternmq_runtime.timers import TimerHandle

logger = logging.getLogger(__name__)


class PullMembership(Lifecycle):
    """The membership of one pull consumer, which owns it; it is open as long as the consumer.

    Args:
        queues: The consumer's; changed here while it is subscribed.
        on_failure: Called with what a callback raised.
        on_refused: Called at times while no queue of a subscribed topic may be read.
    """

    def __init__(
        self,
        client: ClientInstance,
        queues: PullQueues,
        context: PullContext,
        group: str,
        config: PullConsumerConfig,
        on_failure: Callable[[Exception], None],
        on_refused: Callable[[RefusedError], None],
    ) -> None:
        self._client = client
        self._queues = queues
        self._context = context
        self._group = group
        self._config = config
        self._on_failure = on_failure
        self._on_refused = on_refused
        self._rebalancing = Job(
            name="rebalance", interval_s=config.rebalance_s, step=self._rebalance
        )
        self._assignment: PullAssignment | None = None
        self._rebalancer: Rebalancer | None = None
        self._retry: TimerHandle | None = None
        self._first_share = asyncio.Event()
        self._changing = asyncio.Lock()
        """Queues come and go in one place at a time."""

    async def _open(self, stack: AsyncExitStack) -> None:
        client = self._client
        client.routes.add_listener(lambda _topic: self._rebalancing.wake(), of_told=True)
        client.sessions.on_command("welcome", reset_queries(client.tasks, self._context.offsets))
        await stack.enter_async_context(JobRunner(self._rebalancing, timers=client.env.timers))

    @property
    def is_subscribed(self) -> bool:
        """The consumer is a member, or becomes one just now."""
        return self._assignment is not None

    async def subscribe(
        self, subscriptions: Mapping[str, Subscription], callbacks: RebalanceCallbacks
    ) -> None:
        """Join the group and take its share. Not while it is subscribed.

        Raises:
            RefusedError: A broker refuses this client; it is not subscribed.
            Unreachable: No NameServer answers; it is not subscribed.
        """
        client, config = self._client, self._config
        now_ms = client.env.clock.wall_ms()
        by_topic = {
            topic: replace(subscription, version_ms=now_ms)
            for topic, subscription in subscriptions.items()
        }
        self._assignment = assignment = PullAssignment(
            self._context,
            self._queues,
            callbacks,
            commits_settled=config.auto_commit,
            on_failure=self._on_failure,
        )
        self._first_share.clear()
        rebalancer = Rebalancer(
            client,
            client.routes,
            assignment,
            group=self._group,
            client_id=client.client_id,
            subscriptions=by_topic,
            allocate=strategy_of(config.allocate),
            timeout_s=client.config.request_timeout_s,
            take_over_wait_s=config.take_over_wait_s,
            timers=client.env.timers,
            wall_ms=client.env.clock.wall_ms,
            on_settled=self._first_share.set,
            retry_soon=self._rebalance_soon,
            on_refused=self._on_refused,
        )
        try:
            await client.join_group(self._group_message(by_topic), self._rebalancing.wake)
        except BaseException:
            self._assignment = None
            client.leave_group(self._group)
            raise
        self._rebalancer = rebalancer
        self._rebalancing.wake()

    async def unsubscribe(self) -> None:
        """Drop every queue and leave the group. Safe to repeat."""
        assignment, self._rebalancer = self._assignment, None
        if assignment is None:
            return
        async with self._changing:
            await assignment.drop(assignment.queues)
        self._client.leave_group(self._group)
        self._assignment = None

    async def leave(self, wait_s: float) -> None:
        """Unsubscribe within `wait_s`, and log a step that takes longer."""
        assignment = self._assignment
        try:
            async with asyncio.timeout(wait_s):
                await self.unsubscribe()
        except TimeoutError:
            if assignment is not None and assignment.is_calling:
                logger.warning("callback outlives its consumer group=%s", self._group)
            else:
                logger.warning("brokers do not answer a consumer that leaves group=%s", self._group)

    async def assigned(self) -> None:
        """Wait for the first share.

        Raises:
            UsageError: The consumer is not subscribed.
        """
        if self._assignment is None:
            raise UsageError("the consumer is not subscribed to any topic")
        await self._first_share.wait()

    def take_reset(self, queue: MessageQueue, offset: QueueOffset, version: int) -> None:
        """Apply a reset of the group's offset of a queue that is not owned yet."""
        if self._assignment is not None:
            self._assignment.take_reset(queue, offset, version)

    def lose(self, queue: MessageQueue) -> None:
        """Own `queue` no more, which is gone; look soon whether there is another one."""
        self._queues.remove(queue)
        if self._assignment is not None:
            self._client.tasks.spawn(self._assignment.tell_lost(queue), f"tell of {queue}")
        self._rebalance_soon()

    async def _rebalance(self) -> bool:
        async with self._changing:
            return False if self._rebalancer is None else await self._rebalancer.step()

    def _rebalance_soon(self, wait: Wait = Wait.DUE) -> None:
        timers = self._client.env.timers
        if self._retry is None or self._retry.when() <= timers.now_s():
            self._retry = timers.call_later(RETRY_S, self._rebalancing.wake, wait=wait)

    def _group_message(self, subscriptions: Mapping[str, Subscription]) -> groups.ConsumerGroup:
        return groups.ConsumerGroup(
            group=self._group,
            model=groups.CLUSTERING,
            consume_from=self._config.consume_from.name,
            subscriptions=map(subscription_message, subscriptions.values()),
        )
