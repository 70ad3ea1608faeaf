"""Pending sends: messages on their way, and the sinks of their answers."""

from typing import Final, Protocol

from ternmq_model.errors import RequestTimedOut, TernError
from ternmq_model.message import Message, SendResult
from ternmq_model.queue import MessageQueue

RECORD_EXTRA_BYTES: Final = 256
"""Most bytes of a record beside body, topic and the message's own properties, as far as known
before a broker tells what it adds: a header of 115, UNIQ_KEY of 66, the broker's properties."""


class ResultSink(Protocol):
    """Sink of an answer: a future, or a place in the results of many messages."""

    def done(self) -> bool:
        """Tell whether nobody waits any more: answered, timed out, or cancelled."""
        ...

    def set_result(self, result: SendResult, /) -> None:
        """Answer: stored."""
        ...

    def set_exception(self, error: BaseException, /) -> None:
        """Answer: not stored, or nobody knows."""
        ...


class PendingSend:
    """A message with its destination and history. Owned by the link it waits at.

    A plain class with positional arguments: one is made for every single send.
    """

    __slots__ = (
        "attempts",
        "body",
        "deadline_ms",
        "flag",
        "is_ordered",
        "maybe_stored",
        "properties",
        "queue",
        "record_bytes",
        "sink",
        "started_ms",
        "sys_flag",
        "topic",
        "unique_key",
    )

    def __init__(
        self,
        sink: ResultSink,
        message: Message,
        topic: bytes,
        properties: bytes,
        queue: MessageQueue,
        is_ordered: bool,
        record_bytes: int,
        started_ms: int,
        deadline_ms: int,
    ) -> None:
        self.sink = sink
        self.topic = topic
        self.body = message.body
        self.flag = message.flag
        self.sys_flag = 0
        self.properties = properties
        self.queue = queue
        self.is_ordered = is_ordered
        """Its queue was chosen by the caller or by a key: it stays there, in order."""

        self.record_bytes = record_bytes
        """At most, and what the buffer is charged."""

        self.started_ms = started_ms
        """When it was sent, by the monotonic clock: the one clock that is read for each message."""

        self.deadline_ms = deadline_ms
        """Time of the monotonic clock at which it fails."""

        self.unique_key = b""
        """Given when it first goes into a batch, and kept."""

        self.attempts = 0
        self.maybe_stored = False
        """It was written to a stream whose answer never came, or the answer left it in doubt."""


def timed_out(what: str) -> RequestTimedOut:
    """Return what a send raises whose time ended while it waited for `what`, before it was sent."""
    error = RequestTimedOut(f"not sent: timed out while waiting for {what}")
    error.may_have_happened = False
    return error


def too_late(
    broker_name: str, reason: TernError | None, may_have_happened: bool, *, is_sent: bool
) -> TernError:
    """Return what a send raises whose time ended at a broker.

    Args:
        broker_name: The broker.
        reason: Why it cannot be reached, or takes no messages; None when it does, as far as known.
        may_have_happened: It may have stored the message.
        is_sent: It was asked, and has not answered: the reason is an earlier attempt's.
    """
    if reason is not None and not is_sent:
        return renewed(reason, may_have_happened=may_have_happened)
    what = "no answer in time" if may_have_happened else "not sent in time"
    before = "" if reason is None else f"; before: {reason}"
    error = RequestTimedOut(f"broker {broker_name}: {what}{before}")
    error.may_have_happened = may_have_happened
    return error


def renewed(error: TernError, *, may_have_happened: bool) -> TernError:
    """Return a copy of `error` for one more waiter.

    Each needs its own: a raised exception collects the tracebacks of all who raise it.
    """
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error.__cause__
    if may_have_happened:
        copy.may_have_happened = True
    return copy
