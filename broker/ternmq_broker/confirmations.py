"""Senders that wait until what they sent is safe."""

import asyncio
import heapq
import itertools

from ternmq_model.errors import StoreFailed, TernError
from ternmq_model.offsets import PhysicalOffset


class Confirmations:
    """Waiters for the confirm offset. Owned by the broker's loop.

    Futures, not a task per waiter: one sync of the disk releases all it covers in one go.
    """

    def __init__(self) -> None:
        self._confirmed = PhysicalOffset(0)
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._serial = itertools.count()
        self._failure: TernError | None = None

    def reached(self, offset: PhysicalOffset) -> bool:
        """Tell whether everything below `offset` is safe already."""
        return offset <= self._confirmed

    def wait(self, offset: PhysicalOffset) -> asyncio.Future[None]:
        """Return a future that is done when everything below `offset` is safe.

        It raises StoreFailed when the disk fails before that. Cancelling it is safe.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if offset <= self._confirmed:
            future.set_result(None)
        elif self._failure is not None:
            future.set_exception(self._failure)
        else:
            heapq.heappush(self._waiting, (offset, next(self._serial), future))
        return future

    def advance(self, confirmed: PhysicalOffset) -> None:
        """Release whoever waits for `confirmed` or less."""
        self._confirmed = max(self._confirmed, confirmed)
        while self._waiting and self._waiting[0][0] <= self._confirmed:
            _, _, future = heapq.heappop(self._waiting)
            if not future.done():
                future.set_result(None)

    def fail(self, reason: str) -> None:
        """Fail whoever waits, now and from now on: the disk does not confirm any more."""
        self._failure = StoreFailed(reason)
        waiting, self._waiting = self._waiting, []
        for _, _, future in waiting:
            if not future.done():
                future.set_exception(self._failure)
                future.exception()  # a sender that gave up must not be reported as a bug
