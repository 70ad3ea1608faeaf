"""Dispatch of waiting messages to the workers that call the listener."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from ternmq_consumer.listener.consume_request import ConsumeRequest
from ternmq_consumer.listener.consume_service import ConsumeService
from ternmq_consumer.listener.consumer_statistics import ConsumeCounters
from ternmq_consumer.listener.listener_call import CallListener
from ternmq_consumer.process_queue.assigned_queue import AssignedQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_runtime.logs import RepeatLimit
from ternmq_runtime.timers import Timers

logger = logging.getLogger(__name__)

PIECE_MESSAGES_MAX: Final = 64
"""Most messages of one hand-out whose messages are handled one by one: enough to pay for the change
to a thread and back."""

_LOCK_CHECK_S: Final = 0.2
"""Interval between checks for the confirmation of a queue's lock, s."""


class ConsumeDispatcher:
    """Dispatcher of the messages of all owned queues, queue by queue in turn.

    Messages of a locked queue are handed out only while its lease holds.

    Owned by one push consumer and used only on its event loop.

    Args:
        share_among: Number of workers that share the waiting messages of a queue: a hand-out takes
            at most this fraction of them. 1 = all.
        timers: Timers of the pauses before messages are handed out again.
        in_order: True = at most one hand-out of a queue at a time.
        on_taken: Called with the messages of each hand-out; None = not called.
    """

    def __init__(
        self,
        counters: ConsumeCounters,
        *,
        listener: str = "",
        take_max: int,
        share_among: int,
        in_order: bool,
        timers: Timers,
        on_taken: Callable[[Sequence[StoredMessage]], None] | None = None,
    ) -> None:
        self._on_taken = on_taken
        self._counters = counters
        self._listener = listener
        self._take_max = take_max
        self._share_among = share_among
        self._in_order = in_order
        self.timers = timers
        self._ready: deque[AssignedQueue] = deque()
        self._again: deque[ConsumeRequest] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._failures = RepeatLimit(repeats_max=1)
        self.called: dict[ConsumeRequest, float] = {}
        """Requests of running listener calls, with the loop's time at their begin."""

    def offer(self, assigned: AssignedQueue) -> None:
        """List `assigned` for hand-outs, if messages are waiting and may be handed out."""
        if not assigned.is_listed and assigned.in_hand.waiting:
            assigned.is_listed = True
            self._ready.append(assigned)
            self._wake_one()

    async def next(self) -> ConsumeRequest:
        """Wait for the next hand-out. Cancelling is safe: nothing is handed out."""
        while (request := self._take()) is None:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake_one()  # this call was to take it; now another one must
                elif waiter in self._waiters:  # unless the caller that woke others skipped it
                    self._waiters.remove(waiter)
                raise
        if self._ready or self._again:
            self._wake_one()
        if self._on_taken is not None:
            self._on_taken(request.handout.messages)
        return request

    def finish(self, request: ConsumeRequest, unfinished: Sequence[StoredMessage] = ()) -> None:
        """End a hand-out: all its messages are finished, except those in `unfinished`.

        For a queue that is still owned, the caller passes the unfinished messages to `again`.
        """
        self._counters.finished(
            *request.assigned.finish(request.in_hand, request.handout, unfinished)
        )
        if self._in_order and not unfinished:
            self.offer(request.assigned)

    def settle(self, request: ConsumeRequest, unfinished: Sequence[StoredMessage]) -> None:
        """Finish a part of a hand-out while its other messages go on."""
        self._counters.finished(
            *request.assigned.settle(request.in_hand, request.handout, unfinished)
        )

    def again(self, request: ConsumeRequest, after_s: float) -> None:
        """Hand out the unfinished messages of an ended hand-out again, after a pause."""
        request.handout.attempts += 1
        self._plan(ConsumeRequest(request.assigned, request.in_hand, request.handout), after_s)

    def pass_on(self, request: ConsumeRequest, count: int) -> None:
        """Return the messages behind the first `count` of a hand-out to other workers."""
        parted = request.in_hand.part(request.handout, count)
        if parted is not None:
            rest = ConsumeRequest(request.assigned, request.in_hand, parted)
            request.assigned.finish(request.in_hand, parted, parted.messages)
            self._plan(rest, 0.0)

    def report(
        self, request: ConsumeRequest, failed: Sequence[StoredMessage], error: Exception
    ) -> None:
        """Log a failure of the listener; equal errors once in ten seconds, with their number."""
        kind = type(error).__name__
        for _, earlier, count in self._failures.end_window(asyncio.get_running_loop().time()):
            logger.warning("listener failed again err=%s count=%s", earlier, count)
        if self._failures.admits(__name__, kind):
            logger.warning(
                "listener failed queue=%s messages=%s attempt=%s",
                request.assigned.queue,
                len(failed),
                request.handout.attempts + 1,
                exc_info=error,
            )

    def report_outliving(self, on_unanswered: Callable[[StoredMessage], None]) -> None:
        """Log the calls that still run while their consumer is closed.

        `on_unanswered` is called with the last message of each that was not given up before.
        """
        if not self.called:
            return
        request, began_s = min(self.called.items(), key=lambda item: item[1])
        logger.warning(
            "listener outlives its consumer listener=%s calls=%s longest_s=%.1f queue=%s offset=%s"
            " queues=%s consequence=%r",
            self._listener,
            len(self.called),
            asyncio.get_running_loop().time() - began_s,
            request.assigned.queue,
            next((each.queue_offset for each in request.handout.messages[request.index :]), None),
            sorted({str(each.assigned.queue) for each in self.called}),
            "its messages, and those behind them in these queues, are delivered again",
        )
        for each in self.called:
            if not each.is_over:
                on_unanswered(each.handout.messages[-1])

    def report_uncancelled(self) -> None:
        """Log the calls that still run after their cancellation."""
        logger.warning(
            "listener goes on after it was cancelled listener=%s calls=%s consequence=%r",
            self._listener,
            len(self.called),
            "the event loop cannot end before it does",
        )

    def _plan(self, request: ConsumeRequest, after_s: float) -> None:
        if after_s > 0:
            self.timers.call_later(after_s, self._plan, request, 0.0)
        elif not request.is_dropped:
            self._again.append(request)
            self._wake_one()

    def _take(self) -> ConsumeRequest | None:
        while self._again:
            request = self._again.popleft()
            if request.may_go_on:
                request.in_hand.take_again(request.handout)
                return request
            if not request.is_dropped:
                self._plan(request, _LOCK_CHECK_S)
        while self._ready:
            assigned = self._ready.popleft()
            assigned.is_listed = False
            in_hand = assigned.in_hand
            # For an orderly queue, `finish` lists the queue again.
            is_held = self._in_order and in_hand.count > in_hand.waiting
            if in_hand.dropped or is_held:
                continue
            if assigned.lease is not None and not assigned.lease.holds:
                continue  # offered again once the lock is confirmed
            share = -(-in_hand.waiting // self._share_among)
            handout = in_hand.take(min(share, self._take_max))
            if handout is None:
                continue
            if in_hand.waiting and not self._in_order:
                assigned.is_listed = True
                self._ready.append(assigned)
            return ConsumeRequest(assigned, in_hand, handout)
        return None

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return


async def work_on(
    dispatcher: ConsumeDispatcher, call: CallListener, service: ConsumeService
) -> None:
    """Run one worker of a consumer: pass messages to the listener until cancelled."""
    task = asyncio.current_task()
    assert task is not None, "runs in a task"
    while not task.cancelling():  # a listener may catch the cancellation
        request = await dispatcher.next()
        service.begin(request)
        dispatcher.called[request] = asyncio.get_running_loop().time()
        try:
            with dispatcher.timers.busy():
                await call(request)
        finally:
            del dispatcher.called[request]
        service.take(request)
        # The loop must go on reading beside a listener that never waits.
        await asyncio.sleep(0)
