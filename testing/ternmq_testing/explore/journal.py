"""Journal of one exploration: its events with their times, and what the promises are about."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from ternmq_client.interceptors import ConsumeEvent, ConsumeOutcome, SendEvent
from ternmq_model.delay import level_delay_ms
from ternmq_model.errors import TernError
from ternmq_model.message import Message, SendResult, SystemMessage
from ternmq_model.stored_message import StoredMessage
from ternmq_model.transaction import Resolution, TransactionResult

_PREVIEW_CHARS: Final = 40
_LISTED_MAX: Final = 300


class Knowledge(Enum):
    """Knowledge of a sender about its message.

    Attributes:
        UNKNOWN: The message may be stored.
        ACKNOWLEDGED: The message is stored.
        REFUSED: The message is not stored.
    """

    UNKNOWN = auto()
    ACKNOWLEDGED = auto()
    REFUSED = auto()


@dataclass(slots=True)
class NotedSend:
    """One call that sent a message."""

    number: int
    """Number of the call in the exploration, which the events have."""

    producer: int
    topic: str
    key: str
    """Sharding key; empty = none."""

    due_ms: int
    """Time of the delivery, Unix ms; 0 = at once."""

    is_half: bool
    cancels: str
    knowledge: Knowledge = Knowledge.UNKNOWN
    result: SendResult | None = None


@dataclass(slots=True)
class NotedTransaction:
    """Answers of the application about the transaction of one message."""

    resolutions: tuple[Resolution, ...] = ()
    """Outcomes other than UNKNOWN, in order."""

    is_confirmed: bool = False
    """The broker has confirmed the commit."""


class Journal:
    """Events and messages of one exploration. Owned by its cluster.

    Args:
        now_s: Function that returns the time since the start, s.
        wall_ms: Function that returns Unix ms.
        on_send: Called before each message is sent.
    """

    def __init__(
        self,
        now_s: Callable[[], float],
        wall_ms: Callable[[], int],
        on_send: Callable[[], None],
    ) -> None:
        self._now_s, self._wall_ms, self._on_send = now_s, wall_ms, on_send
        self.events: list[str] = []
        self.sends: list[NotedSend] = []
        self.transactions: dict[str, NotedTransaction] = {}
        """Transactions by message id."""
        self.delivered: dict[str, str] = {}
        """Group that has got a message, by message id."""
        self._numbers: dict[str, int] = {}
        self._producers = 0

    def note(self, text: str) -> None:
        """Add an event."""
        self.events.append(f"{self._now_s():10.3f} s  {text}")

    def sender(self) -> "SendJournal":
        """Return the interceptor of one more producer."""
        self._producers += 1
        return SendJournal(self, self._producers)

    def begin(self, message: Message, producer: int) -> NotedSend:
        """Note a call that sends."""
        self._on_send()
        due_ms = message.deliver_at_ms
        if message.deliver_after_ms:
            due_ms = self._wall_ms() + message.deliver_after_ms
        elif message.delay_level:
            due_ms = self._wall_ms() + level_delay_ms(message.delay_level)
        sent = NotedSend(
            len(self.sends) + 1,
            producer,
            message.topic,
            message.sharding_key,
            due_ms,
            isinstance(message, SystemMessage),
            message.cancels,
        )
        self.sends.append(sent)
        key = f", key {message.sharding_key}" if message.sharding_key else ""
        half = "half message " if sent.is_half else ""
        self.note(f"send #{sent.number}: {half}{preview(message.body)} to {sent.topic}{key}")
        return sent

    def end(self, sent: NotedSend, event: SendEvent) -> None:
        """Note the outcome of a call that sends."""
        if event.result is not None:
            sent.result, sent.knowledge = event.result, Knowledge.ACKNOWLEDGED
            self._numbers[event.result.message_id] = sent.number
            place = f"{event.result.queue}, offset {event.result.queue_offset}"
            self.note(f"send #{sent.number} acknowledged: {event.result.status.name}, {place}")
        elif event.error is not None:
            self._fail(sent, event.error)

    def _fail(self, sent: NotedSend, error: TernError) -> None:
        text = "may be stored"
        if not error.may_have_happened:
            sent.knowledge, text = Knowledge.REFUSED, "not stored"
        self.note(f"send #{sent.number} failed ({text}): {type(error).__name__}: {error}")

    def got(self, group: str, messages: Iterable[StoredMessage]) -> None:
        """Note messages that a group has got."""
        for message in messages:
            self.delivered.setdefault(message.message_id, group)
            again = f", retry {message.reconsume_times}" if message.reconsume_times else ""
            self.note(
                f"group {group or '-'} got {self._named(message)} "
                f"from {message.queue}, offset {message.queue_offset}{again}"
            )

    def resolved(self, message_id: str, resolution: Resolution, *, by: str) -> NotedTransaction:
        """Note what the application said about a transaction."""
        transaction = self.transactions.setdefault(message_id, NotedTransaction())
        if resolution is not Resolution.UNKNOWN:
            transaction.resolutions += (resolution,)
        number = self._numbers.get(message_id)
        named = f"#{number}" if number else message_id
        self.note(f"transaction of {named}: {by} returned {resolution.name}")
        return transaction

    def ended(self, result: TransactionResult) -> None:
        """Note the end of a transaction's send."""
        transaction = self.resolved(result.sent.message_id, result.resolution, by="execute")
        transaction.is_confirmed = result.is_confirmed
        if not result.is_confirmed:
            self.note(f"transaction of #{self._numbers[result.sent.message_id]}: not confirmed")

    def _named(self, message: StoredMessage) -> str:
        number = self._numbers.get(message.message_id)
        return f"#{number}" if number else preview(message.body)

    def text(self) -> str:
        """Return the events as lines, without the middle of a long history."""
        events = self.events
        if len(events) > _LISTED_MAX:
            half = _LISTED_MAX // 2
            left_out = f"… {len(events) - 2 * half} events …"
            events = [*events[:half], left_out, *events[-half:]]
        return "\n".join(events)


class SendJournal:
    """Interceptor of one producer. See `SendInterceptor`."""

    def __init__(self, journal: Journal, producer: int) -> None:
        self._journal, self._producer = journal, producer
        self._under_way: dict[int, tuple[Message, NotedSend]] = {}

    def before_send(self, message: Message) -> Message:
        """Note the message, and return a copy that no other send has."""
        copy = replace(message)
        self._under_way[id(copy)] = (copy, self._journal.begin(copy, self._producer))
        return copy

    def after_send(self, event: SendEvent) -> None:
        """Note the outcome."""
        _, sent = self._under_way.pop(id(event.message))
        self._journal.end(sent, event)


class ConsumeJournal:
    """Interceptor of push consumers. See `ConsumeInterceptor`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def before_consume(self, event: ConsumeEvent) -> None:
        """Note the messages."""
        self._journal.got(event.group, event.messages)

    def after_consume(self, event: ConsumeEvent) -> None:
        """Note an outcome other than success."""
        if event.outcome is not None and event.outcome is not ConsumeOutcome.SUCCESS:
            reason = f": {event.error!r}" if event.error is not None else ""
            self._journal.note(
                f"group {event.group} did not finish {len(event.unfinished)} messages of "
                f"{event.queue}: {event.outcome.name}{reason}"
            )


def preview(body: bytes) -> str:
    """Return the begin of a body as a text. Pure."""
    text = repr(body)[1:]
    return text if len(text) <= _PREVIEW_CHARS else f"{text[:_PREVIEW_CHARS]}… ({len(body)} B)"
