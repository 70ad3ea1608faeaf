"""The queues that a pull consumer owns as a member of its group."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ternmq_consumer.offsets.consume_from_where import StartOffsets
from ternmq_consumer.offsets.remote_offset_store import RemoteOffsetStore
from ternmq_consumer.pull.fetched_queue import FetchedQueue
from ternmq_consumer.pull.pull_queues import PullQueues
from ternmq_consumer.pull_stream.pull_links import PullLinks
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.subscription import Subscription

logger = logging.getLogger(__name__)

RebalanceCallback: TypeAlias = Callable[[list[MessageQueue]], Awaitable[None] | None]
"""Takes queues, sorted, that were given to this member, or are taken from it. A plain function or
an `async def`."""


@dataclass(frozen=True, slots=True)
class RebalanceCallbacks:
    """Callbacks of an application for queues that come and go."""

    on_assigned: RebalanceCallback | None
    on_revoked: RebalanceCallback | None


@dataclass(frozen=True, slots=True)
class PullContext:
    """Streams, offsets and seeks of one open pull consumer, for what reads its queues."""

    links: PullLinks
    offsets: RemoteOffsetStore
    start_offsets: StartOffsets
    seeks_settled: Callable[[], Awaitable[None]]
    """Coroutine function that waits until no seek is running."""


class PullAssignment:
    """Owned queues of one pull consumer and subscription, changed by the rebalance job.

    Args:
        context: Streams, offsets and seeks of the consumer.
        queues: Queues of the consumer. This object owns all of them.
        callbacks: Callbacks of the application for queues that come and go.
        commits_settled: True = handled messages are committed before a queue is given away.
        on_failure: Called with the error of a callback.
    """

    def __init__(
        self,
        context: PullContext,
        queues: PullQueues,
        callbacks: RebalanceCallbacks,
        *,
        commits_settled: bool,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._context = context
        self._queues = queues
        self._callbacks = callbacks
        self._commits_settled = commits_settled
        self._on_failure = on_failure
        self.is_calling = False
        """A callback runs."""

        self._starting: frozenset[MessageQueue] = frozenset()
        self._pending_resets: list[tuple[MessageQueue, QueueOffset, int]] = []
        """Resets of queues that start, reported by brokers before the queues were assigned."""

    @property
    def queues(self) -> list[MessageQueue]:
        """Owned queues, sorted."""
        return self._queues.names

    async def start(
        self, wanted: Mapping[MessageQueue, Subscription], since_ms: int | None
    ) -> bool:
        """Take over these queues, call `on_assigned`, and begin to read them. See `OwnedQueues`.

        The application may seek before anything is read.
        """
        context = self._context
        self._starting = frozenset(wanted)

        def apply_resets() -> None:
            for reset in self._pending_resets:
                context.offsets.reset(*reset)

        starts = await context.start_offsets.begin(wanted, since_ms, apply_resets)
        self._starting = frozenset()
        self._pending_resets.clear()
        for queue, found in starts.items():
            # A reset may have set the offset meanwhile.
            offset = found if (now_at := context.offsets.at(queue)) is None else now_at
            self._queues.add(queue, wanted[queue]).place(offset)
            logger.info("queue taken over queue=%s offset=%s", queue, offset)
        if starts:
            await self._tell(self._callbacks.on_assigned, starts)
            await context.seeks_settled()  # the callback may have sought without awaiting it
        for queue in starts:
            fetched = self._queues.find(queue)
            if fetched is not None and fetched.position is not None and not fetched.is_reading:
                fetched.start(context.links, fetched.position)
        return len(starts) == len(wanted)

    def take_reset(self, queue: MessageQueue, offset: QueueOffset, version: int) -> None:
        """Record a reset of the group's offset of a queue that is not owned yet.

        The reset has no effect unless the queue is starting: its offset may have been read before.
        """
        if queue in self._starting:
            self._pending_resets.append((queue, offset, version))

    async def drop(self, queues: Sequence[MessageQueue]) -> None:
        """Give queues away: stop reading, call `on_revoked`, commit.

        The callback may still commit positions.
        """
        offsets = self._context.offsets
        leaving = [fetched for queue in queues if (fetched := self._queues.find(queue)) is not None]
        if not leaving:
            return
        for fetched in leaving:
            fetched.is_leaving = True
            fetched.stop()
        names = [fetched.queue for fetched in leaving]
        await self._tell(self._callbacks.on_revoked, names)
        if self._commits_settled:
            await commit_settled(offsets, leaving)
        for fetched in leaving:
            self._queues.remove(fetched.queue)
            logger.info("queue released queue=%s offset=%s", fetched.queue, fetched.position)
        offsets.forget(names)

    async def tell_lost(self, queue: MessageQueue) -> None:
        """Report to the application that a queue is gone."""
        await self._tell(self._callbacks.on_revoked, (queue,))

    async def _tell(
        self, callback: RebalanceCallback | None, queues: Iterable[MessageQueue]
    ) -> None:
        if callback is None:
            return
        self.is_calling = True
        try:
            answer = callback(sorted(queues))
            if answer is not None:
                await answer
        except Exception as error:
            self._on_failure(error)
        self.is_calling = False  # it stays so when the call is cancelled, which was too long then


async def commit_settled(offsets: RemoteOffsetStore, queues: Iterable[FetchedQueue]) -> None:
    """Commit what the application has dealt with; nothing goes back for it."""
    names: list[MessageQueue] = []
    for fetched in queues:
        if fetched.settled is not None:
            offsets.update(fetched.queue, fetched.settled)
            names.append(fetched.queue)
    await offsets.commit(names)
