"""Interceptors of an application, around every send and every call of a listener.

An interceptor has two methods, which are called on the client's event loop: they must be quick and
must not block. The first interceptor is called first before the call, and last after it. An error
of an interceptor never loses a message: before a send it refuses that message; elsewhere it is
logged and ignored.

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
    """Outcome of one send, with exactly one of `result` and `error`."""

    group: str
    """Name of the producer group."""

    message: Message
    """Sent message: the result of the last `before_send`."""

    result: SendResult | None
    """Queue and offset of the stored message; None = not stored, unknown, or a one-way send."""

    error: TernError | None
    """Error of the send; None also for a one-way send that was not refused at once."""

    began_at_ms: int
    """Begin of the send, Unix milliseconds."""

    took_ms: int
    """Duration of the send, ms, with the wait for the buffer and all attempts."""


class SendInterceptor(Protocol):
    """Interceptor of all messages of a producer: single, many at once, one-way.

    Each call takes time for every message. `send_many` with interceptors creates the results one by
    one and has about a third of its speed.
    """

    def before_send(self, message: Message) -> Message:
        """Return the message to send: `message` itself or a changed copy. Called once per message.

        Create copies by `dataclasses.replace`: half messages and requests have further attributes,
        and a message without them is refused.

        Raises:
            Exception: The message is not sent: its sender gets `SendVetoed`, or the error itself if
                it is a `TernError`. Earlier interceptors get the outcome.
        """
        ...

    def after_send(self, event: SendEvent) -> None:
        """Observe the outcome, before or soon after the sender. Called once per message.

        The outcome for a cancelled sender is the cancellation; the later fate of its message is not
        reported.
        """
        ...


class ConsumeOutcome(Enum):
    """Outcome of a listener's call. The values are those of RocketMQ's traces.

    Attributes:
        SUCCESS: Every message is finished.
        TIME_OUT: The call exceeded the consume timeout.
        EXCEPTION: The listener raised.
        FAILED: The listener requested a retry.
    """

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    FAILED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeEvent:
    """Call of a listener."""

    group: str
    """Name of the consumer group."""

    queue: MessageQueue
    """Queue of the messages; for a retry, a queue of the group's retry topic."""

    messages: Sequence[StoredMessage]
    """Messages of the call: one or a batch."""

    began_at_ms: int
    """Begin of the call, Unix milliseconds."""

    took_ms: int = 0
    """Duration of the call, ms; 0 before it."""

    outcome: ConsumeOutcome | None = None
    """Outcome of the call; None before it."""

    error: Exception | None = None
    """Exception of the listener; None = none."""

    unfinished: Sequence[StoredMessage] = ()
    """Messages that come again or become dead letters."""


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
    """Interceptors of one consumer.

    Args:
        interceptors: Interceptors in the order of their calls before a listener.
    """

    def __init__(self, interceptors: Iterable[ConsumeInterceptor]) -> None:
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def plus(self, *interceptors: ConsumeInterceptor) -> "ConsumeInterceptors":
        """Return these interceptors and more, which are called last before a listener."""
        return ConsumeInterceptors((*self._interceptors, *interceptors))

    def before(self, event: ConsumeEvent) -> None:
        """Call the interceptors before a call of the listener."""
        for interceptor in self._interceptors:
            call_safely(interceptor.before_consume, event)

    def after(self, event: ConsumeEvent) -> None:
        """Call the interceptors after a call of the listener."""
        for interceptor in reversed(self._interceptors):
            call_safely(interceptor.after_consume, event)


def call_safely(call: Callable[[EventT], None], event: EventT) -> None:
    """Call an interceptor and log its error."""
    try:
        call(event)
    except Exception:
        logger.exception("interceptor failed call=%s", call)
