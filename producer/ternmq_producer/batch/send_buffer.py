"""Bounded memory of a producer."""

import asyncio
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager, suppress

from ternmq_model.errors import ClosedError


class SendBuffer:
    """Counter of the bytes of waiting and unanswered messages, with a queue of senders.

    First come, first served. A message larger than the whole buffer enters when it is empty.
    Owned by one producer and used on its event loop.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._emptied: asyncio.Future[None] | None = None
        self._entering = 0
        self._is_closed = False

    @property
    def used_bytes(self) -> int:
        """Bytes that are reserved."""
        return self._used_bytes

    def take_now(self, size: int) -> bool:
        """Reserve `size` bytes if they are free and no sender waits; return whether it did."""
        used = self._used_bytes + size
        if (used > self._limit_bytes and self._used_bytes) or self._waiting:
            return False
        self._used_bytes = used
        return True

    def charge(self, size: int) -> None:
        """Reserve `size` bytes, free or not, for a message that was in the buffer before."""
        self._used_bytes += size

    async def take(self, size: int) -> None:
        """Reserve `size` bytes as soon as they are free. Cancelling reserves nothing.

        Raises:
            ClosedError: The producer is closed; nothing is reserved.
        """
        if self._is_closed:
            raise _closed_error()
        if self.take_now(size):
            return
        freed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, freed))
        try:
            await freed
        except asyncio.CancelledError:
            if freed.done() and not freed.cancelled():
                self.give_back(size)  # the bytes became free at the same moment
            else:
                with suppress(ValueError):
                    self._waiting.remove((size, freed))
                self._admit()  # smaller ones may fit now
            raise

    def give_back(self, size: int) -> None:
        """Free `size` bytes, and admit the first waiting senders that fit."""
        self._used_bytes -= size
        assert self._used_bytes >= 0, "more was given back than taken"
        if self._waiting:
            self._admit()
        self._check_empty()

    @contextmanager
    def entering(self) -> Generator[None]:
        """Delay `emptied` until the end of the block, which may reserve bytes."""
        self._entering += 1
        try:
            yield
        finally:
            self._entering -= 1
            self._check_empty()

    def close(self) -> None:
        """Fail every caller that waits for free bytes."""
        self._is_closed = True
        while self._waiting:
            _, freed = self._waiting.popleft()
            if not freed.done():
                freed.set_exception(_closed_error())

    async def emptied(self) -> None:
        """Wait until no byte is reserved and no block of `entering` runs. Cancelling is safe."""
        while self._used_bytes or self._entering:
            if self._emptied is None:
                self._emptied = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._emptied)

    def _check_empty(self) -> None:
        if not self._used_bytes and not self._entering and self._emptied is not None:
            if not self._emptied.done():
                self._emptied.set_result(None)
            self._emptied = None

    def _admit(self) -> None:
        while self._waiting:
            size, freed = self._waiting[0]
            if freed.done():
                self._waiting.popleft()
                continue
            if self._used_bytes and self._used_bytes + size > self._limit_bytes:
                return
            self._waiting.popleft()
            self._used_bytes += size
            freed.set_result(None)


def _closed_error() -> ClosedError:
    return ClosedError("the producer was closed before there was buffer space for the message")
