"""The bounded memory of a producer."""

import asyncio
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager, suppress

from ternmq_model.errors import ClosedError


class SendBuffer:
    """Counts the bytes of messages that are waiting or unanswered, and lets senders wait for room.

    First come, first served. One message larger than the whole buffer is let in when it is empty.
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
        """Bytes that are taken."""
        return self._used_bytes

    def take_now(self, size: int) -> bool:
        """Reserve `size` bytes if that needs no waiting; return whether it did."""
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
            ClosedError: Nobody gets room any more; nothing is taken.
        """
        if self._is_closed:
            raise _closed_error()
        if self.take_now(size):
            return
        room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, room))
        try:
            await room
        except asyncio.CancelledError:
            if room.done() and not room.cancelled():
                self.give_back(size)  # room came in the same moment
            else:
                with suppress(ValueError):
                    self._waiting.remove((size, room))
                self._admit()  # it may have held up smaller ones
            raise

    def give_back(self, size: int) -> None:
        """Return `size` bytes; whoever waits longest and fits now goes on."""
        self._used_bytes -= size
        assert self._used_bytes >= 0, "more was given back than taken"
        if self._waiting:
            self._admit()
        self._tell_if_empty()

    @contextmanager
    def entering(self) -> Generator[None]:
        """Make `emptied` wait for the block, too, which may still reserve bytes."""
        self._entering += 1
        try:
            yield
        finally:
            self._entering -= 1
            self._tell_if_empty()

    def close(self) -> None:
        """Fail every caller that waits for free bytes."""
        self._is_closed = True
        while self._waiting:
            _, room = self._waiting.popleft()
            if not room.done():
                room.set_exception(_closed_error())

    async def emptied(self) -> None:
        """Wait until nothing is taken, nor about to be. Cancelling is safe."""
        while self._used_bytes or self._entering:
            if self._emptied is None:
                self._emptied = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._emptied)

    def _tell_if_empty(self) -> None:
        if not self._used_bytes and not self._entering and self._emptied is not None:
            if not self._emptied.done():
                self._emptied.set_result(None)
            self._emptied = None

    def _admit(self) -> None:
        while self._waiting:
            size, room = self._waiting[0]
            if room.done():
                self._waiting.popleft()
                continue
            if self._used_bytes and self._used_bytes + size > self._limit_bytes:
                return
            self._waiting.popleft()
            self._used_bytes += size
            room.set_result(None)


def _closed_error() -> ClosedError:
    return ClosedError("the producer was closed before there was room for the message")
