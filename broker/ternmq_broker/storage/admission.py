"""Admission of requests: whether any is taken, and how many bytes wait for their answer.

Source: RocketMQ `BrokerFastFailure`, by bytes instead of requests.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

from ternmq_model.errors import refusal
from ternmq_model.response_code import ResponseCode


class Admission:
    """Admission of requests by one term of a broker. Owned by `BrokerAssembly`, on its loop.

    Args:
        bytes_max: Limit of received and unanswered bytes of all send streams.
        bytes_per_stream_max: Limit of one stream.

    Attributes:
        is_closing: True from `close` on: new requests are refused, and waits end.
    """

    def __init__(self, *, bytes_max: int, bytes_per_stream_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes_per_stream_max = bytes_per_stream_max
        self.is_closing = False
        self._bytes = 0
        self._calls = 0
        self._listeners: dict[object, Callable[[], None]] = {}

    @property
    def bytes(self) -> int:
        """Number of received and unanswered bytes of all streams."""
        return self._bytes

    def close(self) -> None:
        """Admit no new request."""
        self.is_closing = True

    def check(self) -> None:
        """Refuse a request while the broker closes.

        Raises:
            RefusedError: SERVICE_NOT_AVAILABLE.
        """
        if self.is_closing:
            raise refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker is closing")

    @property
    def is_idle(self) -> bool:
        """Every received request is answered."""
        return not (self._bytes or self._calls)

    @contextmanager
    def storing(self) -> Generator[None]:
        """Count a call other than a send that stores, while the block runs."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            self.answered(0)

    def limit(self, *, bytes_max: int, bytes_per_stream_max: int) -> None:
        """Set other limits, and wake waiting streams."""
        self._bytes_max = bytes_max
        self._bytes_per_stream_max = bytes_per_stream_max
        self.answered(0)

    def has_capacity(self, stream_bytes: int) -> bool:
        """Return whether a stream with `stream_bytes` unanswered bytes may be read."""
        return self._bytes < self._bytes_max and stream_bytes < self._bytes_per_stream_max

    def took(self, count: int) -> None:
        """Count received bytes."""
        self._bytes += count

    def answered(self, count: int) -> None:
        """Count answered bytes, and wake waiting streams."""
        self._bytes -= count
        if self._listeners:
            for notify in list(self._listeners.values()):
                notify()

    def watch(self, key: object, notify: Callable[[], None]) -> None:
        """Call `notify` whenever there may be more capacity, until `unwatch`."""
        self._listeners[key] = notify

    def unwatch(self, key: object) -> None:
        """End the calls that `watch` began."""
        self._listeners.pop(key, None)

    async def emptied(self, timeout_s: float) -> bool:
        """Wait until every request is answered; return whether that is so. Cancelling is safe."""
        look = asyncio.Event()
        self.watch(look, look.set)
        try:
            async with asyncio.timeout(timeout_s):
                while not self.is_idle:
                    look.clear()
                    await look.wait()
        except TimeoutError:
            return False
        finally:
            self.unwatch(look)
        return True
