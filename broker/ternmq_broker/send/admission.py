"""Admission of sends by the number of bytes that are received and not yet answered.

Source: RocketMQ `BrokerFastFailure`, by bytes instead of requests.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

from ternmq_broker.config import BrokerConfig


class Admission:
    """Count of received and unanswered bytes of all streams, and of other calls that store.

    Owned by the broker's loop.
    """

    def __init__(self, *, bytes_max: int, bytes_per_stream_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes_per_stream_max = bytes_per_stream_max
        self._bytes = 0
        self._calls = 0
        self._listeners: dict[object, Callable[[], None]] = {}

    @property
    def bytes(self) -> int:
        """Number of received and unanswered bytes of all streams."""
        return self._bytes

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


def admission_of(config: BrokerConfig) -> Admission:
    """Return the count of unanswered bytes, with the limits of `config`."""
    return Admission(
        bytes_max=config.unanswered_max_bytes,
        bytes_per_stream_max=config.stream_unanswered_max_bytes,
    )
