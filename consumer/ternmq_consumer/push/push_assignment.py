"""Assignment of a push consumer: queues that it takes over, gives away and loses.

A change of the owner loses and skips no message: the old owner commits the lowest unfinished
offset, and the new owner begins there. A queue that its broker no longer has is lost. A later queue
with its name is a new queue, for which the old offset has no meaning.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from ternmq_consumer.offsets.consume_from_where import StartOffsets
from ternmq_consumer.offsets.offset_store import OffsetStore
from ternmq_consumer.process_queue.assigned_queue import AssignedQueue
from ternmq_consumer.process_queue.queue_locks import Lease, QueueLocks
from ternmq_consumer.process_queue.running_info import ProcessQueueInfo
from ternmq_consumer.pull_stream.flow_control import FlowControlWindow
from ternmq_consumer.pull_stream.pulled_queue import QueueSubscriber
from ternmq_model.errors import RefusedError, UsageError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.subscription import Subscription

logger = logging.getLogger(__name__)


class PushAssignment:
    """Owned queues of one push consumer. Changed by its rebalance job and by their loss.

    Args:
        window: Bounds of reading ahead, for each queue.
        in_order: True = messages of one queue are handled one call after the other.
        drop_wait_s: Longest wait of a given-away queue for running listener calls, s.
        on_ready: Called when messages of a queue are waiting.
        on_lost: Called with a queue that is lost: its broker no longer has it, or its lock is lost.
        on_refused: Called when a broker refuses a queue or its filter.
        locks: Locks of the queues; None = queues need no lock.
        wall_ms: Clock for the times in reports; None = no times.
    """

    def __init__(
        self,
        subscriber: QueueSubscriber,
        offsets: OffsetStore,
        start_offsets: StartOffsets,
        window: FlowControlWindow,
        *,
        drop_wait_s: float,
        in_order: bool = False,
        in_columns: bool = False,
        on_ready: Callable[[AssignedQueue], None],
        on_lost: Callable[[MessageQueue], None],
        on_refused: Callable[[RefusedError], None],
        locks: QueueLocks | None = None,
        wall_ms: Callable[[], int] | None = None,
    ) -> None:
        self._wall_ms = wall_ms
        self._subscriber = subscriber
        self._offsets = offsets
        self._start_offsets = start_offsets
        self._window = window
        self._drop_wait_s = drop_wait_s
        self._in_order = in_order
        self._in_columns = in_columns
        self._on_ready = on_ready
        self._on_lost = on_lost
        self._on_refused = on_refused
        self._locks = locks
        self._owned: dict[MessageQueue, AssignedQueue] = {}
        self._starting: dict[MessageQueue, QueueOffset | None] = {}
        """Queues that start, each with the offset of a reset meanwhile, if any."""
        self._leaving: set[MessageQueue] = set()
        """Queues that are being given away, without a reset since the begin."""
        self._pending_resets: list[tuple[MessageQueue, QueueOffset, int]] = []
        """Resets of queues that start. A reset may precede the query of the offset."""
        self._outlived: list[AssignedQueue] = []
        """Former queues with running listener calls, for orderly consumers only."""

    @property
    def queues(self) -> list[MessageQueue]:
        """Owned queues, sorted."""
        return sorted(self._owned)

    def reports(self) -> list[ProcessQueueInfo]:
        """Return the state of every owned queue."""
        return [one.report() for one in self._owned.values()]

    @property
    def in_hand(self) -> tuple[int, int]:
        """Number of unfinished messages, and the length of their records in bytes."""
        counts = [(owned.in_hand.count, owned.in_hand.record_bytes) for owned in self._all()]
        return sum(count for count, _ in counts), sum(size for _, size in counts)

    async def start(
        self, wanted: Mapping[MessageQueue, Subscription], since_ms: int | None
    ) -> bool:
        """Take over queues that are not owned and begin to read them. See `OwnedQueues`.

        An orderly queue that this member owned before waits for its running listener call, because
        the lock excludes only other members.
        """
        self._forget_ended_calls()
        outlived = {each.queue for each in self._outlived}
        leases = await self._lock([queue for queue in wanted if queue not in outlived])
        self._starting = dict.fromkeys(leases)

        def apply_resets() -> None:
            for reset in list(self._pending_resets):
                self.reset(*reset)

        found = await self._start_offsets.begin(leases, since_ms, apply_resets)
        if self._locks is not None:
            await self._locks.give_back([queue for queue in leases if queue not in found])
        set_elsewhere, self._starting = self._starting, {}
        self._pending_resets.clear()
        for queue, found_start in found.items():
            elsewhere, lease = set_elsewhere[queue], leases[queue]
            start = found_start if elsewhere is None else elsewhere
            if lease is not None and lease.is_lost:
                self._offsets.forget([queue])
                continue
            owned = AssignedQueue(
                queue,
                wanted[queue],
                start,
                self._window,
                on_ready=self._on_ready,
                on_restart=self._offsets.restart,
                on_gone=self._lose,
                on_refused=self._on_refused,
                lease=lease,
                in_order=self._in_order,
                in_columns=self._in_columns,
                wall_ms=self._wall_ms,
            )
            self._owned[queue] = owned
            owned.start(self._subscriber)
            logger.info("queue taken over queue=%s offset=%s", queue, start)
        return all(queue in self._owned for queue in wanted)

    async def drop(self, queues: Collection[MessageQueue]) -> None:
        """Give queues away: stop reading, wait for listener calls, commit.

        A call that outlives the wait goes on. Its messages do not count as finished, and the next
        owner gets them again.
        """
        leaving = [owned for queue in queues if (owned := self._owned.pop(queue, None))]
        if not leaving:
            return
        self._leaving = {owned.queue for owned in leaving}
        try:
            still = await self._quiesce(leaving, self._drop_wait_s)
        except asyncio.CancelledError:  # the consumer is being closed: `close` commits these too
            self._owned.update((owned.queue, owned) for owned in leaving)
            self._leaving.clear()
            raise
        if still:
            logger.warning("listener calls outlive their queues queues=%s", still)
        for owned in leaving:
            if owned.queue not in self._leaving:
                logger.info("queue released, after a reset of its offset queue=%s", owned.queue)
                continue
            offset = owned.in_hand.commit_offset
            self._offsets.update(owned.queue, offset)
            logger.info("queue released queue=%s offset=%s", owned.queue, offset)
        self._remember_calls(leaving)
        await self._offsets.commit(queues)
        self._offsets.forget(queues)
        self._leaving.clear()
        await self._give_back(leaving)

    async def seek(self, queue: MessageQueue, offset: QueueOffset) -> bool:
        """Drop unfinished messages, continue at `offset` and commit it, also a lower one.

        Returns:
            True = the offset is committed. After False it is committed with the other offsets; the
            log has the reason.

        Raises:
            UsageError: The queue is not owned.
        """
        owned = self._owned.get(queue)
        if owned is None:
            raise UsageError(f"{queue} is not assigned to this member; it cannot seek there")
        self._offsets.restart(queue, offset)
        owned.move(offset)
        logger.info("queue position set queue=%s offset=%s", queue, offset)
        return await self._offsets.commit([queue])

    def reset(self, queue: MessageQueue, offset: QueueOffset, version: int) -> None:
        """Apply an offset that another client has set.

        The call has no effect if `queue` is not owned, starting or being given away.
        """
        if not any(queue in each for each in (self._owned, self._starting, self._leaving)):
            return
        if self._offsets.reset(queue, offset, version):
            self.go_on(queue, offset)
        elif queue in self._starting:
            self._pending_resets.append((queue, offset, version))

    def go_on(self, queue: MessageQueue, offset: QueueOffset) -> None:
        """Drop unfinished messages of `queue` and continue at `offset`, which is committed."""
        self._leaving.discard(queue)
        owned = self._owned.get(queue)
        if owned is not None:
            owned.move(offset)
        elif queue in self._starting:
            self._starting[queue] = offset

    def lose(self, queue: MessageQueue) -> None:
        """Give up `queue` without a commit, because its lock is lost."""
        owned = self._owned.get(queue)
        if owned is not None:
            owned.stop()
            self._remove(owned)
            self._offsets.forget([queue])
            self._on_lost(queue)

    def resume(self, queue: MessageQueue) -> None:
        """Resume handing out messages of `queue`, whose lock is confirmed again."""
        owned = self._owned.get(queue)
        if owned is not None:
            self._on_ready(owned)

    async def close(self) -> None:
        """Commit every queue and release the locks. Call `quiesce` before."""
        await self.commit()
        await self._give_back(list(self._all()))

    async def _lock(self, queues: Collection[MessageQueue]) -> Mapping[MessageQueue, Lease | None]:
        """Lock `queues` if needed. Return those that may be owned, with their leases."""
        if self._locks is None:
            return dict.fromkeys(queues)
        leases = await self._locks.take(queues)
        for queue in queues:
            if queue not in leases:
                logger.debug("queue not locked queue=%s", queue)
        return leases

    async def _give_back(self, leaving: Iterable[AssignedQueue]) -> None:
        """Release the locks of queues; for a busy queue at the end of its listener call."""
        if self._locks is None:
            return
        for owned in leaving:
            if owned.is_busy():
                self._locks.give_back_later(owned.queue, owned.is_busy)
        await self._locks.give_back([owned.queue for owned in leaving])

    async def quiesce(self, timeout_s: float) -> None:
        """Stop reading all queues and wait up to `timeout_s` for listener calls."""
        await self._quiesce(list(self._all()), timeout_s)

    async def commit(self) -> None:
        """Commit the offsets of every owned queue."""
        self._forget_ended_calls()
        for owned in self._all():
            self._offsets.update(owned.queue, owned.in_hand.commit_offset)
        await self._offsets.commit()

    def _lose(self, owned: AssignedQueue) -> None:
        """Drop a missing queue without a commit: a later queue may have its name."""
        self._remove(owned)
        self._offsets.gone(owned.queue)
        self._on_lost(owned.queue)

    def _remove(self, owned: AssignedQueue) -> None:
        del self._owned[owned.queue]
        self._remember_calls([owned])
        if self._locks is not None:
            self._locks.forget(owned.queue)

    def _forget_ended_calls(self) -> None:
        """Drop former queues without running calls, with their messages."""
        self._outlived = [each for each in self._outlived if each.is_busy()]

    def _remember_calls(self, leaving: Iterable[AssignedQueue]) -> None:
        if self._in_order:
            self._outlived += [owned for owned in leaving if owned.is_busy()]

    def _all(self) -> Iterable[AssignedQueue]:
        return self._owned.values()

    async def _quiesce(self, leaving: list[AssignedQueue], timeout_s: float) -> list[str]:
        """Stop reading queues. Return those with calls that have not ended in time."""
        for owned in leaving:
            owned.stop()
        try:
            async with asyncio.timeout(timeout_s):
                for owned in leaving:
                    await owned.idle()
        except TimeoutError:
            return [str(owned.queue) for owned in leaving if owned.in_hand.running]
        return []
