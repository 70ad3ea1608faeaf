"""Ends of transactions, sent to each broker over one stream, with natural batching.

A repeated end does no harm, so ends without an answer are sent again until their time limit.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from ternmq_client.instance import ClientInstance
from ternmq_client.retry_policy import RetryPolicy
from ternmq_client.telemetry.client_telemetry import ClientTelemetry, error_type
from ternmq_client.telemetry.harmless import harmless
from ternmq_client.telemetry.operation_key import Attributes, OperationKey, topic_of_all
from ternmq_model.errors import ClosedError, ConnectionLost, RequestTimedOut, TernError
from ternmq_model.message import NO_PROPERTIES
from ternmq_producer.transactions.transaction_stream import LATER, ROWS_MAX, TransactionStream
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_remoting.converters import error_of
from ternmq_remoting.service_methods import END_TRANSACTIONS

logger = logging.getLogger(__name__)

EndStream = TransactionStream[
    transactions.EndTransactionsRequest, transactions.EndTransactionsReply
]


@dataclass(slots=True)
class TransactionEnd:
    """End of one transaction, on its way to the broker. Owned by the link it waits at."""

    request: transactions.EndTransactionRequest
    answer: "asyncio.Future[transactions.EndTransactionReply]"
    deadline_ms: int
    """Monotonic."""

    maybe_sent: bool = False
    """True once the end was written to a stream whose answer never came."""


@harmless
def trace_end(
    telemetry: ClientTelemetry,
    answer: "asyncio.Future[transactions.EndTransactionReply]",
    request: transactions.EndTransactionRequest,
    carrier: Mapping[str, str],
) -> None:
    """Record the span of a transaction's end, from now to its answer, if its message is sampled."""
    shared = telemetry.telemetry
    if not (links := shared.links([carrier])):
        return
    is_commit = request.resolution == transactions.Resolution.COMMIT
    outcome = "commit" if is_commit else "rollback"
    attributes: Attributes = {
        "messaging.message.id": request.message_id,
        "ternmq.settle.outcome": outcome,
    }
    span = shared.start(OperationKey("settle", topic=request.topic), "CLIENT", attributes, links)

    @harmless
    def end(done: "asyncio.Future[transactions.EndTransactionReply]") -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            shared.fail(span, error_type(error), str(error))
        span.end()

    answer.add_done_callback(end)


class EndLink:
    """Ends for one broker. Owned by its producer; one task runs `run`."""

    def __init__(self, broker_name: str, client: ClientInstance, *, retry: RetryPolicy) -> None:
        self.broker_name = broker_name
        self._client = client
        self._retry = retry
        self._clock = client.env.clock
        self._waiting: deque[TransactionEnd] = deque()
        self._wake = asyncio.Event()
        self._failures = 0
        self._failure: TernError | None = None

    def add(self, end: TransactionEnd) -> None:
        """Append an end, whose answer is set soon after its deadline at the latest."""
        self._waiting.append(end)
        self._wake.set()

    async def run(self) -> None:
        """Send the ends that are added, until cancelled."""
        while True:
            await self._some()
            try:
                await self._serve()
            except TernError as error:
                self._failures += 1
                self._failure = error
                if self._failures == 1:
                    logger.warning(
                        "ends of transactions wait broker=%s err=%s", self.broker_name, error
                    )
            self._expire()
            await self._client.env.timers.sleep(
                self._retry.delay_s(self._failures, self._client.env.random)
            )
            self._expire()

    def fail_all(self, error: TernError) -> None:
        """Answer every end with `error`."""
        waiting, self._waiting = self._waiting, deque()
        for end in waiting:
            _fail(end, error)

    async def _some(self) -> None:
        while not self._waiting:
            self._wake.clear()
            await self._wake.wait()

    async def _serve(self) -> None:
        """Send waiting ends over one stream, until it breaks or the broker asks for a pause."""
        stream = TransactionStream(
            self._client,
            self.broker_name,
            END_TRANSACTIONS,
            answer_timeout_s=self._client.config.request_timeout_s,
        )
        try:
            await stream.open()
            while True:
                await self._some()
                batch = self._take()
                if batch and not await self._exchange(stream, batch):
                    self._failures += 1
                    return
        finally:
            stream.close()

    def _take(self) -> list[TransactionEnd]:
        """Remove and return the ends of the next request, and drop those without a waiter."""
        batch: list[TransactionEnd] = []
        now_ms = self._clock.monotonic_ms()
        while self._waiting and len(batch) < ROWS_MAX:
            end = self._waiting.popleft()
            if end.deadline_ms <= now_ms:
                self._time_out(end)
            elif not end.answer.done():
                batch.append(end)
        return batch

    async def _exchange(self, stream: EndStream, batch: list[TransactionEnd]) -> bool:
        """Send a batch and set its answers; return False when some ends must be sent again."""
        request = transactions.EndTransactionsRequest(transactions=[end.request for end in batch])
        again: list[TransactionEnd] = list(batch)
        try:
            for end in batch:
                end.maybe_sent = True
            telemetry = self._client.telemetry
            began_s = 0.0 if telemetry is None else telemetry.now_s()
            reply = await stream.exchange(request)
            if telemetry is not None:
                topic = topic_of_all(end.request.topic for end in batch)
                telemetry.answered("settle", began_s, stream.address, topic=topic)
            if len(reply.outcomes) != len(batch):
                raise ConnectionLost(
                    f"broker {self.broker_name}: sent a different number of answers"
                )
            again = [
                end
                for end, outcome in zip(batch, reply.outcomes, strict=True)
                if not self._settle(end, outcome)
            ]
        finally:
            self._waiting.extendleft(reversed(again))
        if not again:
            self._failures = 0
            self._failure = None
        return not again

    def _settle(self, end: TransactionEnd, outcome: transactions.EndTransactionReply) -> bool:
        """Set an answer and return True; return False when the end must be sent again."""
        if end.answer.done():
            return True
        if outcome.status.code == 0:
            end.answer.set_result(outcome)
            return True
        error = error_of(outcome.status, self.broker_name)
        if error.code in LATER and not error.may_have_happened:
            self._failure = error
            return False
        _fail(end, error)
        return True

    def _expire(self) -> None:
        now_ms = self._clock.monotonic_ms()
        kept = [end for end in self._waiting if end.deadline_ms > now_ms]
        for end in self._waiting:
            if end.deadline_ms <= now_ms:
                self._time_out(end)
        self._waiting = deque(kept)

    def _time_out(self, end: TransactionEnd) -> None:
        why = "" if self._failure is None else f": {self._failure}"
        error = RequestTimedOut(
            f"broker {self.broker_name}: the end was not confirmed in time{why}"
        )
        error.may_have_happened = end.maybe_sent
        _fail(end, error)


def _fail(end: TransactionEnd, error: TernError) -> None:
    if not end.answer.done():
        end.answer.set_exception(error)
        end.answer.exception()  # asyncio must not report an end without a waiter as a bug


class TransactionEnds:
    """Ends for all brokers of a producer, which owns them.

    Args:
        client: Open client.
        retry: Waits after a failure.
    """

    def __init__(self, client: ClientInstance, *, retry: RetryPolicy) -> None:
        self._client = client
        self._retry = retry
        self._links: dict[str, EndLink] = {}
        self._unanswered = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def send(
        self,
        broker_name: str,
        request: transactions.EndTransactionRequest,
        *,
        timeout_s: float,
        carrier: Mapping[str, str] = NO_PROPERTIES,
    ) -> "asyncio.Future[transactions.EndTransactionReply]":
        """Send the end of a transaction to a broker; return the future of its answer.

        The future raises the refusal of the broker or the error of the stream; it need not be
        awaited.

        Args:
            broker_name: Name of the broker.
            request: End of the transaction.
            timeout_s: Time limit, s.
            carrier: Trace context of the message's creation.
        """
        link = self._links.get(broker_name)
        if link is None:
            link = EndLink(broker_name, self._client, retry=self._retry)
            self._links[broker_name] = link
            self._client.tasks.spawn(link.run(), f"ends to {broker_name}")
        answer: asyncio.Future[transactions.EndTransactionReply] = (
            asyncio.get_running_loop().create_future()
        )
        deadline_ms = self._client.env.clock.monotonic_ms() + round(timeout_s * 1000)
        self._unanswered += 1
        self._idle.clear()
        answer.add_done_callback(self._answered)
        if self._client.telemetry is not None and carrier:
            trace_end(self._client.telemetry, answer, request, carrier)
        link.add(TransactionEnd(request, answer, deadline_ms))
        return answer

    def _answered(self, _answer: object) -> None:
        self._unanswered -= 1
        if not self._unanswered:
            self._idle.set()

    async def idle(self) -> None:
        """Wait until every end has its answer. Cancelling is safe."""
        await self._idle.wait()

    def abandon(self) -> None:
        """Answer every end that has no answer yet with `ClosedError`."""
        error = ClosedError("the producer was closed before the end was confirmed")
        for link in self._links.values():
            link.fail_all(error)
