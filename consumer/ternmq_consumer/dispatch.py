"""Which messages are handed to the application next, and what becomes of them."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ternmq_consumer.assigned_queue import AssignedQueue
from ternmq_consumer.listener import CallListener
from ternmq_consumer.process_queue import Handout, ProcessQueue
from ternmq_consumer.statistics import Counters
from ternmq_model.stored_message import StoredMessage
from ternmq_runtime.logs import RepeatLimit

logger = logging.getLogger(__name__)

PIECE_MESSAGES_MAX: Final = 64
"""Most messages that one worker takes at once to hand them over one by one: enough to pay for the
way to a thread and back."""


@dataclass(slots=True, eq=False)
class Work:
    """A hand-out on its way through a listener."""

    assigned: AssignedQueue
    in_hand: ProcessQueue[StoredMessage]
    """The one it was taken from; the queue may have restarted since."""

    handout: Handout[StoredMessage]

    @property
    def is_dropped(self) -> bool:
        """The queue is somebody else's by now."""
        return self.in_hand.dropped


class Dispatcher:
    """Hands out the messages of all owned queues, queue by queue in turn.

    Owned by one push consumer; used by its event loop alone.

    Args:
        counters: Told what is finished and what failed.
        take_max: Most messages of one hand-out.
        share_among: Do not take more than this part of what waits in a queue, so that as many
            workers can share it. 1 = all of it.
        in_order: Have at most one hand-out of a queue at a time.
        retry_s: When to hand out again what was left unfinished.
    """

    def __init__(
        self,
        counters: Counters,
        *,
        take_max: int,
        share_among: int,
        in_order: bool,
        retry_s: float,
    ) -> None:
        self._counters = counters
        self._take_max = take_max
        self._share_among = share_among
        self._in_order = in_order
        self._retry_s = retry_s
        self._ready: deque[AssignedQueue] = deque()
        self._again: deque[Work] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._failures = RepeatLimit(repeats_max=1)

    def offer(self, assigned: AssignedQueue) -> None:
        """Learn that messages of `assigned` wait, or may be handed out now."""
        if not assigned.is_listed and assigned.in_hand.waiting:
            assigned.is_listed = True
            self._ready.append(assigned)
            self._wake_one()

    async def next(self) -> Work:
        """Return the next hand-out, waiting for one.

        Cancelling is safe: nothing was handed out.
        """
        while (work := self._take()) is None:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake_one()  # this call was to take it; now another one must
                else:
                    self._waiters.remove(waiter)
                raise
        if self._ready or self._again:
            self._wake_one()
        return work

    def done(self, work: Work, unfinished: list[StoredMessage]) -> None:
        """End a hand-out; what is unfinished is handed out again after a pause."""
        count, record_bytes = work.assigned.finish(work.in_hand, work.handout, unfinished)
        self._counters.finished(count, record_bytes)
        if unfinished and not work.is_dropped:
            work.handout.attempts += 1
            self._counters.failed(len(unfinished))
            asyncio.get_running_loop().call_later(self._retry_s, self._retry, work)
        elif self._in_order:
            self.offer(work.assigned)

    def settle(self, work: Work, unfinished: list[StoredMessage]) -> None:
        """Note that a part of a hand-out is finished while the rest of it goes on."""
        self._counters.finished(*work.assigned.settle(work.in_hand, work.handout, unfinished))

    def report(self, work: Work, unfinished: Sequence[StoredMessage], error: BaseException) -> None:
        """Log that the listener failed: one kind of error once in ten seconds, the rest counted."""
        kind = type(error).__name__
        for _, earlier, count in self._failures.end_window(asyncio.get_running_loop().time()):
            logger.warning("listener failed again error=%s times=%s", earlier, count)
        if self._failures.admits(__name__, kind):
            logger.warning(
                "listener failed queue=%s messages=%s attempt=%s",
                work.assigned.queue,
                len(unfinished),
                work.handout.attempts + 1,
                exc_info=error,
            )

    def _retry(self, work: Work) -> None:
        if not work.is_dropped:
            self._again.append(work)
            self._wake_one()

    def _take(self) -> Work | None:
        while self._again:
            work = self._again.popleft()
            if not work.is_dropped:
                work.in_hand.take_again(work.handout)
                return work
        while self._ready:
            assigned = self._ready.popleft()
            assigned.is_listed = False
            in_hand = assigned.in_hand
            # In order: `done` offers the queue again once nothing of it is handed out.
            is_held = self._in_order and in_hand.count > in_hand.waiting
            if in_hand.dropped or is_held:
                continue
            share = -(-in_hand.waiting // self._share_among)
            handout = in_hand.take(min(share, self._take_max))
            if handout is None:
                continue
            if in_hand.waiting and not self._in_order:
                assigned.is_listed = True
                self._ready.append(assigned)
            return Work(assigned, in_hand, handout)
        return None

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return


async def work_on(dispatcher: Dispatcher, call: CallListener) -> None:
    """Hand messages to a listener until cancelled: one worker of a consumer."""
    while True:
        work = await dispatcher.next()
        outcome = await call(work.handout.messages, work.in_hand)
        if outcome.error is not None:
            dispatcher.report(work, outcome.unfinished, outcome.error)
        dispatcher.done(work, outcome.unfinished)
        # A listener that never waits must not keep the loop from reading on.
        await asyncio.sleep(0)
