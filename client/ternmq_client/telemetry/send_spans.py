"""Spans of the messages that one producer sends: their contexts travel as properties."""

import logging
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, Literal, TypeVar, overload

from ternmq_client.telemetry.client_telemetry import ClientTelemetry, error_type
from ternmq_client.telemetry.harmless import harmless
from ternmq_client.telemetry.operation_key import (
    Attributes,
    AttributeValue,
    OperationKey,
    server_attributes,
)
from ternmq_client.telemetry.telemetry import TRACE_PARENT, TRACE_STATE
from ternmq_model.errors import TernError
from ternmq_model.message import Message, SendManyFailed, SendResult, SystemMessage
from ternmq_model.message_id import host_text
from ternmq_model.properties import TRANSACTION_PREPARED
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

_ROOM_BYTES: Final = 2048
"""Bytes that a context takes of a message's properties at most, with those of the client."""

_HALVES_MAX: Final = 4096
"""Most half messages whose contexts wait for the end of the transaction."""


class SendSpans:
    """Spans of one producer's sampled messages. Owned by it and used on its loop.

    A single message has a span `send`. The messages of a call with many have a span `create` each,
    and the call a span `send` with links to them. A message that has a context of its own keeps it,
    and its span has a link to that context; one that was copied from the message in hand, to which
    the current span has a link, does not. An error in here never fails a message.

    Args:
        telemetry: Telemetry of the client.
    """

    def __init__(self, telemetry: ClientTelemetry) -> None:
        self._telemetry = telemetry.telemetry
        self._sampler = telemetry.sampler
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
        has_room = not (message.properties or message.keys) or (
            len(message.encoded_properties()) < PROPERTIES_BYTES_MAX - _ROOM_BYTES
        )
        links = self._telemetry.links([message.properties])
        span = self._telemetry.start(key, "PRODUCER", attributes_of_message(message), links)
        is_own = TRACE_PARENT in message.properties and not self._telemetry.current_has(links)
        if has_room and not is_own and (carrier := self._telemetry.carrier(span)):
            properties = {**message.properties, **carrier}
            if TRACE_STATE not in carrier:  # that of the copied context
                properties.pop(TRACE_STATE, None)
            message = replace(message, properties=properties)
        return message, span

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
            if is_half(message):
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
    ) -> tuple[Mapping[int, Message], EndSpans]:
        """Return traced messages with their contexts, and the function that ends the spans.

        Args:
            messages: Messages to trace, by position in the call.
            count: Number of messages of the call, traced or not.
        """
        began_ns = time.time_ns()
        created = {index: self._try(message, "create") for index, message in messages.items()}
        traced = {index: message for index, (message, _) in created.items()}
        return traced, partial(self._end_call, created, count, began_ns)

    @harmless
    def _end_call(
        self,
        created: Mapping[int, tuple[Message, "Span | None"]],
        count: int,
        began_ns: int,
        outcome_of: Callable[[int], SendOutcome],
    ) -> None:
        """Record the span of a call with `count` messages, and end those of its messages."""
        topics = {message.topic for message, _ in created.values()}
        key = OperationKey("send", topic=topics.pop() if len(topics) == 1 else "")
        links = [self._telemetry.link(span) for _, span in created.values() if span is not None]
        attributes: Attributes = {"messaging.batch.message_count": count}
        call = harmless(self._telemetry.start)(key, "CLIENT", attributes, links, began_ns=began_ns)
        failure: TernError | None = None
        for index, (message, span) in created.items():
            outcome = outcome_of(index)
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
        began_ns = time.time_ns()
        traced = TracedMessages(messages, picked, partial(self._try, operation="create"))
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
            self._end_call(traced.created, len(messages), began_ns, outcome_of)
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
        create: Callable[[Message], tuple[Message, "Span | None"]],
    ) -> None:
        self._messages = messages
        self._picked = picked
        self._create = create
        self.created: dict[int, tuple[Message, Span | None]] = {}

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


def is_half(message: Message) -> bool:
    """Return whether `message` is the half message of a transaction."""
    return isinstance(message, SystemMessage) and TRANSACTION_PREPARED in message.system_properties


def attributes_of_message(message: Message) -> Attributes:
    """Return the attributes of a message that is sent, beside those of its operation. Pure."""
    kind = "normal"
    if is_half(message):
        kind = "transaction"
    elif message.delay_level or message.deliver_at_ms or message.deliver_after_ms:
        kind = "delay"
    elif message.sharding_key:
        kind = "fifo"
    attributes: Attributes = {
        "messaging.message.body.size": len(message.body),
        "messaging.rocketmq.message.type": kind,
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


def _unknown(_index: int) -> None:
    return None
