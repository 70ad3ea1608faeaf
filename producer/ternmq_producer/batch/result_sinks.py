"""Sinks of answers: to one message, and to messages that were sent one by one and travel as one."""

from collections.abc import Sequence
from typing import Protocol

from ternmq_model.arrays import Ints
from ternmq_model.errors import TernError
from ternmq_model.message import SendResult
from ternmq_producer.batch.send_errors import renewed


class ResultSink(Protocol):
    """Sink of an answer: a future, or a slot in the results of many messages."""

    def done(self) -> bool:
        """Return whether no caller waits any more: answered, timed out, or cancelled."""
        ...

    def set_result(self, result: SendResult, /) -> None:
        """Answer: stored."""
        ...

    def set_exception(self, error: TernError, /) -> None:
        """Answer: not stored, or not known to be."""
        ...


class SinkList:
    """Sinks of messages that were sent one by one: the sink of their `PendingBatch`."""

    __slots__ = ("_sinks",)

    def __init__(self, sinks: Sequence[ResultSink]) -> None:
        self._sinks = sinks

    def done(self) -> bool:
        """Return whether no caller waits any more."""
        return all(sink.done() for sink in self._sinks)

    def set_exception(self, error: TernError, /) -> None:
        """Answer every message with a copy of `error`: not stored, or not known to be."""
        for sink in self._sinks:
            if not sink.done():
                sink.set_exception(renewed(error, may_have_happened=error.may_have_happened))

    def slots(self) -> Sequence[ResultSink]:
        """Return the sink of each message."""
        return self._sinks

    def take(self, rows: Ints | slice) -> "SinkList":
        """Return the sinks of some messages, in the order of `rows`."""
        if isinstance(rows, slice):
            return SinkList(self._sinks[rows])
        indices: list[int] = rows.tolist()
        return SinkList([self._sinks[index] for index in indices])
