"""Calls over staged messages: their states and ends, a thousand in one request."""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ternmq_client.instance import ClientInstance
from ternmq_client.retry_policy import RetryPolicy
from ternmq_client.retry_timeout import RetryTimeout
from ternmq_model.errors import ConnectionLost, RefusedError, TernError, TransportError
from ternmq_model.response_code import ResponseCode
from ternmq_model.transaction import Resolution, check_states
from ternmq_producer.staging.staged_messages import StagedMessages
from ternmq_producer.staging.staging_errors import EndFailed
from ternmq_producer.transactions.transaction_checks import end_request
from ternmq_producer.transactions.transaction_stream import (
    LATER,
    ROWS_MAX,
    Reply,
    Request,
    TransactionStream,
)
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_remoting.converters import error_of
from ternmq_remoting.rpc import StreamRpc
from ternmq_remoting.service_methods import END_TRANSACTIONS, FIND_TRANSACTIONS

_ANSWER_TIMEOUT_S: Final = 15.0
"""Time limit of one reply, s: a thousand commits on a slow disk take longer than other requests."""

_NOT_OPEN: Final = frozenset(
    {
        ResponseCode.ILLEGAL_OPERATION,
        ResponseCode.QUERY_NOT_FOUND,
        ResponseCode.INVALID_PARAMETER,
    }
)
"""Refusals of transactions that have ended otherwise, are gone or are another's."""

Rows = NDArray[np.int64]


class Unanswered(TernError):
    """Error of a reply of which some requests must be sent again after a pause."""

    retryable = True

    def __init__(self, reason: TernError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class StagedCall:
    """One call of `states` or `end`.

    Args:
        client: Open client.
        group: Name of the producer group.
        staged: All messages of the call.
        retry: Waits after a failure.
        timeout_s: Time limit of a broker's silence.
    """

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        staged: StagedMessages,
        *,
        retry: RetryPolicy,
        timeout_s: float,
    ) -> None:
        self._client = client
        self._group = group
        self._staged = staged
        self._retry = retry
        self._timeout_s = timeout_s
        self._failed: dict[int, TernError] = {}
        self._failures = 0
        self._not_open = 0

    def check(self) -> None:
        """Raise `EndFailed` when some messages were not ended."""
        if self._failures:
            counts = {"failures": self._failures, "not_open": self._not_open}
            raise EndFailed(self._failed, count=len(self._staged), **counts)

    async def find(self, broker_name: str, rows: Rows, states: NDArray[np.uint8]) -> None:
        """Put the states of one broker's messages into `states`, or raise the broker's error."""
        stream = self._stream(broker_name, FIND_TRANSACTIONS)
        try:
            for start in range(0, len(rows), ROWS_MAX):
                some = rows[start : start + ROWS_MAX]
                take = self._take_states(some, states, broker_name)
                await self._ask(stream, self._question(some), take)
        finally:
            stream.close()

    def _question(self, rows: Rows) -> Callable[[], transactions.FindTransactionsRequest]:
        some = self._staged.take(rows)
        return lambda: transactions.FindTransactionsRequest(
            producer_group=self._group,
            transaction_offsets=some.transactions.tolist(),
            message_ids=some.message_ids(),
        )

    def _take_states(
        self, rows: Rows, states: NDArray[np.uint8], broker_name: str
    ) -> Callable[[transactions.FindTransactionsReply], None]:
        def take(reply: transactions.FindTransactionsReply) -> None:
            if reply.status.code:
                error = error_of(reply.status, broker_name)
                raise Unanswered(error) if _is_passing(error) else error
            if len(reply.states) != len(rows):
                raise ConnectionLost(f"broker {broker_name}: sent a different number of answers")
            check_states(reply.states, broker_name)
            states[rows] = np.array(list(reply.states), dtype=np.uint8)

        return take

    async def end(self, broker_name: str, rows: Rows, resolution: Resolution) -> None:
        """End one broker's messages in the order of `rows`; failures are left to `check`."""
        stream = self._stream(broker_name, END_TRANSACTIONS)
        try:
            for start in range(0, len(rows), ROWS_MAX):
                left = _RemainingEnds(self, rows[start : start + ROWS_MAX], resolution, broker_name)
                try:
                    await self._ask(stream, left.request, left.take, settles=True)
                except TernError as error:
                    self.fail(np.concatenate([left.rows, rows[start + ROWS_MAX :]]), error)
                    return
        finally:
            stream.close()

    def fail(self, rows: Rows, error: TernError) -> None:
        """Record messages that were not ended, or may not have been."""
        self._failures += len(rows)
        if isinstance(error, RefusedError) and error.code in _NOT_OPEN:
            self._not_open += len(rows)
        room = EndFailed.FAILED_MAX - len(self._failed)
        for row in rows[: max(0, room)].tolist():
            self._failed[row] = error

    def ends(self, rows: Rows, resolution: Resolution) -> transactions.EndTransactionsRequest:
        """Return the request that ends the messages of `rows`."""
        return transactions.EndTransactionsRequest(
            transactions=[
                end_request(
                    group=self._group,
                    topic=one.topic,
                    message_id=one.message_id,
                    transaction=one.transaction,
                    resolution=resolution,
                )
                for one in self._staged.take(rows)
            ]
        )

    def _stream(
        self, broker_name: str, rpc: StreamRpc[Request, Reply]
    ) -> TransactionStream[Request, Reply]:
        return TransactionStream(
            self._client,
            broker_name,
            rpc,
            topics=self._staged.topics_of(broker_name),
            answer_timeout_s=min(_ANSWER_TIMEOUT_S, self._timeout_s or _ANSWER_TIMEOUT_S),
        )

    async def _ask(
        self,
        stream: TransactionStream[Request, Reply],
        make: Callable[[], Request],
        take: Callable[[Reply], None],
        *,
        settles: bool = False,
    ) -> None:
        """Send the request of `make` until `take` processes a reply without `Unanswered`.

        Raises:
            TernError: The reason of the last failure, when the time is over. `may_have_happened`
                when a request was written.
        """
        retry_timeout = RetryTimeout(self._client.env, self._timeout_s, delays=self._retry)
        was_written = False
        while True:
            failure: TernError
            try:
                await stream.open()
                was_written = True
                telemetry = self._client.telemetry if settles else None
                began_s = 0.0 if telemetry is None else telemetry.now_s()
                reply = await stream.exchange(make())
                if telemetry is not None:
                    telemetry.answered("settle", began_s, stream.address)
                take(reply)
                return
            except Unanswered as error:
                failure = error.reason
            except TransportError as error:
                failure = error
            except RefusedError as error:
                stream.close()
                if error.code not in LATER:
                    raise
                failure = error
            failure.may_have_happened |= was_written
            await retry_timeout.pause(failure, may_pass=True)


class _RemainingEnds:
    """Staged messages of one request that are still to be ended."""

    def __init__(
        self, call: StagedCall, rows: Rows, resolution: Resolution, broker_name: str
    ) -> None:
        self.rows = rows
        self._call = call
        self._resolution = resolution
        self._broker_name = broker_name

    def request(self) -> transactions.EndTransactionsRequest:
        """Return the request of the remaining ends."""
        return self._call.ends(self.rows, self._resolution)

    def take(self, reply: transactions.EndTransactionsReply) -> None:
        """Process the answers; raise `Unanswered` when some ends must be sent again."""
        if len(reply.outcomes) != len(self.rows):
            raise ConnectionLost(f"broker {self._broker_name}: sent a different number of answers")
        again: list[int] = []
        reason: TernError | None = None
        for number, outcome in enumerate(reply.outcomes):
            if not outcome.status.code:
                continue
            error = error_of(outcome.status, self._broker_name)
            if _is_passing(error):
                again.append(number)
                reason = error
            else:
                self._call.fail(self.rows[number : number + 1], error)
        self.rows = self.rows[again]
        if reason is not None:
            raise Unanswered(reason)


def _is_passing(error: RefusedError) -> bool:
    """Return whether a retry may succeed: the broker is busy, or waits for disks or slaves."""
    return error.code in LATER or error.may_have_happened
