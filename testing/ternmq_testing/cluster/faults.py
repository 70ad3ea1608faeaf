"""Faults of one member of a cluster, between the network and its handlers.

They act on calls and streams whichever network carries them.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, Final

from ternmq_model.arrays import INT32_BYTES
from ternmq_model.errors import ConnectionLost, CorruptRecord, UsageError, refusal
from ternmq_model.record.format import decode_record
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.connection_limits import PortLimit
from ternmq_remoting.rpc import (
    Address,
    Call,
    Connection,
    Gate,
    Handler,
    Identity,
    Listener,
    Network,
    Server,
    ServerStream,
    StreamRpc,
)
from ternmq_remoting.service_methods import SEND, SEND_STREAM

_REFUSAL: Final = "refused by the test"

_TOLD: Final = frozenset(
    {
        "Send",
        "SendBack",
        "EndTransaction",
        "EndTransactions",
        "ResetOffsets",
        "PutTopic",
        "DeleteTopic",
    }
)
"""RPCs that are events of a cluster; others are too many, or change nothing."""


class Faults:
    """The faults of one member, from its start to its end. Used on the cluster's loop.

    Args:
        note: Called with a sentence about each fault that struck.
        on_message: Called for each message into the member and out of it.
    """

    def __init__(self, note: Callable[[str], None], on_message: Callable[[], None]) -> None:
        self._note, self._on_message = note, on_message
        self._rpcs: set[str] = set()
        self._lost_answers: Counter[str] = Counter()
        self._refused_sends = 0
        self._is_dead = False
        self._running = asyncio.Event()
        self._running.set()

    @property
    def is_paused(self) -> bool:
        """Requests and answers wait."""
        return not self._running.is_set()

    def pause(self, is_paused: bool = True) -> None:
        """Let requests and answers wait until it goes on."""
        if is_paused:
            self._running.clear()
        else:
            self._running.set()

    def drop_answers(self, rpc: str, count: int) -> None:
        """Lose the next `count` answers of an RPC: it takes effect, and its connection breaks.

        Raises:
            UsageError: The member has no such RPC.
        """
        if rpc not in self._rpcs:
            near = get_close_matches(rpc, self._rpcs, 1, cutoff=0)
            raise UsageError(f"a broker has no RPC {rpc!r}; did you mean {near[0]!r}?")
        self._lost_answers[rpc] += count

    def refuse(self, count: int) -> None:
        """Refuse the next `count` requests to send, which store nothing."""
        self._refused_sends += count

    def kill(self) -> None:
        """Let nothing more come out of the member, or go into it."""
        self._is_dead = True
        self._running.set()

    def heal(self) -> None:
        """Let nothing go wrong any more. A dead member stays dead."""
        self._lost_answers.clear()
        self._refused_sends = 0
        self._running.set()

    async def pass_on(self) -> None:
        """Wait while the member is paused.

        Raises:
            ConnectionLost: The member is dead.
        """
        self._on_message()
        await self._running.wait()
        if self._is_dead:
            raise ConnectionLost("the member is dead")

    def note(self, text: str) -> None:
        """Add an event of the member."""
        self._note(text)

    def loses_answer(self, rpc: str) -> bool:
        """Return whether the answer that is about to leave is lost, and count it."""
        if self._lost_answers[rpc] <= 0:
            return False
        self._lost_answers[rpc] -= 1
        self._note(f"an answer of {rpc} was lost")
        return True

    def refuses_send(self) -> bool:
        """Return whether the request to send is refused, and count it."""
        if not self._refused_sends:
            return False
        self._refused_sends -= 1
        self._note("a send was refused")
        return True

    def wrap(self, handler: Handler) -> Handler:
        """Return the handler with these faults."""
        rpc = handler.rpc
        self._rpcs.add(rpc.name)

        async def serve_call(request: Any, call: Call) -> Any:
            await self.pass_on()
            if rpc.path == SEND.path and self.refuses_send():
                raise refusal(ResponseCode.SYSTEM_BUSY, _REFUSAL)
            reply = await handler.function(request, call)
            if rpc.name in _TOLD:
                of = f" of group {group}" if (group := getattr(request, "group", "")) else ""
                self._note(f"{rpc.name}{of}: {_outcome_of(reply)}")
            await self.pass_on()
            if self.loses_answer(rpc.name):
                raise ConnectionLost("the answer is lost")
            return reply

        async def serve_stream(stream: ServerStream[Any, Any], call: Call) -> None:
            kind = _SendingStream if rpc.path == SEND_STREAM.path else _Stream
            await handler.function(kind(self, rpc.name, stream), call)

        function = serve_stream if isinstance(rpc, StreamRpc) else serve_call
        return replace(handler, function=function)


def _described(batch: messages.SendBatch) -> str:
    """Return an event for messages that came."""
    count = len(batch.record_sizes) // INT32_BYTES
    came = "a message came" if count == 1 else f"{count} messages came, the first"
    record = None
    with suppress(CorruptRecord):
        record = decode_record(batch.records, check_crc=False)
    return f"{came} to {record.topic.decode() if record is not None else 'no topic'}"


def _outcome_of(reply: Any) -> str:
    """Return the outcome of a call as a word of the response codes."""
    status = getattr(reply, "status", None)
    code = 0 if status is None else status.code
    return ResponseCode(code).name if code in ResponseCode.__members__.values() else str(code)


class _Stream:
    """A handler's side of a stream, with faults."""

    def __init__(self, faults: Faults, rpc: str, stream: ServerStream[Any, Any]) -> None:
        self._faults, self._rpc, self._stream = faults, rpc, stream
        self._reader: asyncio.Task[Any] | None = None
        self._is_broken = False

    async def read(self) -> Any:
        """Return the next message. A lost answer breaks the stream for its reader too."""
        self._check_whole()
        self._reader = reader = asyncio.current_task()
        try:
            request = await self._stream.read()
        except asyncio.CancelledError:
            if self._is_broken and reader is not None and not reader.uncancel():
                self._check_whole()
            raise
        finally:
            self._reader = None
        await self._faults.pass_on()
        return request

    async def write(self, message: Any, /) -> None:
        """Send `message`, or lose it and break the stream."""
        await self._faults.pass_on()
        if self._is_answer(message) and self._faults.loses_answer(self._rpc):
            self._is_broken = True
            if self._reader is not None:  # another task reads
                self._reader.cancel()
        self._check_whole()
        await self._stream.write(message)

    def _check_whole(self) -> None:
        if self._is_broken:
            raise ConnectionLost("the answer is lost")

    def _is_answer(self, message: Any) -> bool:
        return True


class _SendingStream(_Stream):
    """A SendStream, some of whose batches are refused. Answers keep the order of the batches."""

    def __init__(self, faults: Faults, rpc: str, stream: ServerStream[Any, Any]) -> None:
        super().__init__(faults, rpc, stream)
        self._waiting: deque[bool] = deque()
        """Unanswered batches: True = refused here, False = the handler answers."""

    async def read(self) -> Any:
        """Return the next message that is not refused."""
        while True:
            request = await super().read()
            if request is None or request.WhichOneof("request") != "batch":
                return request
            is_refused = self._faults.refuses_send()
            self._waiting.append(is_refused)
            self._faults.note(_described(request.batch))
            if not is_refused:
                return request
            await self._answer_refused()

    async def write(self, message: Any, /) -> None:
        """Send an answer, and the refusals behind it."""
        await super().write(message)
        if self._is_answer(message):
            self._waiting.popleft()
            await self._answer_refused()

    def _is_answer(self, message: Any) -> bool:
        return not isinstance(message, messages.SendStreamReply) or message.HasField("stored")

    async def _answer_refused(self) -> None:
        while self._waiting and self._waiting[0]:
            self._waiting.popleft()
            status = {"code": ResponseCode.SYSTEM_BUSY, "remark": _REFUSAL}
            stored = messages.SendBatchReply(status=status)
            await self._stream.write(messages.SendStreamReply(stored=stored))


class FaultyNetwork:
    """The network of one member, whose handlers have faults."""

    def __init__(self, network: Network, faults: Faults) -> None:
        self._network, self._faults = network, faults

    async def connect(
        self,
        addresses: Sequence[Address],
        *,
        expect: Identity | None = None,
        timeout_s: float = 1.0,
    ) -> Connection:
        """Connect as the network does."""
        await self._faults.pass_on()
        return await self._network.connect(addresses, expect=expect, timeout_s=timeout_s)

    def serve(
        self,
        handlers: Sequence[Handler],
        listen: Address,
        *,
        identity: Identity | None = None,
        gate: Gate | None = None,
    ) -> AbstractAsyncContextManager[Server]:
        """Serve `handlers` with the faults."""
        wrapped = [self._faults.wrap(each) for each in handlers]
        return self._network.serve(wrapped, listen, identity=identity, gate=gate)

    def listener(self, listen: Address, *, plain_port: int | None = None) -> Listener:
        """Return a port whose servers have the faults."""
        return _FaultyListener(self._network.listener(listen, plain_port=plain_port), self._faults)


class _FaultyListener:
    def __init__(self, listener: Listener, faults: Faults) -> None:
        self._listener, self._faults = listener, faults
        self.stays_open = listener.stays_open

    @property
    def counts(self) -> Mapping[PortLimit, int]:
        return self._listener.counts

    @asynccontextmanager
    async def serve(
        self,
        handlers: Sequence[Handler],
        *,
        identity: Identity | None = None,
        gate: Gate | None = None,
    ) -> AsyncGenerator[Server]:
        wrapped = [self._faults.wrap(each) for each in handlers]
        async with self._listener.serve(wrapped, identity=identity, gate=gate) as server:
            try:
                yield server
            finally:
                self._listener.stays_open = self.stays_open

    async def close(self) -> None:
        await self._listener.close()
