"""The scanner of plain code, such as Spark's workers: iterators over ranges of queues."""

import asyncio
import functools
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from ternmq_client.blocking_client import BlockingClient, blocking, shared_loop_thread
from ternmq_client.config import ClientConfig, nameserver_texts
from ternmq_client.instance import ClientInstance
from ternmq_consumer.scan.measurement import measure
from ternmq_consumer.scan.range_batches import (
    RETRY_TIMEOUT_S,
    PulledBatch,
    ScannedBatch,
    ScanOptions,
)
from ternmq_consumer.scan.range_pull import pull_range
from ternmq_consumer.scan.range_scan import scan_range
from ternmq_model.errors import ClosedError
from ternmq_model.queue import MessageQueue
from ternmq_model.subscription import Subscription

T = TypeVar("T")

AHEAD_MAX: Final = 2
"""Batches that are read and not yet taken: one more may be under way."""


class _ReadAhead(Generic[T]):
    """Batches that are read ahead of an iterator. Owned by the loop of all blocking clients."""

    def __init__(self, items: AsyncGenerator[T]) -> None:
        self._items = items
        self._read: deque[T] = deque()
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self._is_over = False

    async def run(self) -> None:
        """Read, never more than so far ahead. What it raises is raised by `next`."""
        try:
            async with aclosing(self._items) as items:
                async for item in items:
                    self._read.append(item)
                    self._changed.set()
                    while len(self._read) >= AHEAD_MAX:
                        self._changed.clear()
                        await self._changed.wait()
        except Exception as error:
            self._failure = error
        except BaseException:
            self._failure = ClosedError("the iterator was closed")
            raise
        finally:
            self._is_over = True
            self._changed.set()

    async def next(self) -> T | None:
        """Return what comes next, waiting for it; None when that was all.

        Raises:
            TernError: As the reading of the range did.
        """
        while not self._read:
            if self._is_over:
                failure, self._failure = self._failure, None
                if failure is not None:
                    raise failure
                return None
            self._changed.clear()
            await self._changed.wait()
        item = self._read.popleft()
        self._changed.set()
        return item


class BlockingBatchIterator(Generic[T]):
    """Iterator over a range for plain code, while the loop thread reads ahead.

    `with scanner.scan(…) as batches:` gives up what is left when the block is left early.
    """

    def __init__(self, client: ClientInstance, items: Callable[[], AsyncGenerator[T]]) -> None:
        """Use `BlockingScanner`."""
        self._client = client
        self._items = items
        self._ahead: _ReadAhead[T] | None = None
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
        """Read no more. Safe to repeat, also when the scanner is closed."""
        self._is_over = True
        if self._task is not None:
            shared_loop_thread().run(self._cancel())

    async def _next(self) -> T | None:
        if self._ahead is None:
            self._ahead = _ReadAhead(self._items())
            self._task = self._client.tasks.spawn(self._ahead.run(), "scan-ahead")
        return await self._ahead.next()

    async def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._task = None


class BlockingScanner(BlockingClient[ClientInstance]):
    """Scanner of ranges of queues: `with BlockingScanner("localhost:9876") as scanner`.

    An event loop in a thread of its own does the work. Any thread may use it; one iterator is used
    by one thread.

    Args:
        nameserver: `HOST:PORT`, or several.
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
        subscription: Subscription | None = None,
        *,
        created_log_offset: int | None = None,
        retry_timeout_s: float = RETRY_TIMEOUT_S,
    ) -> BlockingBatchIterator[PulledBatch]:
        """Iterate over a range as records; see `pull_range`."""
        client = self._client
        return BlockingBatchIterator(
            client,
            lambda: pull_range(
                client,
                queue,
                begin,
                end,
                subscription,
                created_log_offset=created_log_offset,
                retry_timeout_s=retry_timeout_s,
            ),
        )

    measure = blocking(measure)


def shared_scanner(nameserver: str) -> BlockingScanner:
    """Return this process's scanner for a cluster: opened at first use, kept until it ends.

    Raises:
        UsageError: The address cannot be.
    """
    return _opened(nameserver, os.getpid())


@functools.cache
def _opened(nameserver: str, _pid: int) -> BlockingScanner:
    scanner = BlockingScanner(nameserver)
    scanner.__enter__()
    return scanner
