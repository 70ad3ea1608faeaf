"""Outcome of listener calls of orderly queues.

Source: RocketMQ `ConsumeMessageOrderlyService`.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from ternmq_consumer.consume_status import DEAD_LETTER
from ternmq_consumer.listener.consume_dispatcher import ConsumeDispatcher
from ternmq_consumer.listener.consume_request import ConsumeRequest
from ternmq_consumer.listener.consumer_statistics import ConsumeCounters
from ternmq_consumer.listener.reconsume_times import ReconsumeTimes
from ternmq_consumer.retry.send_back_outbox import SendBackBatch, SendBackOutbox
from ternmq_model.queue import MessageQueue
from ternmq_model.redelivered_message import tried_again
from ternmq_model.stored_message import StoredMessage

logger = logging.getLogger(__name__)

UNLIMITED: Final = -1


def is_dead(message: StoredMessage, level: int, retries_max: int) -> bool:
    """Return whether a failed message becomes a dead letter. Pure.

    Args:
        message: Message with the number of attempts before this one.
        level: Delay level of the listener's answer, as in `ReconsumeLater.delay_level`.
        retries_max: Retries of a message; −1 = unlimited.
    """
    if level == DEAD_LETTER:
        return True
    return retries_max != UNLIMITED and message.reconsume_times >= retries_max


class OrderlyConsumeService:
    """Service that pauses a queue after a failure and then retries the failed message first.

    After its last retry a message becomes a dead letter. The queue waits until the broker has
    confirmed the dead letter, and then goes on.

    Owned by one consumer and used on its event loop.

    Args:
        send_backs: Outbox of dead letters; None = they are logged and finished.
        suspend_s: Pause of a queue, s.
        retries_max: Retries of a message; −1 = unlimited.
        on_fenced: Called with a queue and a token that its broker refused as stale.
    """

    def __init__(
        self,
        dispatcher: ConsumeDispatcher,
        counters: ConsumeCounters,
        *,
        send_backs: SendBackOutbox | None,
        suspend_s: float,
        retries_max: int,
        on_fenced: Callable[[MessageQueue, int], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._counters = counters
        self._send_backs = send_backs
        self._suspend_s = suspend_s
        self._retries_max = retries_max
        self._on_fenced = on_fenced
        self._tries = ReconsumeTimes()

    def begin(self, request: ConsumeRequest) -> None:
        """Set the reconsume times of the messages. An orderly call has no time limit."""
        handout = request.handout
        handout.messages = self._tries.apply(request.assigned.queue, handout.messages)

    def take(self, request: ConsumeRequest) -> None:
        """End `request` after its listener call. See `ConsumeService`."""
        unfinished = [*map(tried_again, request.failed), *request.unreached]
        self._tries.note(request.assigned.queue, request.handout.messages, unfinished)
        if not unfinished or request.is_dropped:
            self._dispatcher.finish(request, unfinished)
            return
        if not request.failed:  # the lock is not confirmed any more: go on when it is
            self._dispatcher.finish(request, unfinished)
            self._dispatcher.again(request, 0.0)
            return
        self._counters.failed(len(request.failed))
        if request.error is not None:
            self._dispatcher.report(request, request.failed, request.error)
        dead = [
            message
            for message, level in zip(request.failed, request.levels, strict=True)
            if is_dead(message, level, self._retries_max)
        ]
        if dead:
            self._bury(request, dead)
        else:
            self._suspend(request, unfinished)

    def _suspend(self, request: ConsumeRequest, unfinished: Sequence[StoredMessage]) -> None:
        self._dispatcher.finish(request, unfinished)
        self._dispatcher.again(
            request, self._suspend_s if request.suspend_s is None else request.suspend_s
        )

    def _bury(self, request: ConsumeRequest, dead: Sequence[StoredMessage]) -> None:
        """Send failed messages back as dead letters. The queue waits for the answer."""
        if self._send_backs is None:
            logger.warning(
                "messages failed too often queue=%s messages=%s first=%s",
                request.assigned.queue,
                len(dead),
                dead[0].queue_offset,
            )
            self._go_on(request, dead, [])
            return
        self._dispatcher.settle(request, request.unfinished)
        lease = request.assigned.lease
        token = 0 if lease is None else lease.token

        def end(batch: SendBackBatch) -> None:
            self._go_on(request, dead, batch.refused)
            if batch.is_fenced:
                self._on_fenced(request.assigned.queue, token)

        self._send_backs.add(
            SendBackBatch(
                request.assigned.queue,
                dead,
                [DEAD_LETTER] * len(dead),
                is_wanted=lambda: not request.is_dropped,
                on_answer=end,
                token=token,
            )
        )

    def _go_on(
        self,
        request: ConsumeRequest,
        dead: Sequence[StoredMessage],
        refused: Sequence[StoredMessage],
    ) -> None:
        """End `request`: its messages `dead` are finished, except those in `refused`."""
        gone = {message.queue_offset for message in dead}
        gone -= {message.queue_offset for message in refused}
        failed = [tried_again(each) for each in request.failed if each.queue_offset not in gone]
        unfinished = [*failed, *request.unreached]
        self._tries.note(request.assigned.queue, request.handout.messages, unfinished)
        if request.is_dropped or not unfinished:
            self._dispatcher.finish(request, unfinished)
        elif failed:
            self._suspend(request, unfinished)
        else:
            self._dispatcher.finish(request, unfinished)
            self._dispatcher.again(request, 0.0)
