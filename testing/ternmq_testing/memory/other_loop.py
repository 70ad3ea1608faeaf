"""The network of a host for clients on other event loops than the network's own."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final, Generic, TypeVar

from google.protobuf.message import Message as ProtoMessage

from ternmq_model.address import Address
from ternmq_model.errors import ClosedError, UsageError
from ternmq_remoting.encoded_message import EncodedMessage
from ternmq_remoting.rpc import (
    ClientStream,
    Connection,
    Gate,
    Handler,
    Identity,
    Listener,
    Network,
    Rep,
    Req,
    Server,
    StreamRpc,
    UnaryRpc,
)

T = TypeVar("T")
ReadT = TypeVar("ReadT", bound=ProtoMessage)
WriteT = TypeVar("WriteT", bound=ProtoMessage)

_BLOCKED_S: Final = 2.5
"""Real time after which a loop that runs no callback is taken for blocked, s."""

_LOOK_S: Final = 0.1
"""Interval between looks whether the other loop still runs, s."""


async def run_on(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    """Run `coroutine` on a loop of another thread and return its result.

    Cancelling cancels the coroutine.

    Raises:
        ClosedError: The loop has ended, or ends before the coroutine.
    """
    try:
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    except RuntimeError:
        coroutine.close()
        raise ClosedError("the other event loop has ended") from None
    answer = asyncio.wrap_future(future)
    try:
        while not answer.done() and loop.is_running():
            await asyncio.wait([answer], timeout=_LOOK_S)
    finally:
        answer.cancel()  # has no effect on an answer that is there
    if answer.cancelled():
        raise ClosedError("the other event loop has ended")
    return answer.result()


async def visit(
    loop: asyncio.AbstractEventLoop, function: Callable[[Callable[[], object]], object]
) -> None:
    """Call `function` on a loop of another thread, and wait until it calls its argument.

    A loop that has ended is not waited for. It gets no task, which it might leave behind.
    """
    here = asyncio.get_running_loop()
    over = asyncio.Event()

    def end() -> None:
        with suppress(RuntimeError):  # this loop has ended meanwhile
            here.call_soon_threadsafe(over.set)

    def call() -> None:
        try:
            function(end)
        except BaseException:
            end()
            raise

    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        return
    while not over.is_set() and loop.is_running():
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                await over.wait()


async def check_not_blocked(loop: asyncio.AbstractEventLoop) -> None:
    """Wait until the loop of a cluster runs a callback.

    Raises:
        UsageError: Something blocks the thread of the loop.
    """
    try:
        async with asyncio.timeout(_BLOCKED_S):
            await run_on(loop, asyncio.sleep(0))
    except TimeoutError:
        raise UsageError(
            "the event loop of the cluster is blocked: in an async test, open and use blocking "
            "clients in other threads, as by `asyncio.to_thread`, or use a BlockingCluster"
        ) from None


class OtherLoopNetwork:
    """A host's network, whose connections live on the network's own loop.

    Args:
        network: Network of the host.
        loop: Event loop of the network, which runs in another thread.
    """

    def __init__(self, network: Network, loop: asyncio.AbstractEventLoop) -> None:
        self._network, self._loop = network, loop

    async def connect(
        self,
        addresses: Sequence[Address],
        *,
        expect: Identity | None = None,
        timeout_s: float = 1.0,
    ) -> Connection:
        """Connect on the network's loop."""
        connecting = self._network.connect(addresses, expect=expect, timeout_s=timeout_s)
        return _OtherLoopConnection(await run_on(self._loop, connecting), self._loop)

    def serve(
        self,
        handlers: Sequence[Handler],
        listen: Address,
        *,
        identity: Identity | None = None,
        gate: Gate | None = None,
    ) -> AbstractAsyncContextManager[Server]:
        """Refuse: services run on the network's own loop."""
        raise UsageError(f"{listen}: only the loop of the cluster serves")

    def listener(self, listen: Address, *, plain_port: int | None = None) -> Listener:
        """Refuse: services run on the network's own loop."""
        raise UsageError(f"{listen}: only the loop of the cluster serves")


class _OtherLoopConnection:
    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._connection, self._loop = connection, loop

    @property
    def address(self) -> Address:
        return self._connection.address

    @property
    def identity(self) -> Identity | None:
        return self._connection.identity

    async def call(self, rpc: UnaryRpc[Req, Rep], request: Req, *, timeout_s: float) -> Rep:
        calling = self._connection.call(rpc, request, timeout_s=timeout_s)
        return await run_on(self._loop, calling)

    def open(self, rpc: StreamRpc[Req, Rep]) -> ClientStream[Rep, Req]:
        return _OtherLoopStream(self._connection, rpc, self._loop)

    async def close(self) -> None:
        with suppress(ClosedError):
            await run_on(self._loop, self._connection.close())


class _OtherLoopStream(Generic[ReadT, WriteT]):
    def __init__(
        self,
        connection: Connection,
        rpc: StreamRpc[WriteT, ReadT],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._loop = loop
        self._opened: ClientStream[ReadT, WriteT] | None = None

        def begin() -> None:
            self._opened = connection.open(rpc)

        loop.call_soon_threadsafe(begin)  # before all that is asked of the stream

    async def read(self) -> ReadT | None:
        return await run_on(self._loop, self._read())

    async def write(self, message: WriteT | EncodedMessage, /) -> None:
        await run_on(self._loop, self._write(message))

    async def finish(self) -> None:
        await run_on(self._loop, self._finish())

    def cancel(self) -> None:
        with suppress(RuntimeError):  # the loop is closed, and the stream over
            self._loop.call_soon_threadsafe(lambda: self._stream.cancel())

    @property
    def _stream(self) -> ClientStream[ReadT, WriteT]:
        assert self._opened is not None, "begins first"
        return self._opened

    async def _read(self) -> ReadT | None:
        return await self._stream.read()

    async def _write(self, message: WriteT | EncodedMessage) -> None:
        await self._stream.write(message)

    async def _finish(self) -> None:
        await self._stream.finish()
