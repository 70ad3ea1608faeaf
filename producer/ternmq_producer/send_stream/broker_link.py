"""Link to one broker: one stream, opened for the first message and again after a break.

The `Batcher` decides which messages are sent and when; `decide_retry` decides the step after a
failure.
"""

import asyncio
import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from ternmq_client.instance import ClientInstance
from ternmq_model.errors import (
    BrokerDraining,
    ClosedError,
    ConnectionLost,
    RefusedError,
    TernError,
    TransportError,
    Unreachable,
    refusal,
)
from ternmq_model.message_id import UniqueKeys
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_producer.batch.batch_encoding import StreamFormat
from ternmq_producer.batch.batch_reply import SendFailure, code_of, deliver, fits, is_brokers_fault
from ternmq_producer.batch.batcher import Batcher, ProducerBatch
from ternmq_producer.batch.pending_send import (
    ROW_DEADLINE,
    ROW_IS_ORDERED,
    Pending,
    PendingSend,
    SendRow,
)
from ternmq_producer.batch.send_buffer import SendBuffer
from ternmq_producer.batch.send_errors import renewed, too_late
from ternmq_producer.batch.send_metrics import SendMetrics
from ternmq_producer.config import ProducerConfig
from ternmq_producer.send_statistics import LinkCounts
from ternmq_producer.send_stream.open_request import open_request
from ternmq_producer.send_stream.retry_another_broker import hold_back, let_go
from ternmq_producer.send_stream.retry_decision import RetryDecision, decide_retry
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.converters import error_of
from ternmq_remoting.rpc import ClientStream
from ternmq_remoting.service_methods import SEND_STREAM
from ternmq_runtime.service import OwnedTasks

if TYPE_CHECKING:
    from ternmq_runtime.timers import TimerHandle

logger = logging.getLogger(__name__)

SendStream = ClientStream[messages.SendStreamReply, messages.SendStreamRequest]

_ROUTE_IS_OLD: Final = frozenset({ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION})

_LEAVING_S: Final = 1.0
"""Time that messages go to other brokers, if they may, after a broker refused all messages."""

_FEW_BYTES: Final = 16 << 10  # a longer batch delays no read
_BROKEN_OPENINGS_MAX: Final = 3
"""Breaks in a row during the opening of a stream after which the broker is out of reach."""


# A protocol, since `send` imports this package: the class would close a circle of imports.
class LinkOwner(Protocol):
    """Owner of a link: the `MessageSender` of a producer."""

    @property
    def config(self) -> ProducerConfig:
        """Settings of the producer."""
        ...

    @property
    def group(self) -> str:
        """Name of the producer group."""
        ...

    @property
    def client(self) -> ClientInstance:
        """Client with connections, clock and randomness."""
        ...

    @property
    def buffer(self) -> SendBuffer:
        """Buffer that messages are charged to until they are answered."""
        ...

    @property
    def incarnation(self) -> str:
        """Identity of the producer, by which its new stream with a broker ends its old one."""
        ...

    @property
    def metrics(self) -> SendMetrics | None:
        """Metrics of answered batches; None = none."""
        ...

    def is_reachable(self, topic: str) -> bool:
        """Return whether a broker of `topic` could be reached at the last attempt."""
        ...

    def answered(self, link: "BrokerLink", latency_ms: int) -> None:
        """Record the time from writing a batch to its answer."""
        ...

    def failed(self, link: "BrokerLink") -> None:
        """Record that a broker was out of reach, or refused a whole batch."""
        ...

    def rested(self, link: "BrokerLink") -> None:
        """Record that a broker that was out of reach may be tried again."""
        ...

    def unique_keys(self, born_host: bytes) -> UniqueKeys:
        """Return the generator of keys, which have the first caller's address."""
        ...

    def fail(self, pending: Pending, error: TernError) -> None:
        """Answer `pending` with `error`, unless it has an answer."""
        ...

    def send_again(self, pending: Sequence[Pending], *, avoid: str, delay_s: float) -> None:
        """Send messages by any queue, preferably of another broker than `avoid`, else later."""
        ...


class BrokerLink:
    """Link of a producer to one broker. Owned by its producer; one task runs `run`.

    Attributes:
        broker_name: Name of the broker.
        is_down: True for a moment after a failed attempt to reach the broker.
        is_leaving: True for a moment after a refusal by a draining or closing broker.
        is_avoided: True while the owner prefers other brokers: this one is down, leaving or slow.
        counts: Counters of sends.
    """

    def __init__(self, broker_name: str, owner: LinkOwner) -> None:
        self.broker_name = broker_name
        self.is_down = False
        self.is_leaving = False
        self.is_avoided = False
        self.counts = LinkCounts()
        self._owner = owner
        self._config = owner.config
        self._client = owner.client
        self._clock = owner.client.env.clock
        self._batcher = Batcher(
            batch_bytes_max=owner.config.batch_bytes,
            batches_max=owner.config.batches_unanswered_max,
            free=owner.buffer.give_back,
        )
        self._add_row = self._batcher.add_row  # bound once, for every message
        self._format: StreamFormat | None = None
        self._stream: SendStream | None = None
        self._write_error: TernError | None = None
        self._leaving: TimerHandle | None = None
        self._wake = asyncio.Event()
        self._timers = owner.client.env.timers
        self._timer: TimerHandle | None = None
        self._timer_at_ms: float = math.inf
        self._failures = 0
        self._looks_up = False
        self._broken_openings = 0
        """Number of breaks in a row during the opening of the stream."""

        self._is_draining = False  # the log has a line about the refusals
        self._away: TernError | None = None
        """Reason that the broker cannot be reached or is leaving. None = it accepts messages."""

    @property
    def is_away(self) -> bool:
        """True when the broker could not be reached, or opened no stream, at the last attempt."""
        is_missed = self._client.reaches(self.broker_name) is False
        return is_missed or self._broken_openings >= _BROKEN_OPENINGS_MAX

    def add(self, pending: Pending) -> None:
        """Send `pending`, whose sink has the answer at its deadline at the latest."""
        if pending.is_ordered and self._config.fail_fast and self.is_away:
            # No other broker may store the message, and it must not wait.
            error = self._away
            if not isinstance(error, Unreachable):  # found by another part of the client
                error = Unreachable(f"broker {self.broker_name}: cannot be reached at present")
            self._timers.call_later(0, self._give_up, pending, error)  # its sender waits by then
            return
        self._batcher.add(pending)
        if pending.deadline_ms < self._timer_at_ms:
            self._arm(pending.deadline_ms)
        self._wake.set()

    def add_row(self, row: SendRow) -> None:
        """Send a new message, whose sink has the answer at its deadline at the latest."""
        if row[ROW_IS_ORDERED]:
            self.add(PendingSend(*row))
            return
        self._add_row(row)
        if row[ROW_DEADLINE] < self._timer_at_ms:
            self._arm(row[ROW_DEADLINE])
        if not self._wake.is_set():
            self._wake.set()

    def look(self) -> None:
        """Try a broker that is away again, since its route may have changed."""
        self._wake.set()

    async def run(self) -> None:
        """Send messages, and try a broker that is away, until cancelled."""
        while True:
            while self._batcher.is_empty and not (
                self.is_away and self._client.routes.is_named(self.broker_name)
            ):
                self._wake.clear()
                await self._wake.wait()
            self._format = None
            error = await self._serve()
            self._failures += 1
            self._client.look_for(self.broker_name)
            level = logging.INFO if isinstance(error, TransportError) else logging.WARNING
            if self._failures == 1 or level == logging.WARNING:
                logger.log(level, "send stream lost broker=%s err=%s", self.broker_name, error)
            self.is_down = True
            self._owner.failed(self)
            self._away = error if isinstance(error, Unreachable) else None
            self._settle_break(error)
            await self._timers.sleep(self._delay_s(self._failures))
            self.is_down = False
            self._owner.rested(self)

    def fail_all(self, error: TernError) -> None:
        """Answer every message with `error`."""
        for timer in filter(None, (self._timer, self._leaving)):
            timer.cancel()
        for batch in self._batcher.break_off():
            for pending in batch.one_by_one():
                pending.maybe_stored = True
                self._give_up(pending, error)
        for pending in self._batcher.drain():
            self._give_up(pending, error)

    async def _serve(self) -> TernError:
        """Open the stream and send over it; return the error that ended it."""
        try:
            connection = await self._client.broker(self.broker_name)
            stream: SendStream = connection.open(SEND_STREAM)
        except ClosedError as error:  # another task found the connection broken just now
            self._broken_openings += 1
            return Unreachable(str(error))
        except TernError as error:
            return error
        failure: TernError = ConnectionLost(f"broker {self.broker_name}: ended the send stream")
        try:
            await self._open(stream)
            async with OwnedTasks() as tasks:
                tasks.spawn(self._write_batches(stream), f"send to {self.broker_name}")
                await self._read_replies(stream)
        except TernError as error:
            failure = self._write_error or error
        finally:
            self._stream = None
            stream.cancel()
        if isinstance(failure, ClosedError):  # this side ended it, because of its silence
            failure = ConnectionLost(str(failure))
        if isinstance(failure, TransportError):
            self._client.forget(self.broker_name, connection)
            if self._format is None:  # nothing but `open` was sent
                if isinstance(failure, Unreachable):
                    self._broken_openings = _BROKEN_OPENINGS_MAX
                else:
                    self._broken_openings += 1
                    failure = Unreachable(str(failure))
        return failure

    async def _open(self, stream: SendStream) -> None:
        """Agree with the broker on how records look."""
        config, owner = self._config, self._owner
        request = open_request(config, self._client.client_id, owner.group, owner.incarnation)
        try:
            async with self._timers.timeout(self._client.config.request_timeout_s):
                await stream.write(request)
                reply = await stream.read()
        except TimeoutError:
            raise Unreachable(f"broker {self.broker_name}: did not open the send stream") from None
        if reply is None or not reply.HasField("opened"):
            raise Unreachable(f"broker {self.broker_name}: ended the send stream at once")
        opened = reply.opened
        if opened.status.code:
            raise refusal(opened.status.code, opened.status.remark, self.broker_name)
        self._format = StreamFormat(opened, self._owner.unique_keys(opened.born_host))
        self._looks_up = opened.looks_up_retries
        self._batcher.batch_bytes_max = min(config.batch_bytes, self._format.batch_bytes_max)
        self._write_error = None
        self._end_leaving()
        self._broken_openings = 0
        self._stream = stream
        self._client.sessions.attend(self.broker_name)
        logger.info("send stream open broker=%s", self.broker_name)

    async def _write_batches(self, stream: SendStream) -> None:
        """Write a batch whenever one may leave. Ends when the stream does."""
        batcher, wake, clock, layout = self._batcher, self._wake, self._clock, self._format
        assert layout is not None, "the stream is open"
        try:
            while True:
                while not batcher.can_send:
                    wake.clear()
                    await wake.wait()
                if self.is_leaving:
                    await self._timers.sleep(self._delay_s(1))
                now_ms = clock.monotonic_ms()
                batch = batcher.next_batch(now_ms)
                if batch is None:
                    continue
                if self._owner.metrics is not None:
                    self._owner.metrics.written(batch)
                for pending, error in layout.take_illegal(batch):
                    self._give_up(pending, error)
                if len(batch):
                    await stream.write(layout.encode(batch, wall_ms=clock.wall_ms(), now_ms=now_ms))
                else:
                    batcher.withdraw(batch)
        except TernError as error:
            self._write_error = error
            stream.cancel()  # ends the reader

    async def _read_replies(self, stream: SendStream) -> None:
        """Deliver answers until the broker ends the stream."""
        assert self._format is not None, "the stream is open"
        store_host = self._format.store_host
        while (reply := await stream.read()) is not None:
            batch, stored = self._batcher.answered(), reply.stored
            if batch is None or not reply.HasField("stored") or not fits(batch, stored):
                if batch is not None:
                    self._batcher.unanswer(batch)
                raise ConnectionLost(f"broker {self.broker_name}: sent an impossible reply")
            code = code_of(stored)
            held = hold_back(batch, code, self._config, self._client.routes, self.broker_name)
            failures = deliver(batch, stored, store_host=store_host, broker_name=self.broker_name)
            again = let_go(held)
            self._owner.buffer.charge(sum(pending.record_bytes for pending in again))
            self._failures = 0
            self.counts.latency_ms = self._clock.monotonic_ms() - batch.written_at_ms
            if self._owner.metrics is not None:
                self._owner.metrics.answered(batch, failures, store_host)
            if code == ResponseCode.GO_AWAY:
                self._leave_out(error_of(stored.status, self.broker_name))
            elif self._is_draining or self._away is not None:
                self._is_draining = False
                self._end_leaving()
            if failures:
                if is_brokers_fault(stored.status):
                    self._owner.failed(self)
                self.counts.stored += len(batch) - sum(len(each.pending) for each in failures)
                self._settle_refused(batch, failures)
            else:
                self._owner.answered(self, self.counts.latency_ms)
                self.counts.stored += len(batch)
                self._batcher.release(batch.ordered_queues)
                self._owner.buffer.give_back(batch.record_bytes)
            if again:
                self.counts.retries += len(again)
                self._owner.send_again(again, avoid=self.broker_name, delay_s=0.0)
            self._wake.set()
            if batch.record_bytes <= _FEW_BYTES:
                # The senders and the writer first: gRPC takes 20 µs to begin a read.
                await asyncio.sleep(0)

    def _leave_out(self, error: TernError) -> None:
        """Send messages to other brokers for a moment, since this one refuses all."""
        if not self._is_draining:
            logger.info("broker accepts no messages at present err=%s", error)
        self._away, self._is_draining = error, True
        if self._leaving is not None:
            self._leaving.cancel()
        self.is_leaving = True
        self._leaving = self._timers.call_later(_LEAVING_S, self._return_to)
        self._owner.rested(self)

    def _return_to(self) -> None:
        """Send the next messages here again."""
        if self._leaving is not None:
            self._leaving.cancel()
        self.is_leaving, self._leaving = False, None
        self._owner.rested(self)

    def _end_leaving(self) -> None:
        self._away = None
        self._return_to()

    def _settle_refused(self, batch: ProducerBatch, failures: list[SendFailure]) -> None:
        """Retry the refused messages of `batch`, or give up."""
        codes = {each.error.code for each in failures if isinstance(each.error, RefusedError)}
        if codes & _ROUTE_IS_OLD:
            for topic in {failure.pending.topic.decode() for failure in failures}:
                self._client.ask_route_again(topic)
        kept_bytes = sum(failure.pending.record_bytes for failure in failures)
        self._owner.buffer.give_back(batch.record_bytes - kept_bytes)
        # Refusals of a draining broker are no attempts: it, or the next master, may accept soon.
        delay_s = self._delay_s(max(failure.pending.attempts for failure in failures) or 1)
        resting = self._settle(failures, delay_s=delay_s)
        self._batcher.release(batch.ordered_queues - resting)
        if resting:
            self._timers.call_later(delay_s, self._release, resting, self._stream)

    def _settle_break(self, error: TernError) -> None:
        """Retry the unanswered messages of a broken stream, or give up.

        A stream that did not open fails the waiting messages too.
        """
        failures: list[SendFailure] = []
        for batch in self._batcher.break_off():
            for pending in batch.one_by_one():
                pending.maybe_stored = True
                failures.append(SendFailure(pending, error))
        if self._format is None:
            for pending in self._batcher.drain():
                if not isinstance(error, Unreachable):
                    pending.attempts += 1
                failures.append(SendFailure(pending, error))
        self._settle(failures, delay_s=0.0)
        self._batcher.release(self._batcher.ordered_queues())

    def _settle(self, failures: list[SendFailure], *, delay_s: float) -> set[MessageQueue]:
        """Retry `failures`, or give up; return the queues of those that are retried in order."""
        config = self._config
        here, anywhere = list[Pending](), list[Pending]()
        self.counts.failures += len(failures)
        for failure in failures:
            pending = failure.pending
            if isinstance(failure.error, BrokerDraining):
                pending.attempts -= 1  # a refusal of all messages is no attempt
            decision = RetryDecision.GIVE_UP
            if not failure.is_overtaken and not pending.sink.done():
                decision = decide_retry(
                    failure.error,
                    attempts=pending.attempts,
                    attempts_max=config.attempts_max,
                    is_ordered=pending.is_ordered,
                    maybe_stored=pending.maybe_stored,
                    duplicates_allowed=config.duplicates_allowed,
                    looks_up=self._looks_up,
                    is_away=self.is_away,
                )
            is_lost = config.fail_fast and self.is_away and isinstance(failure.error, Unreachable)
            topic = pending.topic.decode()
            if is_lost and (pending.is_ordered or not self._owner.is_reachable(topic)):
                decision = RetryDecision.GIVE_UP
            if decision is RetryDecision.GIVE_UP:
                self._give_up(pending, failure.error)
            elif decision is RetryDecision.AGAIN_HERE:
                here.append(pending)
            else:
                anywhere.append(pending)
        self.counts.retries += len(here) + len(anywhere)
        self._batcher.put_back(here)
        if anywhere:
            self._owner.send_again(anywhere, avoid=self.broker_name, delay_s=delay_s)
        return {pending.queue for pending in here if pending.is_ordered}

    def _give_up(self, pending: Pending, error: TernError) -> None:
        self._owner.buffer.give_back(pending.record_bytes)
        self._owner.fail(pending, renewed(error, may_have_happened=pending.maybe_stored))

    def _release(self, queues: set[MessageQueue], stream: SendStream | None) -> None:
        if stream is self._stream:  # else the break released them, and they may travel again
            self._batcher.release(queues)
            self._wake.set()

    def _arm(self, deadline_ms: int) -> None:
        """Set the timer of the link, which answers expired messages, to `deadline_ms`."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = deadline_ms
        delay_s = max(0, deadline_ms - self._clock.monotonic_ms()) / 1000
        self._timer = self._timers.call_later(delay_s, self._expire)

    def _expire(self) -> None:
        """Answer expired messages with an error; cancel the stream of a silent broker."""
        self._timer, self._timer_at_ms = None, math.inf
        now_ms = self._clock.monotonic_ms()
        oldest_ms = self._batcher.oldest_batch_ms
        expired, next_ms = self._batcher.expire(now_ms)
        for pending in expired.unsent:
            self._owner.fail(pending, self._timeout(pending.maybe_stored))
        for pending in expired.unanswered:
            self._owner.fail(pending, self._timeout(True, is_sent=True))
        if next_ms is not None:
            self._arm(next_ms)
        silent_ms = 0 if oldest_ms is None else now_ms - oldest_ms
        if self._stream is not None and silent_ms >= self._config.send_timeout_s * 500:
            self._stream.cancel()

    def _timeout(self, may_have_happened: bool, *, is_sent: bool = False) -> TernError:
        return too_late(self.broker_name, self._away, may_have_happened, is_sent=is_sent)

    def _delay_s(self, failures: int) -> float:
        return self._config.retry.delay_s(failures, self._client.env.random)
