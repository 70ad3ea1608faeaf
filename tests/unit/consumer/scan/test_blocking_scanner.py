"""Iteration over a range from plain code."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import cast

import pytest

from ternmq_client.blocking_client import shared_loop_thread
from ternmq_client.instance import ClientInstance
from ternmq_consumer.scan import BlockingBatchIterator, BlockingScanner
from ternmq_consumer.scan.blocking_scanner import AHEAD_MAX
from ternmq_model.errors import ClosedError, UsageError
from ternmq_runtime.service import OwnedTasks


class Client:
    """Owns tasks, as a client does."""

    def __init__(self) -> None:
        self.tasks = OwnedTasks()


@contextmanager
def client() -> Generator[ClientInstance]:
    made = Client()
    loop = shared_loop_thread()
    opened: Future[asyncio.Event] = Future()

    async def keep() -> None:
        async with made.tasks:
            over = asyncio.Event()
            opened.set_result(over)
            await over.wait()

    async def leave() -> None:
        opened.result().set()

    keeping = loop.submit(keep())
    opened.result()
    yield cast("ClientInstance", made)
    loop.run(leave())
    keeping.result()


class Numbers:
    """Counts, and takes note of how far it was asked to."""

    def __init__(self, end: int, error: Exception | None = None) -> None:
        self.end = end
        self.error = error
        self.given = 0
        self.is_closed = False

    async def items(self) -> AsyncGenerator[int]:
        try:
            for number in range(self.end):
                self.given = number + 1
                yield number
            if self.error is not None:
                raise self.error
        finally:
            self.is_closed = True


def test_all_items_come_in_order_and_then_the_end() -> None:
    with client() as made:
        numbers = Numbers(100)
        items = BlockingBatchIterator(made, numbers.items)
        assert list(items) == list(range(100))
        assert list(items) == []
        assert numbers.is_closed


def test_reading_ahead_is_bounded() -> None:
    async def rest() -> None:
        await asyncio.sleep(0.01)

    with client() as made:
        numbers = Numbers(100)
        with BlockingBatchIterator(made, numbers.items) as items:
            assert next(items) == 0
            shared_loop_thread().run(rest())
            assert numbers.given <= 1 + AHEAD_MAX
        assert numbers.is_closed
        assert numbers.given <= 1 + AHEAD_MAX


def test_error_comes_after_items_read_before_it() -> None:
    with client() as made:
        items = BlockingBatchIterator(made, Numbers(3, UsageError("no more")).items)
        read: list[int] = []
        with pytest.raises(UsageError, match="no more"):
            read.extend(items)
        assert read == [0, 1, 2]
        assert list(items) == []


def test_closing_is_safe_to_repeat_and_before_the_first_item() -> None:
    with client() as made:
        items = BlockingBatchIterator(made, Numbers(3).items)
        items.close()
        items.close()
        assert list(items) == []


def test_unopened_scanner_reports_it() -> None:
    with pytest.raises(ClosedError):
        BlockingScanner("localhost:1").measure([])
