"""Stream of requests about transactions to one broker, opened again after it broke."""

import asyncio
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

from google.protobuf.message import Message

from ternmq_client.instance import ClientInstance
from ternmq_model.errors import (
    ClosedError,
    ConnectionLost,
    RequestTimedOut,
    TernError,
    TransportError,
)
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import TopicRoute
from ternmq_remoting.rpc import ClientStream, Connection, StreamRpc

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)

ROWS_MAX: Final = 1024
"""Transactions in one request."""

LATER: Final = frozenset(
    {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLOW_CONTROL}
)
"""Refusals that the same broker may take back soon."""


class TransactionStream(Generic[Request, Reply]):
    """Stream to one broker, on which each request has one reply.

    Args:
        client: Open client.
        broker_name: Name of the broker.
        rpc: RPC of the stream.
        topics: Topics of the broker, whose routes are asked when no known route has the broker.
        answer_timeout_s: Time limit of each reply.
    """

    def __init__(
        self,
        client: ClientInstance,
        broker_name: str,
        rpc: StreamRpc[Request, Reply],
        *,
        topics: Iterable[str] = (),
        answer_timeout_s: float,
    ) -> None:
        self._client = client
        self._broker_name = broker_name
        self._topics = tuple(dict.fromkeys(topics))
        self._rpc = rpc
        self._answer_timeout_s = answer_timeout_s
        self._stream: ClientStream[Reply, Request] | None = None
        self._connection: Connection | None = None

    @property
    def address(self) -> str:
        """`HOST:PORT` of the broker; empty before the first opening."""
        return "" if self._connection is None else str(self._connection.address)

    async def open(self) -> None:
        """Open the stream, unless it is open.

        Raises:
            TransportError: The broker cannot be reached, or no NameServer answers.
        """
        if self._stream is None:
            if self._topics:
                await self._look_for_broker()
            self._connection = await self._client.broker(self._broker_name)
            self._stream = self._connection.open(self._rpc)

    async def exchange(self, request: Request) -> Reply:
        """Write `request` to the open stream and return the reply. An error closes the stream.

        Raises:
            RequestTimedOut: No reply came in time.
            ConnectionLost: The broker ended the stream.
        """
        assert self._stream is not None, "the stream is open"
        try:
            async with self._client.env.timers.timeout(self._answer_timeout_s):
                await self._stream.write(request)
                reply = await self._stream.read()
            if reply is None:
                raise ConnectionLost(f"broker {self._broker_name}: ended the stream")
            return reply
        except TimeoutError:
            self.close()  # the connection stays: a slow disk is no broken connection
            raise RequestTimedOut(f"broker {self._broker_name}: no answer in time") from None
        except TransportError:
            self._forget()
            raise
        except ClosedError as error:
            # Another call gave the connection up. A closed client raises at the next `open`.
            self.close()
            raise ConnectionLost(str(error)) from error
        except BaseException:
            self.close()
            raise

    async def _look_for_broker(self) -> None:
        """Ask for the routes of the topics, unless a known route has the broker."""
        routes = self._client.routes
        for topics in (self._topics[:1], self._topics[1:]):
            if routes.is_named(self._broker_name):
                return
            # Concurrently, so that a silent NameServer is waited for once.
            replies = await asyncio.gather(*map(routes.route_now, topics), return_exceptions=True)
            for error in replies:
                if isinstance(error, TransportError):
                    if routes.find_broker(self._broker_name) is None:
                        raise error
                elif not isinstance(error, TernError | TopicRoute):
                    raise error

    def _forget(self) -> None:
        self.close()
        connection, self._connection = self._connection, None
        if connection is not None:
            self._client.forget(self._broker_name, connection)

    def close(self) -> None:
        """End the stream, if there is one. Safe to repeat."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()
