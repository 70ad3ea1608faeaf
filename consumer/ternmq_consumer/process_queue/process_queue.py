"""Unfinished messages of one queue at a consumer, and their commit offset. Pure.

Messages come in batches in the order of their offsets, and are handed out in that order in pieces
of any size. So the unfinished messages are a sequence of hand-outs followed by a sequence of
batches, each a range of the queue. The commit offset is the begin of the first range; no work is
done for each message. RocketMQ keeps a tree of messages instead.

Source: RocketMQ `ProcessQueue`.
"""

from abc import abstractmethod
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from ternmq_model.offsets import QueueOffset


class QueuedMessage(Protocol):
    """Unfinished message: a `StoredMessage`, or a class of a test."""

    @property
    def queue_offset(self) -> QueueOffset:
        """Offset in the queue."""
        ...

    @property
    def record_bytes(self) -> int:
        """Length of the record, bytes."""
        ...


M = TypeVar("M", bound=QueuedMessage)


class MessageSeries(Sequence[M]):
    """Messages that know their length in bytes and are joined without an object for each."""

    __slots__ = ()

    @property
    @abstractmethod
    def record_bytes(self) -> int:
        """Length of all records."""

    @abstractmethod
    def join(self, other: "MessageSeries[M]") -> "MessageSeries[M]":
        """Return these messages and those of `other`, which follow."""

    @abstractmethod
    def tagged(self, tags: Collection[str]) -> "MessageSeries[M]":
        """Return the messages with one of `tags`."""


def bytes_of(messages: Sequence[M]) -> int:
    """Return the length of the records of `messages`."""
    if isinstance(messages, MessageSeries):
        return messages.record_bytes
    return sum(message.record_bytes for message in messages)


def _joined(first: Sequence[M], second: Sequence[M]) -> Sequence[M]:
    """Return the messages of both."""
    if isinstance(first, MessageSeries) and isinstance(second, MessageSeries):
        return first.join(second)
    return [*first, *second]


@dataclass(slots=True, eq=False)
class Handout(Generic[M]):
    """Range of a queue's messages for one listener call.

    Owned by its `ProcessQueue`. Other objects only read it.
    """

    messages: Sequence[M]
    """Unfinished messages, in the order of their offsets."""

    record_bytes: int
    begin: QueueOffset
    """Offset of the first unfinished message."""

    attempts: int = 0
    """Number of hand-outs before that left these messages unfinished."""


@dataclass(slots=True, eq=False)
class _WaitingBatch(Generic[M]):
    messages: Sequence[M]
    record_bytes: int
    taken: int = 0


class ProcessQueue(Generic[M]):
    """Unfinished messages of one queue at a consumer.

    Owned by the consumer of the queue and used only on its event loop, except `dropped`, which
    threads of listeners may read.

    Args:
        start: Offset at which consuming begins; the first commit offset.

    Attributes:
        next_offset: Offset behind the last added or filtered message.
        count: Number of unfinished messages, handed out or not.
        record_bytes: Length of their records, bytes.
        running: Number of hand-outs of `take` or `take_again` that have not ended.
        dropped: The queue belongs to another member: no message of it is handed out any more.
    """

    def __init__(self, start: QueueOffset) -> None:
        self.next_offset = start
        self.count = 0
        self.record_bytes = 0
        self.running = 0
        self.dropped = False
        self._waiting: deque[_WaitingBatch[M]] = deque()
        self._handed: deque[Handout[M]] = deque()
        self._waiting_count = 0

    @property
    def waiting(self) -> int:
        """Number of messages that were never handed out."""
        return self._waiting_count

    @property
    def commit_offset(self) -> QueueOffset:
        """Lowest unfinished offset. Every message below it is finished or filtered."""
        if self._handed:
            return self._handed[0].begin
        if self._waiting:
            batch = self._waiting[0]
            return batch.messages[batch.taken].queue_offset
        return self.next_offset

    @property
    def span(self) -> int:
        """Offsets between reading and committing."""
        return self.next_offset - self.commit_offset

    def add(self, messages: Sequence[M], record_bytes: int, next_offset: QueueOffset) -> None:
        """Add a batch.

        Args:
            messages: Messages in the order of their offsets, at `self.next_offset` or later. This
                object keeps the list. The list is empty if the filter dropped all messages.
            record_bytes: Length of their records, bytes.
            next_offset: Offset behind the last read message.
        """
        assert next_offset >= self.next_offset, "a queue is read forwards"
        if messages:
            assert messages[0].queue_offset >= self.next_offset, "a batch overlaps its forerunner"
            self._waiting.append(_WaitingBatch(messages, record_bytes))
            self._waiting_count += len(messages)
            self.count += len(messages)
            self.record_bytes += record_bytes
        self.next_offset = next_offset

    def take(self, count_max: int) -> Handout[M] | None:
        """Hand out the next messages, at most `count_max`; None = no message is waiting.

        The caller ends the hand-out with `finish`.
        """
        if not self._waiting:
            return None
        messages, record_bytes = self._cut(count_max)
        while self._waiting and len(messages) < count_max:
            more, more_bytes = self._cut(count_max - len(messages))
            messages = _joined(messages, more)
            record_bytes += more_bytes
        self._waiting_count -= len(messages)
        handout = Handout(messages, record_bytes, messages[0].queue_offset)
        self._handed.append(handout)
        self.running += 1
        return handout

    def take_again(self, handout: Handout[M]) -> None:
        """Hand out the unfinished messages of an earlier hand-out again."""
        assert handout.messages, "a finished hand-out is over"
        self.running += 1

    def part(self, handout: Handout[M], count: int) -> Handout[M] | None:
        """Move the messages behind the first `count` ones to a hand-out of their own.

        Returns:
            New hand-out, which the caller ends with `finish`; None = there are no such messages.
        """
        behind = handout.messages[count:]
        if not behind:
            return None
        record_bytes = bytes_of(behind)
        parted = Handout(behind, record_bytes, behind[0].queue_offset)
        handout.messages = handout.messages[:count]
        handout.record_bytes -= record_bytes
        self._handed.insert(self._handed.index(handout) + 1, parted)
        self.running += 1
        return parted

    def finish(self, handout: Handout[M], unfinished: Sequence[M] = ()) -> tuple[int, int]:
        """End a hand-out: all its messages are finished, except those in `unfinished`.

        Unfinished messages stay in `handout.messages`, and the commit offset does not pass them.

        Args:
            handout: Running hand-out of `take` or `take_again`.
            unfinished: Messages among `handout.messages`, in the order of their offsets.

        Returns:
            Number of messages that this call finishes, and the length of their records, bytes.
        """
        self.running -= 1
        return self.settle(handout, unfinished)

    def settle(self, handout: Handout[M], unfinished: Sequence[M]) -> tuple[int, int]:
        """Finish a part of a hand-out while its other messages go on.

        Args and result are those of `finish`.
        """
        done = len(handout.messages)
        done_bytes = handout.record_bytes
        if unfinished:
            is_series = isinstance(unfinished, MessageSeries)
            handout.messages = unfinished if is_series else list(unfinished)
            handout.record_bytes = bytes_of(unfinished)
            handout.begin = unfinished[0].queue_offset
            done -= len(unfinished)
            done_bytes -= handout.record_bytes
        else:
            handout.messages = []
            handout.record_bytes = 0
            while self._handed and not self._handed[0].messages:
                self._handed.popleft()
        self.count -= done
        self.record_bytes -= done_bytes
        return done, done_bytes

    def _cut(self, count_max: int) -> tuple[Sequence[M], int]:
        """Remove at most `count_max` messages from the first waiting batch."""
        batch = self._waiting[0]
        left = len(batch.messages) - batch.taken
        if left <= count_max:
            self._waiting.popleft()
            whole = batch.messages if not batch.taken else batch.messages[batch.taken :]
            return whole, batch.record_bytes
        part = batch.messages[batch.taken : batch.taken + count_max]
        part_bytes = bytes_of(part)
        batch.taken += count_max
        batch.record_bytes -= part_bytes
        return part, part_bytes
