"""Stream of requests about transactions to one broker, opened again until all are answered."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Generic

from ternmq_client.instance import ClientInstance
from ternmq_client.retry_policy import RetryPolicy
from ternmq_client.retry_timeout import RetryTimeout
from ternmq_model.errors import (
    ClosedError,
    ConnectionLost,
    RefusedError,
    RequestTimedOut,
    TernError,
    TransportError,
)
from ternmq_model.route import TopicRoute
from ternmq_producer.transactions.transaction_ends import LATER, Reply, Request, exchange
from ternmq_remoting.rpc import ClientStream, Connection, StreamRpc

_ANSWER_TIMEOUT_S: Final = 15.0
"""A thousand commits on a slow disk take longer than one request. No longer than all may take."""


class Unanswered(TernError):
    """Raised by whoever takes replies: some of it must be asked again after a pause."""

    retryable = True

    def __init__(self, reason: TernError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class TransactionStream(Generic[Request, Reply]):
    """One stream to one broker at a time, opened again as often as it breaks.

    Args:
        client: Open.
        broker_name: Whom to ask.
        topics: Of it: their routes tell where it is.
        rpc: What to ask.
        retry: The waits after a failure.
        timeout_s: Given up when nothing was answered for so long.
    """

    def __init__(
        self,
        client: ClientInstance,
        broker_name: str,
        topics: Iterable[str],
        rpc: StreamRpc[Request, Reply],
        *,
        retry: RetryPolicy,
        timeout_s: float,
    ) -> None:
        self._client = client
        self._broker_name = broker_name
        self._topics = tuple(dict.fromkeys(topics))
        self._rpc = rpc
        self._retry = retry
        self._timeout_s = timeout_s
        self._answer_timeout_s = min(_ANSWER_TIMEOUT_S, timeout_s or _ANSWER_TIMEOUT_S)
        self._stream: ClientStream[Reply, Request] | None = None
        self._connection: Connection | None = None

    async def ask(self, make: Callable[[], Request], take: Callable[[Reply], None]) -> None:
        """Ask until `take` takes the answer without raising `Unanswered`.

        Args:
            make: Returns what is asked: anew for each attempt.
            take: Takes the reply.

        Raises:
            TernError: The time is over: why the last attempt failed. `may_have_happened` when one
                was written.
        """
        retry_timeout = RetryTimeout(self._client.env, self._timeout_s, delays=self._retry)
        was_written = False
        while True:
            failure: TernError
            try:
                stream = await self._open()
                was_written = True
                take(await self._exchange(stream, make()))
                return
            except Unanswered as error:
                failure = error.reason
            except TransportError as error:
                failure = error
            except RefusedError as error:
                self.close()
                if error.code not in LATER:
                    raise
                failure = error
            failure.may_have_happened |= was_written
            await retry_timeout.pause(failure, may_pass=True)

    async def _open(self) -> "ClientStream[Reply, Request]":
        if self._stream is None:
            await self._look_for_broker()
            self._connection = await self._client.broker(self._broker_name)
            self._stream = self._connection.open(self._rpc)
        return self._stream

    async def _look_for_broker(self) -> None:
        """Ask where the broker is, unless a route tells it: most often the first one does.

        Raises:
            TransportError: No NameServer answers, and no route has ever told it.
        """
        routes = self._client.routes
        for topics in (self._topics[:1], self._topics[1:]):
            if routes.is_named(self._broker_name):
                return
            # Side by side: a NameServer that is away is waited for once.
            asked = await asyncio.gather(*map(routes.route_now, topics), return_exceptions=True)
            for error in asked:
                if isinstance(error, TransportError):
                    if routes.find_broker(self._broker_name) is None:
                        raise error
                elif not isinstance(error, TernError | TopicRoute):
                    raise error

    async def _exchange(self, stream: "ClientStream[Reply, Request]", request: Request) -> Reply:
        try:
            return await exchange(
                stream,
                request,
                broker_name=self._broker_name,
                timeout_s=self._answer_timeout_s,
            )
        except RequestTimedOut:  # a slow disk is no broken connection
            self.close()
            raise
        except TransportError:
            self._forget()
            raise
        except ClosedError as error:
            # Others gave the connection up. A client that is closed says so when it opens another.
            self.close()
            raise ConnectionLost(str(error)) from error
        except BaseException:
            self.close()
            raise

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
