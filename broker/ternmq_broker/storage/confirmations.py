"""Waiters for the confirm offset: senders whose records are not confirmed yet."""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Final

from ternmq_model.errors import RefusedError, StoreFailed, TernError, refusal
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode

Confirmed = asyncio.Future[ResponseCode | None]
"""Future of the confirm offset of a waiter. The result is None, or SLAVE_NOT_AVAILABLE when too few
slaves have the records."""

_NOWHERE: Final = PhysicalOffset(-1)
_EVERYWHERE: Final = PhysicalOffset((1 << 63) - 1)


class Confirmations:
    """Waiters for the confirm offset. Owned by the broker's loop.

    Waiters are futures, not tasks: one sync of the disk releases all waiters below its end at once.

    Args:
        store_failure: Returns the error that made the store read-only. Checked before every
            acknowledgement, because a thread may meet that error at any time.

    Attributes:
        are_replicas_enough: True while enough slaves follow; set by the owner of the slaves.
    """

    def __init__(self, store_failure: Callable[[], OSError | None] = lambda: None) -> None:
        self._store_failure = store_failure
        self._confirmed = PhysicalOffset(0)
        self._replicated = _EVERYWHERE
        self._local = PhysicalOffset(0)
        self._waiting: list[tuple[PhysicalOffset, int, Confirmed]] = []
        self._serial = itertools.count()
        self._failure: TernError | None = None
        self._fence: str | None = None
        self.are_replicas_enough = True

    def reached(self, offset: PhysicalOffset) -> bool:
        """Return whether all bytes below `offset` are confirmed."""
        self.check_store()
        return offset <= self._confirmed

    def is_safe(self, offset: PhysicalOffset) -> bool:
        """Return whether all bytes below `offset` are confirmed, and enough slaves have them."""
        return self.reached(offset) and offset <= self._replicated

    def wait(self, offset: PhysicalOffset) -> Confirmed:
        """Return a future that is done when all bytes below `offset` are confirmed.

        The future raises StoreFailed when the disk fails before that, and RefusedError when another
        process becomes the master. Cancelling is safe.
        """
        future: Confirmed = asyncio.get_running_loop().create_future()
        if self.reached(offset):
            future.set_result(self._outcome(offset))
        elif self._failure is not None:
            future.set_exception(self._failure)
        else:
            heapq.heappush(self._waiting, (offset, next(self._serial), future))
        return future

    def late(self, offset: PhysicalOffset) -> ResponseCode:
        """Return the code for a late send that ends at `offset`: late disk, or late slaves."""
        if self._confirmed < offset <= self._local:
            return ResponseCode.FLUSH_SLAVE_TIMEOUT
        return ResponseCode.FLUSH_DISK_TIMEOUT

    def replicated(self, to: PhysicalOffset, *, local: PhysicalOffset) -> None:
        """Record the progress of slaves, for waiters that are released from now on.

        Args:
            to: Log offset up to which enough slaves have all bytes.
            local: Log offset up to which all bytes are safe here.
        """
        self._replicated, self._local = to, local

    def advance(self, confirmed: PhysicalOffset) -> None:
        """Release the waiters at or below `confirmed`."""
        self.check_store()
        if self._failure is not None:
            return
        self._confirmed = max(self._confirmed, confirmed)
        while self._waiting and self._waiting[0][0] <= self._confirmed:
            offset, _, future = heapq.heappop(self._waiting)
            if not future.done():
                future.set_result(self._outcome(offset))

    def check_store(self) -> None:
        """Fail all present and future waiters if the store has failed.

        Senders with confirmed records and without an answer fail, too.
        """
        if self._failure is None and (error := self._store_failure()) is not None:
            self._fail(StoreFailed(f"the store failed: {error}"))

    def check(self) -> None:
        """Raise StoreFailed or RefusedError once acknowledgements have ended."""
        self.check_store()
        if self._failure is not None:
            raise self._failure

    def fence(self, reason: str) -> None:
        """End acknowledgements, because another process is the master. Safe to repeat.

        Present and future waiters get an error with `may_have_happened`.
        """
        if self._fence is None:
            self._fence = reason
            code = ResponseCode.SERVICE_NOT_AVAILABLE
            self._fail(refusal(code, reason, may_have_happened=True))

    def refusal(self, *, needs_replicas: bool) -> RefusedError | None:
        """Return the refusal of appends; None when they are allowed.

        Args:
            needs_replicas: True to refuse while too few slaves follow.
        """
        if self._fence is not None:
            return refusal(ResponseCode.SERVICE_NOT_AVAILABLE, self._fence)
        if needs_replicas and not self.are_replicas_enough:
            remark = "too few slaves follow: sends are refused until they are back"
            return refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
        return None

    def _outcome(self, offset: PhysicalOffset) -> ResponseCode | None:
        return None if offset <= self._replicated else ResponseCode.SLAVE_NOT_AVAILABLE

    def _fail(self, failure: TernError) -> None:
        self._failure = failure
        self._confirmed = _NOWHERE
        waiting, self._waiting = self._waiting, []
        for _, _, future in waiting:
            if not future.done():
                future.set_exception(failure)
                future.exception()  # a sender that gave up must not be reported as a bug
