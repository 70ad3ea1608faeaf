"""What becomes of messages that are handled in order, queue by queue.

Source: RocketMQ `ConsumeMessageOrderlyService`.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from ternmq_consumer.consume_status import DEAD_LETTER
from ternmq_consumer.listener.consume_dispatcher import Dispatcher
from ternmq_consumer.listener.consume_request import Work
from ternmq_consumer.listener.consumer_statistics import Counters
from ternmq_consumer.listener.reconsume_times import TryCounts
from ternmq_consumer.retry.send_back_outbox import SendBackBatch, SendBackOutbox
from ternmq_model.queue import MessageQueue
from ternmq_model.redelivered_message import tried_again
from ternmq_model.stored_message import StoredMessage

logger = logging.getLogger(__name__)

UNLIMITED: Final = -1


def is_dead(message: StoredMessage, level: int, retries_max: int) -> bool:
    """Tell whether a message that has just failed is a dead letter. Pure.

    Args:
        message: With the attempts that were made before this one.
        level: What the listener said of it, as in `ReconsumeLater.delay_level`.
        retries_max: How often a message is tried again; −1 = without end.
    """
    if level == DEAD_LETTER:
        return True
    return retries_max != UNLIMITED and message.reconsume_times >= retries_max


class OrderlyResults:
    """Lets a queue rest whose message failed, and tries that message again first.

    A message that was tried often enough becomes a dead letter; its queue waits until the broker
    has confirmed that, and goes on.

    Owned by one consumer; used by its event loop.

    Args:
        dispatcher: Told what is finished.
        counters: Told what failed.
        send_backs: Takes dead letters; None = they are logged and finished.
        suspend_s: How long a queue rests.
        retries_max: How often a message is tried again; −1 = without end.
        on_fenced: Called with a queue and the token that its broker called stale.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        counters: Counters,
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
        self._tries = TryCounts()

    def begin(self, work: Work) -> None:
        """Learn that a worker has taken `work`: an orderly call may take as long as it likes."""
        self._tries.apply(work.assigned.queue, work.handout.messages)

    async def look(self) -> bool:
        """Do nothing. See `begin`."""
        return False

    def take(self, work: Work) -> None:
        """End `work`, which the worker is done with. See `Results`."""
        unfinished = [*map(tried_again, work.failed), *work.left]
        self._tries.note(work.assigned.queue, work.handout.messages, unfinished)
        if not unfinished or work.is_dropped:
            self._dispatcher.finish(work, unfinished)
            return
        if not work.failed:  # the lock is not confirmed any more: go on when it is
            self._dispatcher.finish(work, unfinished)
            self._dispatcher.again(work, 0.0)
            return
        self._counters.failed(len(work.failed))
        if work.error is not None:
            self._dispatcher.report(work, work.failed, work.error)
        dead = [
            message
            for message, level in zip(work.failed, work.levels, strict=True)
            if is_dead(message, level, self._retries_max)
        ]
        if dead:
            self._bury(work, dead)
        else:
            self._suspend(work, unfinished)

    def _suspend(self, work: Work, unfinished: Sequence[StoredMessage]) -> None:
        self._dispatcher.finish(work, unfinished)
        self._dispatcher.again(work, self._suspend_s if work.suspend_s is None else work.suspend_s)

    def _bury(self, work: Work, dead: Sequence[StoredMessage]) -> None:
        """Make dead letters of some failed messages; the queue waits for the answer."""
        if self._send_backs is None:
            logger.warning(
                "messages failed too often queue=%s messages=%s first=%s",
                work.assigned.queue,
                len(dead),
                dead[0].queue_offset,
            )
            self._go_on(work, dead, [])
            return
        self._dispatcher.settle(work, work.unfinished)
        lease = work.assigned.lease
        token = 0 if lease is None else lease.token

        def end(batch: SendBackBatch) -> None:
            self._go_on(work, dead, batch.refused)
            if batch.is_fenced:
                self._on_fenced(work.assigned.queue, token)

        self._send_backs.add(
            SendBackBatch(
                work.assigned.queue,
                dead,
                [DEAD_LETTER] * len(dead),
                is_wanted=lambda: not work.is_dropped,
                on_answer=end,
                token=token,
            )
        )

    def _go_on(
        self, work: Work, dead: Sequence[StoredMessage], refused: Sequence[StoredMessage]
    ) -> None:
        """End `work`, of whose messages the `dead` are gone but for the `refused`."""
        gone = {message.queue_offset for message in dead}
        gone -= {message.queue_offset for message in refused}
        failed = [tried_again(each) for each in work.failed if each.queue_offset not in gone]
        unfinished = [*failed, *work.left]
        self._tries.note(work.assigned.queue, work.handout.messages, unfinished)
        if work.is_dropped or not unfinished:
            self._dispatcher.finish(work, unfinished)
        elif failed:
            self._suspend(work, unfinished)
        else:
            self._dispatcher.finish(work, unfinished)
            self._dispatcher.again(work, 0.0)
