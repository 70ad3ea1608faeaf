"""A client whose brokers say what a test has written down."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, cast

from ternmq_model.errors import TernError
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Connection, Identity, Network
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.time.virtual_time import VirtualClock

Said = Any
"""A reply, an error, or None for the end of the stream."""


def numbered(data: bytes, offset: int) -> bytes:
    """Return a record with another queue offset."""
    return data[:20] + offset.to_bytes(8, "big") + data[28:]


class ScriptedClient:
    """What reading ranges needs of a client.

    Args:
        scripts: What each connection says, one after the other; the last one again and again.
        answers: Replies to unary calls, by RPC; a function of the request.

    Attributes:
        requests: What was written, by connection.
        forgotten: Broker ids of connections that were given up.
        cancelled: How many streams were cancelled.
        broker_ids: Who answers, by connection; 0 where it says nothing.
    """

    def __init__(
        self,
        scripts: Sequence[Iterable[Said]] = ((),),
        *,
        answers: Mapping[Any, Callable[[Any], Any]] | None = None,
        broker_ids: Sequence[int] = (),
    ) -> None:
        self.env = Environment(
            clock=VirtualClock(),
            network=cast("Network", None),
            random=Random(1),
            blocking=InlineBlocking(),
        )
        self.client_id = "test@1"
        self.routes: Any = self
        self._scripts = [list(script) for script in scripts]
        self._answers = answers or {}
        self.broker_ids = broker_ids
        self.requests: list[list[Any]] = []
        self.forgotten: list[int] = []
        self.cancelled = 0

    async def route(self, topic: str) -> "ScriptedClient":
        """Know every topic."""
        return self

    def broker(self, broker_name: str) -> str:
        """Name every broker in its route."""
        return broker_name

    async def reader(self, broker_name: str) -> Connection:
        """Give the next connection."""
        number = len(self.requests)
        self.requests.append([])
        script = self._scripts[min(number, len(self._scripts) - 1)]
        broker_id = self.broker_ids[number] if number < len(self.broker_ids) else 0
        return cast("Connection", _Connection(self, number, list(script), broker_name, broker_id))

    def forget(self, broker_name: str, connection: Connection, broker_id: int = 0) -> None:
        """Take note."""
        self.forgotten.append(broker_id)

    def answer(self, rpc: Any, request: Any) -> Any:
        """Answer a unary call."""
        return self._answers[rpc](request)


class _Connection:
    """A connection, and the one stream that is opened over it."""

    def __init__(
        self,
        client: ScriptedClient,
        number: int,
        script: list[Said],
        broker_name: str,
        broker_id: int,
    ) -> None:
        self._client = client
        self._number = number
        self._script = script
        self.identity = Identity("c", broker_name, broker_id, 1)

    async def call(self, rpc: Any, request: Any, *, timeout_s: float) -> Any:
        self._client.requests[self._number].append(request)
        return self._client.answer(rpc, request)

    def open(self, rpc: Any) -> "_Connection":
        return self

    async def write(self, message: Any) -> None:
        self._client.requests[self._number].append(message)

    async def finish(self) -> None:
        return

    async def read(self) -> Any:
        await asyncio.sleep(0)
        if not self._script:
            return None
        said = self._script.pop(0)
        if isinstance(said, TernError):
            raise said
        return said

    def cancel(self) -> None:
        self._client.cancelled += 1
