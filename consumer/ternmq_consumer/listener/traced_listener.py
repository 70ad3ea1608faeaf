"""Traced listeners: the process spans and durations of an application's listener."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

from ternmq_client.telemetry.client_telemetry import ClientTelemetry, error_type
from ternmq_client.telemetry.harmless import harmless
from ternmq_client.telemetry.operation_key import Attributes, OperationKey, attributes_of
from ternmq_client.telemetry.telemetry import TRACE_PARENT, TRACE_PARENT_NAME
from ternmq_consumer.consume_status import ConsumeStatus, reconsume_later_of
from ternmq_model.arguments import is_async
from ternmq_model.stored_message import StoredMessage

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.trace import Span

T = TypeVar("T")

ListenerKind = Literal["one", "batch", "columns"]

_TRACE_COLUMN: Final = "properties"


class ProcessSpan:
    """One call of a listener. Used by the thread or task that makes the call.

    The span, if a message of the call is sampled, is the current one until `end`; otherwise no span
    is current, whatever the consumer was opened in. Spans begin a trace and have a link to the
    creation of each sampled message.

    Args:
        telemetry: Telemetry of the client.
        key: Operation of the call.
        attributes: Attributes of the span.
        carriers: Properties of the call's messages that may be sampled.
    """

    def __init__(
        self,
        telemetry: ClientTelemetry,
        key: OperationKey,
        attributes: Callable[[], Attributes],
        carriers: Sequence[Mapping[str, str]],
    ) -> None:
        self._telemetry = telemetry
        self._key = key
        self._span: Span | None = None
        self._token: Token[Context] | None = None
        shared = telemetry.telemetry
        if links := shared.links(carriers):
            self._span = shared.start(key, "CONSUMER", attributes(), links, is_root=True)
        if self._span is not None or shared.is_recording():
            self._token = shared.enter(self._span)
        self._began_s = telemetry.now_s()

    @harmless
    def end(self, *, answer: object = None, error: BaseException | None = None) -> None:
        """End the call with the answer of the listener, or with its error."""
        shared, failure = self._telemetry.telemetry, ""
        took_s = self._telemetry.now_s() - self._began_s
        if error is not None:
            failure = error_type(error)
        elif answer is not None:
            failure = _failure_of(answer)
        if self._token is not None:
            shared.leave(self._token)
        shared.record_process(took_s, attributes_of(self._key._replace(error=failure)))
        if self._span is not None:
            if error is not None:
                self._span.record_exception(error)
            if failure:
                shared.fail(self._span, failure, "" if error is None else str(error))
            self._span.end()


def traced_listener(
    listener: Callable[[T], Any], kind: ListenerKind, telemetry: ClientTelemetry, group: str
) -> Callable[[T], Any]:
    """Return a listener of the same kind that calls `listener` inside a process span.

    Args:
        listener: Listener of the application, a plain function or an `async def`.
        kind: Argument of the listener: a message, a list of messages, or Arrow rows.
        telemetry: Telemetry of the client.
        group: Consumer group.
    """
    begin = harmless(_BEGINNERS[kind])

    @wraps(listener)
    def call(argument: T) -> Any:
        span = begin(argument, telemetry, group)
        try:
            answer = listener(argument)
        except BaseException as error:
            if span is not None:
                span.end(error=error)
            raise
        if span is not None:
            span.end(answer=answer)
        return answer

    @wraps(listener)
    async def call_async(argument: T) -> Any:
        span = begin(argument, telemetry, group)
        try:
            answer = await cast("Awaitable[Any]", listener(argument))
        except BaseException as error:
            if span is not None:
                span.end(error=error)
            raise
        if span is not None:
            span.end(answer=answer)
        return answer

    return call_async if is_async(listener) else call


def _process_one(message: StoredMessage, telemetry: ClientTelemetry, group: str) -> ProcessSpan:
    carriers = [message.properties] if message.mentions(TRACE_PARENT_NAME) else []
    return ProcessSpan(
        telemetry,
        OperationKey("process", topic=message.topic, group=group),
        lambda: _attributes_of_one(message),
        carriers,
    )


def _process_batch(
    messages: Sequence[StoredMessage], telemetry: ClientTelemetry, group: str
) -> ProcessSpan:
    carriers = [one.properties for one in messages if one.mentions(TRACE_PARENT_NAME)]
    return ProcessSpan(
        telemetry,
        OperationKey("process", topic=messages[0].topic, group=group),
        lambda: {"messaging.batch.message_count": len(messages)},
        carriers,
    )


def _process_columns(rows: Any, telemetry: ClientTelemetry, group: str) -> ProcessSpan:
    topics = rows.column("topic")
    return ProcessSpan(
        telemetry,
        OperationKey("process", topic=str(topics[0]) if len(topics) else "", group=group),
        lambda: {"messaging.batch.message_count": rows.num_rows},
        carriers_of(rows),
    )


def carriers_of(rows: Any) -> list[Mapping[str, str]]:
    """Return the properties of those rows of an Arrow batch that have a trace context."""
    properties = rows.column(_TRACE_COLUMN)
    if TRACE_PARENT not in {str(name) for name in properties.keys.dictionary_encode().dictionary}:
        return []
    return [pairs for row in properties.to_pylist() if TRACE_PARENT in (pairs := dict(row))]


_BEGINNERS: Final[Mapping[ListenerKind, Callable[[Any, ClientTelemetry, str], ProcessSpan]]] = {
    "one": _process_one,
    "batch": _process_batch,
    "columns": _process_columns,
}


def _attributes_of_one(message: StoredMessage) -> Attributes:
    attributes: Attributes = {
        "messaging.message.id": message.message_id,
        "messaging.destination.partition.id": str(message.queue.queue_id),
    }
    if message.tags:
        attributes["messaging.rocketmq.message.tag"] = message.tags
    if message.reconsume_times:
        attributes["ternmq.reconsume_times"] = message.reconsume_times
    return attributes


def _failure_of(answer: object) -> str:
    """Return the name of an answer by which messages are not finished; empty = they are."""
    try:
        later = reconsume_later_of(cast("Any", answer))
    except Exception:  # no answer: the consumer reports it
        return "UsageError"
    if later is None:
        return ""
    if isinstance(answer, ConsumeStatus):
        return answer.name
    return "DEAD_LETTER" if later.delay_level < 0 else ConsumeStatus.RECONSUME_LATER.name
