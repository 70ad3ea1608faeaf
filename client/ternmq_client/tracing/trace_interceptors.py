"""Interceptors that turn sends and calls of listeners into traces.

Source: RocketMQ `SendMessageTraceHookImpl`, `ConsumeMessageTraceHookImpl`.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from ternmq_client.interceptors import ConsumeEvent, ConsumeOutcome, SendEvent
from ternmq_client.message_kind import MessageKind, kind_of
from ternmq_client.tracing.trace_dispatcher import Traces
from ternmq_client.tracing.trace_records import (
    ConsumeBegan,
    ConsumeEnded,
    MessageSent,
    TraceRecord,
    TransactionEnded,
)
from ternmq_model import properties as names
from ternmq_model.message import Message, SendResult, SendStatus
from ternmq_model.message_id import host_text
from ternmq_model.properties import KEY_SEPARATOR
from ternmq_model.stored_message import StoredMessage

_REQUEST_ID_BITS: Final = 128
_RUNNING_MAX: Final = 4_096
"""Most running calls. Beyond it the ends of the oldest ones are not traced."""

_REGION: Final = "DefaultRegion"
"""Region in traces. A producer does not know the broker's; RocketMQ's clients use this one too."""

Offer = Callable[[Traces], bool]


class SendTraces:
    """Interceptor that traces the sends of one producer: a `SendInterceptor`.

    Args:
        group: Group of the producer.
        trace_topic: Topic of the traces. Its own messages are not traced.
        offer: Function that receives traces. It must not wait.
    """

    def __init__(self, group: str, trace_topic: str, offer: Offer) -> None:
        self._group = group
        self._trace_topic = trace_topic
        self._offer = offer

    def before_send(self, message: Message) -> Message:
        """Return `message` unchanged."""
        return message

    def after_send(self, event: SendEvent) -> None:
        """Trace a stored message. Other messages have no id for a search."""
        message, result = event.message, event.result
        if result is None or message.topic == self._trace_topic or not _is_wanted(message):
            return
        self._offer(
            [
                MessageSent(
                    **self._about(message, result, event.began_at_ms),
                    body_length=len(message.body),
                    took_ms=event.took_ms,
                    kind=kind_of(message),
                    offset_message_id=result.offset_message_id,
                    is_success=result.status is SendStatus.SEND_OK,
                )
            ]
        )

    def transaction_ended(
        self, message: Message, result: SendResult, state: str, *, at_ms: int
    ) -> None:
        """Trace the end of a transaction.

        Args:
            message: Message of the transaction.
            result: Result of the half message.
            state: COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW.
            at_ms: Time of the end, Unix ms.
        """
        if not _is_wanted(message):
            return
        self._offer(
            [
                TransactionEnded(
                    **self._about(message, result, at_ms),
                    kind=MessageKind.TRANSACTION_COMMIT,
                    transaction_id=result.message_id,
                    state=state,
                    is_from_check=False,
                )
            ]
        )

    def _about(self, message: Message, result: SendResult, at_ms: int) -> dict[str, Any]:
        return {
            "at_ms": at_ms,
            "region": _REGION,
            "group": self._group,
            "topic": message.topic,
            "message_id": result.message_id,
            "tags": message.tags or None,
            "keys": KEY_SEPARATOR.join(message.keys) or None,
            "store_host": host_text(result.store_host),
        }


class ConsumeTraces:
    """Interceptor that traces the listener calls of one consumer: a `ConsumeInterceptor`.

    Args:
        trace_topic: Topic of the traces. Its own messages are not traced.
        offer: Function that receives traces. It must not wait.
        random: Source of the ids that join begin and end of a call.
    """

    def __init__(self, trace_topic: str, offer: Offer, random: Random) -> None:
        self._trace_topic = trace_topic
        self._offer = offer
        self._random = random
        self._running: dict[tuple[object, int, int], str] = {}

    def before_consume(self, event: ConsumeEvent) -> None:
        """Trace the begin of a call."""
        messages = self._traced(event)
        if not messages:
            return
        request_id = f"{self._random.getrandbits(_REQUEST_ID_BITS):032X}"
        if len(self._running) >= _RUNNING_MAX:
            del self._running[next(iter(self._running))]
        self._running[_call(event)] = request_id
        self._offer(
            [
                ConsumeBegan(
                    at_ms=event.began_at_ms,
                    region=message.properties.get(names.REGION),
                    group=event.group,
                    request_id=request_id,
                    message_id=message.message_id,
                    retries=message.reconsume_times,
                    keys=KEY_SEPARATOR.join(message.keys) or None,
                )
                for message in messages
            ]
        )

    def after_consume(self, event: ConsumeEvent) -> None:
        """Trace the outcome of a call for each of its messages."""
        messages = self._traced(event)
        request_id = self._running.pop(_call(event), None) if messages else None
        if request_id is None:
            return
        unfinished = {id(message) for message in event.unfinished}
        outcome = event.outcome or ConsumeOutcome.SUCCESS
        records: list[TraceRecord] = []
        for message in messages:
            is_done = outcome is ConsumeOutcome.SUCCESS and id(message) not in unfinished
            code = ConsumeOutcome.SUCCESS if is_done else outcome
            if not is_done and code is ConsumeOutcome.SUCCESS:
                code = ConsumeOutcome.FAILED
            records.append(
                ConsumeEnded(
                    request_id=request_id,
                    message_id=message.message_id,
                    took_ms=event.took_ms // len(event.messages),
                    is_success=is_done,
                    keys=KEY_SEPARATOR.join(message.keys) or None,
                    code=code.value,
                    at_ms=event.began_at_ms + event.took_ms,
                    group=event.group,
                )
            )
        self._offer(records)

    def _traced(self, event: ConsumeEvent) -> Sequence[StoredMessage]:
        if event.queue.topic == self._trace_topic:
            return ()
        return [
            message
            for message in event.messages
            if message.properties.get(names.TRACE_ON) != _SWITCHED_OFF
        ]


_SWITCHED_OFF: Final = "false"


def _is_wanted(message: Message) -> bool:
    return message.properties.get(names.TRACE_ON) != _SWITCHED_OFF


def _call(event: ConsumeEvent) -> tuple[object, int, int]:
    """Return the key of a call, unique among running calls."""
    first = event.messages[0]
    return event.queue, first.queue_offset, event.began_at_ms
