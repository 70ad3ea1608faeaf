"""Spans of the messages that one producer sends: their contexts travel as properties."""

import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar, overload

from ternmq_client.message_kind import MessageKind, kind_of
from ternmq_client.telemetry.client_telemetry import ClientTelemetry, error_type
from ternmq_client.telemetry.harmless import harmless
from ternmq_client.telemetry.operation_key import (
    Attributes,
    AttributeValue,
    OperationKey,
    server_attributes,
    topic_of_all,
)
from ternmq_client.telemetry.telemetry import TRACE_PARENT, TRACE_STATE
from ternmq_model.errors import TernError
from ternmq_model.message import Message, SendManyFailed, SendResult
from ternmq_model.message_id import host_text
from ternmq_model.record.format import PROPERTIES_BYTES_MAX

if TYPE_CHECKING:
    from opentelemetry.trace import Span

logger = logging.getLogger(__name__)

ResultsT = TypeVar("ResultsT", bound=Sequence[SendResult])

SendOutcome = SendResult | TernError | None
"""Outcome of one message; None = its sender was cancelled."""

EndSpan = Callable[[SendOutcome], None]
EndSpans = Callable[[Callable[[int], SendOutcome]], None]
"""Ends the spans of a call, by a function that returns the outcome of each position."""

Created: TypeAlias = "tuple[Message, Span | None]"
CreateSpan: TypeAlias = Callable[[Message], Created]

_ROOM_BYTES: Final = 2048
"""Bytes that a context takes of a message's properties at most, with those of the client."""

_CREATIONS_MAX: Final = 16
"""Most spans `create` of a call: the SDK keeps 128 links of a span, and each takes 50 us."""

_HALVES_MAX: Final = 4096
"""Most half messages whose contexts wait for the end of the transaction."""

_TYPES: Final = {
    MessageKind.NORMAL: "normal",
    MessageKind.TRANSACTION_HALF: "transaction",
    MessageKind.DELAY: "delay",
    MessageKind.ORDER: "fifo",
}
"""Types of sent messages. Source: OpenTelemetry's semantic conventions."""


class SendSpans:
    """Spans of one producer's sampled messages. Owned by it and used on its loop.

    A single message has a span `send`. The messages of a call with a few traced ones have a span
    `create` each, and the call a span `send` with links to them; of more, its span is the creation.
    A message that has a context of its own keeps it, and its span has a link to that context; one
    that was copied from the message in hand, to which the current span has a link, does not. An
    error in here never fails a message.

    Args:
        telemetry: Telemetry of the client.
    """

    def __init__(self, telemetry: ClientTelemetry) -> None:
        self._telemetry = telemetry.telemetry
        self._sampler = telemetry.sampler
        self._start = harmless(self._telemetry.start)
        self._carry = harmless(self._with_context)
        self._halves: dict[str, Mapping[str, str]] = {}

    def takes(self) -> bool:
        """Return whether the next message is traced: sampled, or sent inside a recording span."""
        return self._sampler.takes() or self._telemetry.is_recording()

    def picks(self, count: int) -> Sequence[int]:
        """Return which of the next `count` messages are traced."""
        return range(count) if self._telemetry.is_recording() else self._sampler.picks(count)

    def begin(
        self, message: Message, operation: Literal["create", "send"] = "send"
    ) -> tuple[Message, EndSpan]:
        """Return `message` with the context of its span, and the function that ends the span."""
        traced, span = self._try(message, operation)
        return traced, partial(self._end, traced, span)

    def _try(
        self, message: Message, operation: Literal["create", "send"]
    ) -> tuple[Message, "Span | None"]:
        """Return `message` with its span; None = without one, after an error."""
        try:
            return self._begin(message, operation)
        except Exception:  # an illegal message, whose send raises an error that says so
            logger.debug("message not traced topic=%r", message.topic, exc_info=True)
            return message, None

    def _begin(
        self, message: Message, operation: Literal["create", "send"]
    ) -> tuple[Message, "Span"]:
        key = OperationKey(operation, topic=message.topic)
        links = self._telemetry.links([message.properties])
        span = self._telemetry.start(key, "PRODUCER", attributes_of_message(message), links)
        return self._with_context(message, span), span

    def _with_context(self, message: Message, span: "Span") -> Message:
        """Return `message` with the context of `span`, unless it has its own one, or no room."""
        if TRACE_PARENT in message.properties and not self._telemetry.current_has(
            self._telemetry.links([message.properties])
        ):
            return message
        carrier = self._telemetry.carrier(span)
        if not carrier or not _has_room(message):
            return message
        properties = {**message.properties, **carrier}
        if TRACE_STATE not in carrier:  # that of the copied context
            properties.pop(TRACE_STATE, None)
        return replace(message, properties=properties)

    @harmless
    def _end(self, message: Message, span: "Span | None", outcome: SendOutcome) -> None:
        if span is None:
            return
        if isinstance(outcome, SendResult):
            span.set_attributes(
                {
                    **_server_of(outcome.store_host),
                    "messaging.message.id": outcome.message_id,
                    "messaging.destination.partition.id": str(outcome.queue.queue_id),
                }
            )
            if kind_of(message) is MessageKind.TRANSACTION_HALF:
                if len(self._halves) >= _HALVES_MAX:  # the oldest: its sender was cancelled
                    del self._halves[next(iter(self._halves))]
                self._halves[outcome.message_id] = self._telemetry.carrier(span)
        elif outcome is not None:
            self._telemetry.fail(span, error_type(outcome), str(outcome))
        span.end()

    def take_half(self, message_id: str) -> Mapping[str, str]:
        """Return, once, the context of a stored half message; empty = it is not traced."""
        return self._halves.pop(message_id, {})

    def begin_many(
        self, messages: Mapping[int, Message], count: int
    ) -> tuple[Mapping[int, Message], EndSpans] | None:
        """Return traced messages with their contexts, and the function that ends the spans.

        None = OpenTelemetry failed, and no message is traced.

        Args:
            messages: Messages to trace, by position in the call.
            count: Number of messages of the call, traced or not.
        """
        if (begun := self._begin_call(list(messages.values()), count)) is None:
            return None
        call, create = begun
        created = {index: create(message) for index, message in messages.items()}
        traced = {index: message for index, (message, _) in created.items()}
        return traced, partial(self._end_call, call, created)

    @harmless
    def _begin_call(
        self, picked: Sequence[Message], count: int
    ) -> "tuple[Span | None, CreateSpan]":
        """Return the span of a call, and what traces a message of it.

        A few messages have a span `create` each, to which that of the call has links. Of more, the
        span of the call is the creation.

        Args:
            picked: Messages to trace.
            count: Number of messages of the call, traced or not.
        """
        key = OperationKey("send", topic=topic_of_all(message.topic for message in picked))
        attributes: Attributes = {"messaging.batch.message_count": count}
        if len(picked) <= _CREATIONS_MAX:
            call = self._start(key, "CLIENT", attributes)
            return call, partial(self._try, operation="create")
        links = self._telemetry.links(message.properties for message in picked)
        span = self._start(key, "PRODUCER", attributes, links)

        def create_in_call(message: Message) -> tuple[Message, None]:
            return (span and self._carry(message, span)) or message, None

        return span, create_in_call

    @harmless
    def _end_call(
        self,
        call: "Span | None",
        created: Mapping[int, Created],
        outcome_of: Callable[[int], SendOutcome],
    ) -> None:
        """End the spans of a call and of its messages."""
        failure: TernError | None = None
        for index, (message, span) in created.items():
            outcome = outcome_of(index)
            if call is not None and span is not None:
                call.add_link(span.get_span_context())
            self._end(message, span, outcome)
            failure = outcome if isinstance(outcome, TernError) else failure
        if call is not None:
            if failure is not None:
                self._telemetry.fail(call, error_type(failure), str(failure))
            call.end()

    async def send_many(
        self,
        messages: Sequence[Message],
        send: Callable[[Sequence[Message]], Awaitable[ResultsT]],
    ) -> ResultsT:
        """Send `messages` by `send`, which takes all of them in slices, in order, in one call.

        The spans of a slice begin with it: no other send gets ahead of the call.
        """
        picked = self.picks(len(messages))
        if not picked:
            return await send(messages)
        begun = self._begin_call([messages[at] for at in picked], len(messages))
        if begun is None:
            return await send(messages)
        call, create = begun
        traced = TracedMessages(messages, picked, create)
        outcome_of: Callable[[int], SendOutcome] = _unknown
        try:
            results = await send(traced)
            outcome_of = results.__getitem__
        except SendManyFailed as failed:
            outcome_of = failed.results.__getitem__
            raise
        except TernError as error:
            failure = error
            outcome_of = lambda _index: failure  # noqa: E731
            raise
        finally:
            self._end_call(call, traced.created, outcome_of)
        return results


class TracedMessages(Sequence[Message]):
    """Messages of a call. Slices, taken in order, have the picked ones with their contexts.

    Args:
        messages: Messages of the caller.
        picked: Positions of the messages to trace, in order.
        create: Function that returns a message with its context, and its span.

    Attributes:
        created: Traced messages of the slices so far, by position.
    """

    def __init__(
        self,
        messages: Sequence[Message],
        picked: Sequence[int],
        create: CreateSpan,
    ) -> None:
        self._messages = messages
        self._picked = picked
        self._create = create
        self.created: dict[int, Created] = {}

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if not isinstance(index, slice):
            return self._messages[index]
        begin, end, _ = index.indices(len(self))
        part = list(self._messages[begin:end])
        for at in self._picked[bisect_left(self._picked, begin) : bisect_left(self._picked, end)]:
            if at not in self.created:
                self.created[at] = self._create(self._messages[at])
            part[at - begin] = self.created[at][0]
        return part


def attributes_of_message(message: Message) -> Attributes:
    """Return the attributes of a message that is sent, beside those of its operation. Pure."""
    attributes: Attributes = {
        "messaging.message.body.size": len(message.body),
        "messaging.rocketmq.message.type": _TYPES[kind_of(message)],
    }
    if message.tags:
        attributes["messaging.rocketmq.message.tag"] = message.tags
    if message.keys:
        attributes["messaging.rocketmq.message.keys"] = tuple(message.keys)
    if message.sharding_key:
        attributes["messaging.rocketmq.message.group"] = message.sharding_key
    if message.delay_level:
        attributes["messaging.rocketmq.message.delay_time_level"] = message.delay_level
    if message.deliver_at_ms:
        attributes["messaging.rocketmq.message.delivery_timestamp"] = message.deliver_at_ms
    return attributes


@lru_cache(maxsize=1024)
def _server_of(store_host: bytes) -> Mapping[str, AttributeValue]:
    return server_attributes(host_text(store_host))


def _has_room(message: Message) -> bool:
    """Return whether the properties of a message have room for a context."""
    is_short = len(message.tags) + len(message.sharding_key) < _ROOM_BYTES
    if is_short and not (message.properties or message.keys):
        return True
    try:
        return len(message.encoded_properties()) < PROPERTIES_BYTES_MAX - _ROOM_BYTES
    except TernError:  # its send raises the error
        return False


def _unknown(_index: int) -> None:
    return None
