"""Telemetry of one client: durations and counts of its operations, and links of its messages."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from ternmq_client.telemetry.harmless import harmless
from ternmq_client.telemetry.operation_key import (
    Attributes,
    OperationKey,
    OperationName,
    attributes_of,
    server_attributes,
)
from ternmq_client.telemetry.telemetry import TRACE_PARENT_NAME, Counts, Telemetry
from ternmq_model.arrays import read_int32s
from ternmq_model.errors import CorruptRecord, TernError
from ternmq_model.message import SendResult
from ternmq_model.message_id import host_text
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage, decode_single

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span

_UNSETTLED_MAX: Final = 4096
"""Most received messages whose links wait for the commit of their offset: the newest ones."""


class ClientTelemetry(AbstractContextManager["ClientTelemetry"]):
    """Telemetry of one client, on whose loop it is used. Its errors are logged and ignored.

    Args:
        telemetry: Telemetry of the application.
        now_s: Clock of the durations, s. Any thread may call it.
        random: Source of the sampling.
    """

    def __init__(self, telemetry: Telemetry, now_s: Callable[[], float], random: Random) -> None:
        self.now_s = now_s
        self.telemetry = telemetry
        self.sampler = telemetry.sampler(random)
        self._counts = telemetry.begin_counts()
        self._unsettled: dict[tuple[MessageQueue, int], list[Link]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        harmless(self.telemetry.end_counts)(self._counts)

    @harmless
    def answered(
        self,
        operation: OperationName,
        began_s: float,
        address: str,
        *,
        topic: str = "",
        group: str = "",
        error: str = "",
    ) -> None:
        """Record the duration of one request, which may concern many messages.

        Args:
            operation: Name of the operation.
            began_s: Result of `now_s` at the begin.
            address: `HOST:PORT` of the broker; empty = unknown.
            topic: Destination; empty = several.
            group: Consumer group; empty for producers.
            error: Name of the failure; empty = none.
        """
        self.record(OperationKey(operation, address, topic, group, error), began_s)

    @harmless
    def record(self, key: OperationKey, began_s: float) -> None:
        """Record the duration of one request, as `answered` does."""
        self.telemetry.record_operation(self.now_s() - began_s, attributes_of(key))

    def count_sent(self, key: OperationKey, count: int) -> None:
        """Count messages that were sent, or failed to be."""
        _count(self._counts.sent, key, count)

    @harmless
    def consumed(self, topics: Mapping[str, int], group: str) -> None:
        """Count messages that the application got, by topic."""
        for topic, count in topics.items():
            _count(self._counts.consumed, OperationKey("receive", topic=topic, group=group), count)

    @harmless
    def delivered(self, messages: Sequence[StoredMessage], group: str) -> None:
        """Count messages of one queue that the application got."""
        first = messages[0]
        if first.topic == first.queue.topic:  # no object for each row of a columns listener
            self.consumed({first.topic: len(messages)}, group)
        else:  # those of a retry topic have different origins
            self.consumed(Counter(message.topic for message in messages), group)

    @harmless
    def received(
        self,
        queue: MessageQueue,
        records: bytes,
        sizes: bytes,
        began_s: float,
        address: str,
        group: str,
    ) -> None:
        """Record a reply with messages of one queue, and the span of its sampled messages.

        Args:
            queue: Queue of the messages.
            records: Records of the reply.
            sizes: Length of each record, as 32-bit numbers.
            began_s: Result of `now_s` at the begin of the wait for the reply.
            address: `HOST:PORT` of the broker.
            group: Consumer group; may be empty.
        """
        self.answered("receive", began_s, address, topic=queue.topic, group=group)
        sampled = sampled_records(records, sizes, queue)
        links = [link for message in sampled for link in self._links_until_settled(message)]
        if links:
            key = OperationKey("receive", address, queue.topic, group)
            attributes: Attributes = {
                "messaging.destination.partition.id": str(queue.queue_id),
                "messaging.batch.message_count": len(sizes) // 4,
            }
            self.telemetry.start(key, "CLIENT", attributes, links, is_root=True).end()

    @harmless
    def reply_arrived(self, reply: StoredMessage) -> None:
        """Record the span of a reply, inside the caller of the request."""
        if links := self.telemetry.links([reply.properties]):
            attributes: Attributes = {"messaging.message.id": reply.message_id}
            key = OperationKey("receive", reply.store_host, reply.topic)
            self.telemetry.start(key, "CLIENT", attributes, links).end()

    async def send_one(
        self,
        topic: str,
        properties: Mapping[str, str],
        send: Callable[[Mapping[str, str]], Awaitable[SendResult]],
    ) -> SendResult:
        """Send one message by `send`, which gets its properties, and record the operation.

        The message is traced inside a recording span alone.
        """
        span = self._start_inside(OperationKey("send", topic=topic))
        if span is not None:
            properties = {**properties, **self.telemetry.carrier(span)}
        began_s, address, error = self.now_s(), "", ""
        try:
            result = await send(properties)
            address = host_text(result.store_host)
        except TernError as failure:
            error = error_type(failure)
            if span is not None:
                self.telemetry.fail(span, error, str(failure))
            raise
        finally:
            self.answered("send", began_s, address, topic=topic, error=error)
            self.count_sent(OperationKey("send", address, topic, error=error), 1)
            if span is not None:
                span.set_attributes(server_attributes(address))
                span.end()
        return result

    @harmless
    def _start_inside(self, key: OperationKey) -> "Span | None":
        """Start a span inside a recording one; None = there is none."""
        return self.telemetry.start(key, "PRODUCER", {}) if self.telemetry.is_recording() else None

    def _links_until_settled(self, message: StoredMessage) -> list["Link"]:
        links = self.telemetry.links([message.properties])
        if links:
            if len(self._unsettled) >= _UNSETTLED_MAX:
                del self._unsettled[next(iter(self._unsettled))]
            self._unsettled[message.queue, message.queue_offset] = links
        return links

    @harmless
    def committed(self, offsets: Mapping[MessageQueue, QueueOffset]) -> Sequence["Link"]:
        """Return, once, the links of received messages below committed offsets."""
        if not self._unsettled:
            return []
        settled = [key for key in self._unsettled if key[0] in offsets and key[1] < offsets[key[0]]]
        return [link for key in settled for link in self._unsettled.pop(key)]

    @harmless
    def forget(self, queues: Iterable[MessageQueue]) -> None:
        """Drop the links of messages of queues that belong to others now."""
        gone = frozenset(queues)
        for key in [key for key in self._unsettled if key[0] in gone]:
            del self._unsettled[key]

    @harmless
    def sent_back(self, messages: Sequence[StoredMessage]) -> Sequence["Link"]:
        """Return the links of messages that go back to their broker, which settles them."""
        for message in messages:
            self._unsettled.pop((message.queue, message.queue_offset), None)
        return self.telemetry.links(
            message.properties for message in messages if message.mentions(TRACE_PARENT_NAME)
        )

    @harmless
    def settled(
        self,
        began_s: float,
        address: str,
        links: Sequence["Link"] = (),
        *,
        topic: str = "",
        group: str = "",
        count: int = 0,
        error: TernError | None = None,
        outcome: str = "",
    ) -> None:
        """Record a request that settles messages, and the span of sampled ones.

        Args:
            began_s: Result of `now_s` at the begin.
            address: `HOST:PORT` of the broker; empty = unknown.
            links: Contexts of creation of the sampled messages.
            topic: Destination; empty = several.
            group: Consumer group; empty for producers.
            count: Number of messages; 0 = unknown.
            error: Failure of the request; None = none.
            outcome: `commit`, `rollback`, `send_back`, or empty for offsets.
        """
        name = "" if error is None else error_type(error)
        self.answered("settle", began_s, address, topic=topic, group=group, error=name)
        if not links:
            return
        attributes: Attributes = {}
        if count:
            attributes["messaging.batch.message_count"] = count
        if outcome:
            attributes["ternmq.settle.outcome"] = outcome
        span = self.telemetry.start(
            OperationKey("settle", address, topic, group), "CLIENT", attributes, links
        )
        if error is not None:
            self.telemetry.fail(span, name, str(error))
        span.end()


def sampled_records(records: bytes, sizes: bytes, queue: MessageQueue) -> list[StoredMessage]:
    """Return the messages that may carry a trace context, decoding no other ones.

    Args:
        records: Records of one reply.
        sizes: Length of each record, as 32-bit numbers.
        queue: Queue of the messages.
    """
    at = records.find(TRACE_PARENT_NAME)
    if at < 0:
        return []
    found: list[StoredMessage] = []
    begin = 0
    for size in read_int32s(sizes).tolist():
        end = begin + size
        if begin <= at < end:
            try:
                message = decode_single(records[begin:end], queue.broker_name, check_crc=False)
            except CorruptRecord:  # the reader of the reply reports it
                return found
            message.queue = queue
            found.append(message)
            at = records.find(TRACE_PARENT_NAME, end)
        begin = end
    return found


def error_type(error: BaseException) -> str:
    """Return the value of the attribute `error.type` for an error."""
    return type(error).__name__


def _count(counts: Counts, key: OperationKey, count: int) -> None:
    counts[key] = counts.get(key, 0) + count
