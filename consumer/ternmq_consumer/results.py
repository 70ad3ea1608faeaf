"""What becomes of messages when a listener was called with them: the seam, and what ways share.

A concurrent consumer sends back what failed (`concurrent`), an orderly one tries it again first
(`orderly`), one that broadcasts counts it (`concurrent`, with nobody to send it back to).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ternmq_consumer.work import Work
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage


class Results(Protocol):
    """Ends hand-outs by what came of them. Used by the consumer's workers."""

    def begin(self, work: Work) -> None:
        """Learn that a worker has taken `work`."""
        ...

    def take(self, work: Work) -> None:
        """End `work`, which the worker is done with."""
        ...

    async def look(self) -> bool:
        """Look for calls that take too long. The step of a job."""
        ...


class HandsOut(Protocol):
    """Whom results tell what to hand out again: the `Dispatcher`."""

    def finish(self, work: Work, unfinished: Sequence[StoredMessage] = ()) -> None:
        """End a hand-out: all is finished but `unfinished`."""
        ...

    def settle(self, work: Work, unfinished: Sequence[StoredMessage]) -> None:
        """Note that a part of a hand-out is finished while the rest of it goes on."""
        ...

    def again(self, work: Work, after_s: float) -> None:
        """Hand out once more, after a pause, what a hand-out that has ended left unfinished."""
        ...

    def pass_on(self, work: Work, count: int) -> None:
        """Let somebody else have what lies behind the first `count` messages of a hand-out."""
        ...

    def report(self, work: Work, failed: Sequence[StoredMessage], error: Exception) -> None:
        """Log that the listener failed."""
        ...


@dataclass(slots=True, eq=False)
class Lot:
    """Messages of one hand-out on their way back to their broker."""

    queue: MessageQueue
    messages: Sequence[StoredMessage]
    levels: Sequence[int]
    """For each message, when to try it again: as in `ReconsumeLater.delay_level`."""

    is_wanted: Callable[[], bool]
    """Asked before sending: a queue that was dropped meanwhile is its next owner's."""

    on_answer: Callable[["Lot"], None]
    """Called once every message has an answer."""

    token: int = 0
    """Of the queue's lock; 0 = it has none."""

    refused: list[StoredMessage] = field(default_factory=list[StoredMessage])
    """Those that the broker has not confirmed, by offset."""

    is_fenced: bool = False
    """The broker called the token stale."""

    waiting: int = 0
    """Messages without an answer."""


class TakesBack(Protocol):
    """Gives messages back to their brokers: `SendBacks`."""

    def add(self, lot: Lot) -> None:
        """Send `lot` back soon, together with what else waits."""
        ...
