"""Blocking scanner, as for Spark's workers: iterators over ranges of queues."""

import asyncio
import functools
import os
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from ternmq_client.blocking_client import BlockingClient, blocking, shared_loop_thread
from ternmq_client.config import ClientConfig, nameserver_texts
from ternmq_client.instance import ClientInstance
from ternmq_consumer.scan.measurement import measure
from ternmq_consumer.scan.range_batches import PulledBatch, ScannedBatch, ScanOptions
from ternmq_consumer.scan.range_pull import pull_range
from ternmq_consumer.scan.range_scan import scan_range
from ternmq_model.errors import ClosedError
from ternmq_model.queue import MessageQueue

T = TypeVar("T")

AHEAD_MAX: Final = 2
"""Limit of batches that are read ahead; one more may be on its way."""


class BlockingBatchIterator(Generic[T]):
    """Blocking iterator over a range, while the loop thread reads ahead.

    `with scanner.scan(…) as batches:` cancels the rest of the range at the end of the block.
    """

    def __init__(self, client: ClientInstance, items: Callable[[], AsyncGenerator[T]]) -> None:
        """Use `BlockingScanner`."""
        self._client = client
        self._items = items
        self._ahead: asyncio.Queue[T | Exception | None] = asyncio.Queue(AHEAD_MAX - 1)
        # Besides those, `_read_ahead` has one in hand.
        self._task: asyncio.Task[None] | None = None
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._is_over:
            raise StopIteration
        try:
            item = shared_loop_thread().run(self._next())
        except BaseException:
            self.close()
            raise
        if item is None:
            self._is_over = True
            raise StopIteration
        return item

    def close(self) -> None:
        """Stop reading. Safe to repeat, also when the scanner is closed."""
        self._is_over = True
        if self._task is not None:
            shared_loop_thread().run(self._cancel())

    async def _next(self) -> T | None:
        if self._task is None:
            self._task = self._client.tasks.spawn(self._read_ahead(), "scan-ahead")
        item = await self._ahead.get()
        if isinstance(item, Exception):
            raise item
        return item

    async def _read_ahead(self) -> None:
        """Put every item, and behind the last one None or the error that ended the reading."""
        end: Exception | None = None
        try:
            try:
                async with aclosing(self._items()) as items:
                    async for item in items:
                        await self._ahead.put(item)
            except Exception as error:
                end = error
            await self._ahead.put(end)
        except asyncio.CancelledError:
            while not self._ahead.empty():
                self._ahead.get_nowait()
            self._ahead.put_nowait(ClosedError("the iterator was closed"))
            raise

    async def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._task = None


class BlockingScanner(BlockingClient[ClientInstance]):
    """Scanner of ranges of queues: `with BlockingScanner("localhost:9876") as scanner`.

    An event loop in another thread does the work. Any thread may use the scanner, and one thread
    each iterator.

    Args:
        nameserver: `HOST:PORT`, or several addresses.
    """

    def __init__(self, nameserver: str | Sequence[str]) -> None:
        super().__init__(ClientInstance(ClientConfig(nameservers=nameserver_texts(nameserver))))

    def scan(
        self, queue: MessageQueue, begin: int, end: int, options: ScanOptions | None = None
    ) -> BlockingBatchIterator[ScannedBatch]:
        """Iterate over a range as Arrow batches; see `scan_range`."""
        client = self._client
        return BlockingBatchIterator(client, lambda: scan_range(client, queue, begin, end, options))

    def pull(
        self,
        queue: MessageQueue,
        begin: int,
        end: int,
        options: ScanOptions | None = None,
    ) -> BlockingBatchIterator[PulledBatch]:
        """Iterate over a range as records; see `pull_range`."""
        client = self._client
        return BlockingBatchIterator(client, lambda: pull_range(client, queue, begin, end, options))

    measure = blocking(measure)


def shared_scanner(nameserver: str) -> BlockingScanner:
    """Return the process's scanner for a cluster, which stays open until the process ends.

    Raises:
        UsageError: The address is invalid.
    """
    return _opened(nameserver, os.getpid())


@functools.cache
def _opened(nameserver: str, _pid: int) -> BlockingScanner:
    scanner = BlockingScanner(nameserver)
    scanner.__enter__()
    return scanner
