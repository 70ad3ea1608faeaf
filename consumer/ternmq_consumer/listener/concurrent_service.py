"""Outcome of concurrent listener calls.

Source: RocketMQ `ConsumeMessageConcurrentlyService`, `ProcessQueue.cleanExpiredMsg`.
"""

import logging
from collections.abc import Sequence
from typing import Final

from ternmq_consumer.listener.consume_dispatcher import ConsumeDispatcher
from ternmq_consumer.listener.consume_request import ConsumeRequest
from ternmq_consumer.listener.consumer_statistics import ConsumeCounters
from ternmq_consumer.retry.send_back_outbox import SendBackBatch, SendBackOutbox
from ternmq_model.clock import Clock
from ternmq_model.redelivered_message import tried_again
from ternmq_model.stored_message import StoredMessage

logger = logging.getLogger(__name__)

TIMED_OUT_LEVEL: Final = 3
"""Delay level of messages with a timed-out listener call: 10 s."""


class ConcurrentConsumeService:
    """Service that sends failed messages back, or counts them in a broadcasting consumer.

    A hand-out ends when its broker has confirmed the messages sent back, so the group's offset
    waits for the confirmation. The listener gets messages again that could not be sent back, with
    one more attempt. Messages of a timed-out listener call are sent back, and the later result of
    the call is ignored.

    Owned by one consumer and used on its event loop.

    Args:
        send_backs: Outbox of failed messages; None = they are logged, counted and finished.
        retry_s: Pause before the listener gets messages again that could not be sent back, s.
        timeout_s: Timeout of a listener call, s.
    """

    def __init__(
        self,
        dispatcher: ConsumeDispatcher,
        counters: ConsumeCounters,
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
        self._running: dict[ConsumeRequest, None] = {}  # in order: runs must repeat

    def begin(self, request: ConsumeRequest) -> None:
        """Record that a worker has taken `request`."""
        request.began_at_ms = self._clock.monotonic_ms()
        self._running[request] = None

    def take(self, request: ConsumeRequest) -> None:
        """End `request` after its listener call. See `ConsumeService`."""
        if request.is_over:
            logger.warning("listener call ended after its timeout queue=%s", request.assigned.queue)
            return
        del self._running[request]
        unfinished = request.unfinished
        if not unfinished or request.is_dropped:
            self._dispatcher.finish(request, unfinished)
            return
        assert not request.unreached, "a concurrent listener stops early for a dropped queue alone"
        if request.error is not None:
            self._dispatcher.report(request, request.failed, request.error)
        self._give_back(request, request.failed, request.levels)

    async def check_timeouts(self) -> bool:
        """Give up listener calls that exceed the timeout. Step of a job.

        The time of a call counts from the first check during the call, so it is exact to the
        interval between checks.
        """
        now_ms = self._clock.monotonic_ms()
        for request in list(self._running):
            if request.is_dropped:
                continue
            if request.index != request.seen_index:
                request.seen_index = request.index
                request.began_at_ms = now_ms
            elif now_ms - request.began_at_ms >= self._timeout_ms:
                self._give_up(request)
        return False

    def _give_up(self, request: ConsumeRequest) -> None:
        # This order matters: the worker writes the index before it checks `is_over`.
        request.is_over = True
        index, failed, levels = request.index, list(request.failed), list(request.levels)
        del self._running[request]
        messages = request.handout.messages
        is_batch = request.is_batch
        stuck = messages[index:] if is_batch else [messages[index]]
        logger.warning(
            "listener call takes too long queue=%s offset=%s messages=%s",
            request.assigned.queue,
            stuck[0].queue_offset,
            len(stuck),
        )
        if not is_batch:
            self._dispatcher.pass_on(request, index + 1)
        self._counters.timed_out(len(stuck))
        failed = [message for message in failed if message.queue_offset < stuck[0].queue_offset]
        self._give_back(
            request,
            [*failed, *stuck],
            [*levels[: len(failed)], *[TIMED_OUT_LEVEL] * len(stuck)],
        )

    def _give_back(
        self, request: ConsumeRequest, failed: Sequence[StoredMessage], levels: Sequence[int]
    ) -> None:
        self._counters.failed(len(failed))
        if self._send_backs is None:
            logger.warning(
                "messages failed and are not delivered again queue=%s messages=%s first=%s",
                request.assigned.queue,
                len(failed),
                failed[0].queue_offset,
            )
            self._dispatcher.finish(request)
            return
        self._dispatcher.settle(request, failed)

        def end(batch: SendBackBatch) -> None:
            self._dispatcher.finish(request, [tried_again(message) for message in batch.refused])
            if batch.refused and not request.is_dropped:
                self._dispatcher.again(request, self._retry_s)

        self._send_backs.add(
            SendBackBatch(
                request.assigned.queue,
                failed,
                levels,
                is_wanted=lambda: not request.is_dropped,
                on_answer=end,
            )
        )
