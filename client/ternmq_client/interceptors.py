"""Interceptors that applications put around every send and every call of a listener.

Interceptors are objects with two methods, called on the client's event loop: they must be quick
and must not block. Those given first are called first before, and last after. What one raises never
loses a message: before a send it refuses that message; everywhere else it is logged and passed
over.

Source: RocketMQ `SendMessageHook`, `ConsumeMessageHook`.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

from ternmq_model.errors import TernError
from ternmq_model.message import Message, SendResult
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage

logger = logging.getLogger(__name__)

EventT = TypeVar("EventT")


@dataclass(frozen=True, slots=True, kw_only=True)
class SendEvent:
    """Outcome of one send. Exactly one of `result` and `error` is there."""

    group: str
    """The producer group."""

    message: Message
    """The message that was sent: the last `before_send` returned it."""

    result: SendResult | None
    """Place where it was stored; None when it was not, nobody knows, or nobody asked."""

    error: TernError | None
    """Reason that it was not stored. None also for a one-way send that was not refused at once."""

    began_at_ms: int
    """Begin of the send, Unix milliseconds."""

    took_ms: int
    """Until there was an answer: waiting for room and all attempts included."""


class SendInterceptor(Protocol):
    """Sees every message that a producer sends, whichever way: alone, many at once, one-way.

    Each call costs its time for every message, and a `send_many` with interceptors makes the
    results one by one: expect a third of its speed.
    """

    def before_send(self, message: Message) -> Message:
        """Return what is to be sent: `message` itself, or a changed copy. Called once per message.

        Make copies with `dataclasses.replace`: half messages and requests carry more than a
        `Message` shows, and one without it is refused.

        Raises:
            Exception: The message is not sent: its sender gets `SendVetoed`, or the error itself
                when it is a `TernError`. Interceptors called before this one hear of it.
        """
        ...

    def after_send(self, event: SendEvent) -> None:
        """Learn what became of it, before or soon after its sender does. Called once per message.

        A sender that was cancelled is over for it; what becomes of its message is told to nobody.
        """
        ...


class ConsumeOutcome(Enum):
    """Outcome of a listener's call. The values are those of RocketMQ's traces.

    Attributes:
        SUCCESS: Every message is finished.
        TIME_OUT: It took longer than the consume timeout.
        EXCEPTION: It raised.
        FAILED: It asked for the messages again.
    """

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    FAILED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeEvent:
    """One call of a listener."""

    group: str
    """The consumer group."""

    queue: MessageQueue
    """Queue that the messages were read from: for those tried again, the group's retry topic."""

    messages: Sequence[StoredMessage]
    """Messages that the listener is handed: one, or a batch."""

    began_at_ms: int
    """Begin of the call, Unix milliseconds."""

    took_ms: int = 0
    """Duration of the call; 0 before it."""

    outcome: ConsumeOutcome | None = None
    """Outcome of the call; None before it."""

    error: Exception | None = None
    """Exception that the listener raised."""

    unfinished: Sequence[StoredMessage] = ()
    """Messages that will be tried again, or are given up."""


class ConsumeInterceptor(Protocol):
    """Interceptor of the calls of a push consumer's listener.

    The methods run on the event loop, not in the listener's thread, once per listener call.
    """

    def before_consume(self, event: ConsumeEvent) -> None:
        """Observe a call before the listener gets the messages. Raising changes nothing."""
        ...

    def after_consume(self, event: ConsumeEvent) -> None:
        """Observe the outcome of a call before its offset is committed. Raising changes nothing.

        For a call that exceeded its timeout, the method runs when the call ends, long after its
        messages were sent back. The method runs once for each `before_consume`, unless the consumer
        was closed in between.
        """
        ...


class ConsumeInterceptors:
    """The interceptors of one consumer, as its calls of the listener call them.

    Args:
        interceptors: In the order in which they are called before a listener.
    """

    def __init__(self, interceptors: Iterable[ConsumeInterceptor]) -> None:
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def plus(self, interceptor: ConsumeInterceptor) -> "ConsumeInterceptors":
        """Return these and one more, which is called last before a listener."""
        return ConsumeInterceptors((*self._interceptors, interceptor))

    def before(self, event: ConsumeEvent) -> None:
        """Report to the interceptors that a listener is about to be called."""
        for interceptor in self._interceptors:
            call_safely(interceptor.before_consume, event)

    def after(self, event: ConsumeEvent) -> None:
        """Report to the interceptors how a call of the listener ended."""
        for interceptor in reversed(self._interceptors):
            call_safely(interceptor.after_consume, event)


def call_safely(call: Callable[[EventT], None], event: EventT) -> None:
    """Call an interceptor; log what it raises, once each time."""
    try:
        call(event)
    except Exception:
        logger.exception("interceptor failed call=%s", call)
