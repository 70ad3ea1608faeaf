"""Encoding of traces: the text of trace messages. Pure.

The body of a trace message holds any number of records, each ended by the byte 2, with fields
separated by the byte 1:

    Pub            time region group topic id tags keys store-host length cost type offset-id ok
    SubBefore      time region group request id retries keys
    SubAfter       request id cost ok keys code time group
    EndTransaction time region group topic id tags keys store-host type transaction state from-check

Times are Unix milliseconds, costs milliseconds, `ok` is true or false; a missing value is null.

Source: RocketMQ `TraceDataEncoder`, `TraceConstants`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Final

from ternmq_client.message_kind import MessageKind

FIELD_END: Final = "\x01"
RECORD_END: Final = "\x02"
NOTHING: Final = "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class _SentMessage:
    """Common first fields of the records about one sent message."""

    at_ms: int
    """Begin of the send, or end of the transaction, Unix milliseconds."""

    region: str
    """Region of the client."""

    group: str
    """Name of the producer group."""

    topic: str
    """Name of the topic."""

    message_id: str
    """Unique key of the message."""

    tags: str | None
    """Tag of the message; None without one."""

    keys: str | None
    """Keys of the message, separated by blanks; None without keys."""

    store_host: str
    """`IP:PORT` of the broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSent(_SentMessage):
    """Record of a send, successful or not."""

    body_length: int
    """Length of the body, bytes."""

    took_ms: int
    """Duration of the send, milliseconds."""

    kind: MessageKind
    """Kind of the message."""

    offset_message_id: str
    """Id of broker and physical offset."""

    is_success: bool
    """True for the status SEND_OK."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeBegan:
    """Record of a message that a listener gets."""

    at_ms: int
    """Begin of the call, Unix milliseconds."""

    region: str | None
    """Region of the message; None where it has none."""

    group: str
    """Name of the consumer group."""

    request_id: str
    """Id that `ConsumeEnded` has too: the same for all messages of one call."""

    message_id: str
    """Unique key of the message."""

    retries: int
    """Number of tries before."""

    keys: str | None
    """Keys of the message, separated by blanks; None without keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeEnded:
    """Record of a message whose listener call ended."""

    request_id: str
    """Id that `ConsumeBegan` has too."""

    message_id: str
    """Unique key of the message."""

    took_ms: int
    """Duration of the call divided by its messages, ms."""

    is_success: bool
    """True when the message is finished."""

    keys: str | None
    """Keys of the message, separated by blanks; None without keys."""

    code: int
    """Outcome: 0 success, 1 time-out, 2 exception, 3 no answer, 4 retry."""

    at_ms: int
    """End of the call, Unix milliseconds."""

    group: str
    """Name of the consumer group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEnded(_SentMessage):
    """Record of a transaction that was committed, rolled back or left open."""

    kind: MessageKind
    """Kind of the message."""

    transaction_id: str
    """Id of the transaction."""

    state: str
    """COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW."""

    is_from_check: bool
    """True when the end answers a broker's check."""


TraceRecord = MessageSent | ConsumeBegan | ConsumeEnded | TransactionEnded

_NAMES: Final[dict[type[TraceRecord], str]] = {
    MessageSent: "Pub",
    ConsumeBegan: "SubBefore",
    ConsumeEnded: "SubAfter",
    TransactionEnded: "EndTransaction",
}
_KINDS: Final = {name: kind for kind, name in _NAMES.items()}


def encode(record: TraceRecord) -> str:
    """Return the text of a record, with its end."""
    values = [_NAMES[type(record)], *map(_text, astuple(record))]
    return FIELD_END.join(values) + RECORD_END


def decode(text: str) -> Iterator[TraceRecord]:
    """Yield the records of a trace message's body.

    An unreadable record, such as one of an unknown kind, is skipped. A record that ends early, as
    older clients write them, has empty, 0 or false in the missing fields.
    """
    for line in text.split(RECORD_END):
        name, *values = line.split(FIELD_END)
        kind = _KINDS.get(name)
        if kind is not None:
            try:
                yield _record(kind, values)
            except ValueError:
                continue


def _record(kind: type[TraceRecord], values: Sequence[str]) -> TraceRecord:
    known: dict[str, object] = {}
    for place, field in enumerate(fields(kind)):
        text = values[place] if place < len(values) else ""
        known[field.name] = _value(text, field.type)
    return kind(**known)  # type: ignore[arg-type]


def _value(text: str, kind: object) -> object:
    if kind is bool:
        return text == "true"
    if kind is int:
        return int(text or 0)
    if kind is MessageKind:
        return MessageKind(int(text or 0))
    return None if text == NOTHING and kind is not str else text


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, MessageKind):
        return str(int(value))
    if value is None:
        return NOTHING
    return str(value).replace(FIELD_END, " ").replace(RECORD_END, " ")
