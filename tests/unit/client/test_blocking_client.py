"""The blocking face: threads outside, one loop inside."""

import asyncio
import inspect
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from types import TracebackType

import pytest

from ternmq_client.blocking_client import BlockingClient, LoopThread, blocking, on_loop
from ternmq_model.errors import ClosedError


class Client(AbstractAsyncContextManager["Client", None]):
    """An async client that checks that one task enters and leaves it."""

    def __init__(self, *, fails: str = "") -> None:
        self.fails = fails
        self.events: list[str] = []
        self._task: asyncio.Task[object] | None = None

    async def __aenter__(self) -> "Client":
        if self.fails == "entering":
            raise ClosedError("cannot be entered")
        self._task = asyncio.current_task()
        self.events.append("entered")
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert asyncio.current_task() is self._task
        self.events.append("left")
        if self.fails == "leaving":
            raise ClosedError("cannot be left")

    async def double(self, number: int) -> int:
        await asyncio.sleep(0)
        if number < 0:
            raise ValueError(number)
        return 2 * number

    def halve(self, number: int) -> "asyncio.Future[int]":
        return asyncio.ensure_future(self.double(number // 4))

    def total(self, numbers: Iterable[int], *, start: int = 0) -> int:
        """Return the sum of `numbers`."""
        assert asyncio.get_running_loop()
        return sum(numbers, start)


class Face(BlockingClient[Client]):
    """Its blocking face."""

    double = blocking(Client.double)
    halve = blocking(Client.halve, returns=int)
    total = on_loop(Client.total)


def test_calls_of_many_threads_run_on_one_loop() -> None:
    client = Client()
    with Face(client) as face, ThreadPoolExecutor(8) as pool:
        assert list(pool.map(face.double, range(100))) == [2 * n for n in range(100)]
        with pytest.raises(ValueError, match="-1"):
            face.double(-1)
    assert client.events == ["entered", "left"]


def test_blocking_verb_has_the_signature_and_docstring_of_the_async_one() -> None:
    assert inspect.signature(Face.total) == inspect.signature(Client.total)
    assert Face.total.__doc__ == "Return the sum of `numbers`."
    assert Face.double.__name__ == "double"


def test_blocking_verb_of_an_awaitable_shows_the_type_of_its_result() -> None:
    assert inspect.signature(Face.double) == inspect.signature(Client.double)
    shown = inspect.signature(Face.halve)
    assert shown.return_annotation is Face.halve.__annotations__["return"] is int
    assert shown.parameters == inspect.signature(Client.halve).parameters
    assert Client.halve.__annotations__["return"] == "asyncio.Future[int]"
    with Face(Client()) as face:
        assert face.halve(8) == 4


def test_iterator_argument_is_read_by_the_calling_thread() -> None:
    with Face(Client()) as face:
        assert face.total((face.double(number) for number in range(3)), start=1) == 7
        assert face.total(numbers=map(face.double, range(3))) == 6


def test_all_blocking_clients_share_one_loop_thread() -> None:
    with Face(Client()) as one, Face(Client()) as other:
        assert one.double(2) == other.double(2) == 4
    with Face(Client()) as later:
        assert later.double(1) == 2
    assert [thread.name for thread in threading.enumerate()].count("ternmq-loop") == 1


def test_closed_blocking_client_refuses_and_may_be_closed_again() -> None:
    face = Face(Client())
    with pytest.raises(ClosedError):
        face.double(1)
    with face:
        pass
    face.close()
    with pytest.raises(ClosedError):
        face.double(1)


def test_errors_of_entering_and_leaving_are_raised() -> None:
    with pytest.raises(ClosedError, match="cannot be entered"), Face(Client(fails="entering")):
        pass
    with pytest.raises(ClosedError, match="cannot be left"), Face(Client(fails="leaving")):
        pass


def test_loop_thread_does_not_wait_for_itself() -> None:
    thread = LoopThread()
    thread.start()

    async def inner() -> None:
        thread.run(asyncio.sleep(0))

    with pytest.raises(ClosedError, match="own loop"):
        thread.run(inner())
    thread.close()
    thread.close()


def test_closing_cancels_running_calls() -> None:
    thread = LoopThread()
    thread.start()
    future = thread.submit(asyncio.sleep(3600))
    thread.close()
    assert future.cancelled()
