"""What becomes of messages that are handled side by side.

Source: RocketMQ `ConsumeMessageConcurrentlyService`, `ProcessQueue.cleanExpiredMsg`.
"""

import logging
from collections.abc import Sequence
from typing import Final

from ternmq_consumer.listener.consume_dispatcher import Dispatcher
from ternmq_consumer.listener.consume_request import Work
from ternmq_consumer.listener.consumer_statistics import Counters
from ternmq_consumer.retry.send_back_outbox import SendBackBatch, SendBackOutbox
from ternmq_model.clock import Clock
from ternmq_model.redelivered_message import tried_again
from ternmq_model.stored_message import StoredMessage

logger = logging.getLogger(__name__)

TIMED_OUT_LEVEL: Final = 3
"""Messages whose listener call takes too long come again after 10 s."""


class ConcurrentResults:
    """Sends back what failed; without anybody to take it back, counts it.

    A hand-out lasts until its broker has confirmed what was sent back, so the group's offset waits
    for that. What could not be sent back is handed to the listener again, here, with one attempt
    more. A listener call that lasts for too long is given up: its messages are sent back, and what
    it says later is of no interest.

    Owned by one consumer; used by its event loop.

    Args:
        dispatcher: Told what is finished.
        counters: Told what failed.
        clock: Tells how long calls take.
        send_backs: Takes failed messages back; None = they are logged, counted and finished.
        retry_s: When to hand over again what could not be sent back.
        timeout_s: How long a listener call may take.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        counters: Counters,
        clock: Clock,
        *,
        send_backs: SendBackOutbox | None,
        retry_s: float,
        timeout_s: float,
    ) -> None:
        self._dispatcher = dispatcher
        self._counters = counters
        self._clock = clock
        self._send_backs = send_backs
        self._retry_s = retry_s
        self._timeout_ms = timeout_s * 1000
        self._running: dict[Work, None] = {}  # in order: runs must repeat

    def begin(self, work: Work) -> None:
        """Learn that a worker has taken `work`."""
        work.began_at_ms = self._clock.monotonic_ms()
        self._running[work] = None

    def take(self, work: Work) -> None:
        """End `work`, which the worker is done with. See `Results`."""
        if work.is_over:
            logger.warning(
                "listener call ended after it was given up queue=%s", work.assigned.queue
            )
            return
        del self._running[work]
        unfinished = work.unfinished
        if not unfinished or work.is_dropped:
            self._dispatcher.finish(work, unfinished)
            return
        assert not work.left, "a concurrent listener stops early for a dropped queue alone"
        if work.error is not None:
            self._dispatcher.report(work, work.failed, work.error)
        self._give_back(work, work.failed, work.levels)

    async def look(self) -> bool:
        """Give up the calls that take too long. The step of a job.

        A call counts from when its message was first seen in the listener's hands: looks that come
        often make that exact.
        """
        now_ms = self._clock.monotonic_ms()
        for work in list(self._running):
            if work.is_dropped:
                continue
            if work.place != work.seen_place:
                work.seen_place = work.place
                work.began_at_ms = now_ms
            elif now_ms - work.began_at_ms >= self._timeout_ms:
                self._give_up(work)
        return False

    def _give_up(self, work: Work) -> None:
        """Have done with a call, whatever it may still do."""
        # In this order: the worker writes the place first and asks then.
        work.is_over = True
        place, failed, levels = work.place, list(work.failed), list(work.levels)
        del self._running[work]
        messages = work.handout.messages
        is_batch = work.is_batch
        stuck = messages if is_batch else [messages[place]]
        logger.warning(
            "listener call takes too long queue=%s offset=%s messages=%s",
            work.assigned.queue,
            stuck[0].queue_offset,
            len(stuck),
        )
        if not is_batch:
            self._dispatcher.pass_on(work, place + 1)
        self._counters.timed_out(len(stuck))
        failed = [message for message in failed if message.queue_offset < stuck[0].queue_offset]
        self._give_back(
            work,
            [*failed, *stuck],
            [*levels[: len(failed)], *[TIMED_OUT_LEVEL] * len(stuck)],
        )

    def _give_back(
        self, work: Work, failed: Sequence[StoredMessage], levels: Sequence[int]
    ) -> None:
        self._counters.failed(len(failed))
        if self._send_backs is None:
            logger.warning(
                "messages failed and come not again queue=%s messages=%s first=%s",
                work.assigned.queue,
                len(failed),
                failed[0].queue_offset,
            )
            self._dispatcher.finish(work)
            return
        self._dispatcher.settle(work, failed)

        def end(batch: SendBackBatch) -> None:
            self._dispatcher.finish(work, [tried_again(message) for message in batch.refused])
            if batch.refused and not work.is_dropped:
                self._dispatcher.again(work, self._retry_s)

        self._send_backs.add(
            SendBackBatch(
                work.assigned.queue,
                failed,
                levels,
                is_wanted=lambda: not work.is_dropped,
                on_answer=end,
            )
        )
