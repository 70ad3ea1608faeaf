"""The messages of one queue that a consumer has in hand, and how far it may commit. Pure.

Messages come in batches, in the order of their offsets, and are handed out in the same order in
pieces of any size. So the unfinished ones are a row of hand-outs followed by a row of batches,
each a stretch of the queue, and nothing is counted message by message: what may be committed is
where the first unfinished stretch begins. RocketMQ keeps a tree of messages for the same answer.

Source: RocketMQ `ProcessQueue`.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from ternmq_model.offsets import QueueOffset


class QueuedMessage(Protocol):
    """A message in hand: a `StoredMessage`, or a test's own."""

    @property
    def queue_offset(self) -> QueueOffset:
        """Offset in the queue."""
        ...

    @property
    def record_bytes(self) -> int:
        """Length of its record."""
        ...


M = TypeVar("M", bound=QueuedMessage)


@dataclass(slots=True, eq=False)
class Handout(Generic[M]):
    """Range of a queue's messages that one listener call handles.

    Owned by its `ProcessQueue`; others read it.
    """

    messages: list[M]
    """Unfinished messages, in the order of their offsets."""

    record_bytes: int
    begin: QueueOffset
    """Offset of the first unfinished message."""

    attempts: int = 0
    """Number of times that all of it, or what is left of it, came back unfinished."""


@dataclass(slots=True, eq=False)
class _WaitingBatch(Generic[M]):
    messages: list[M]
    record_bytes: int
    taken: int = 0


class ProcessQueue(Generic[M]):
    """The messages of one queue that a consumer has in hand.

    Owned by the consumer that the queue is assigned to and touched only from its event loop,
    except `dropped`, which a listener's thread may read.

    Args:
        start: Where consuming begins: what `commit_offset` says while nothing was added.

    Attributes:
        next_offset: The offset after the last one that was added or passed over.
        count: Unfinished messages, handed out or not.
        record_bytes: Length of their records.
        running: Hand-outs under way: given by `take` or `take_again`, and not yet ended.
        dropped: The queue belongs to somebody else now: hand nothing more of it to a listener.
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
        """Messages that nobody works on yet. Those that wait to be tried again do not count."""
        return self._waiting_count

    @property
    def commit_offset(self) -> QueueOffset:
        """The lowest unfinished offset: every message below it is finished or was not wanted."""
        if self._handed:
            return self._handed[0].begin
        if self._waiting:
            batch = self._waiting[0]
            return batch.messages[batch.taken].queue_offset
        return self.next_offset

    @property
    def span(self) -> int:
        """Distance of reading ahead of committing, in messages of the queue."""
        return self.next_offset - self.commit_offset

    def add(self, messages: list[M], record_bytes: int, next_offset: QueueOffset) -> None:
        """Add a batch that was read.

        Args:
            messages: Those that are wanted, by offset, all at `self.next_offset` or later. Kept.
                May be empty: all that was read was not wanted.
            record_bytes: Length of their records together.
            next_offset: Where the read ended, after all messages.
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
        """Hand out the next messages, at most `count_max`, or return None when none waits.

        The caller ends the hand-out with `finish`.
        """
        if not self._waiting:
            return None
        messages, record_bytes = self._cut(count_max)
        while self._waiting and len(messages) < count_max:
            more, more_bytes = self._cut(count_max - len(messages))
            messages = messages + more
            record_bytes += more_bytes
        self._waiting_count -= len(messages)
        handout = Handout(messages, record_bytes, messages[0].queue_offset)
        self._handed.append(handout)
        self.running += 1
        return handout

    def take_again(self, handout: Handout[M]) -> None:
        """Hand out once more what an earlier call left unfinished."""
        assert handout.messages, "a finished hand-out is over"
        self.running += 1

    def part(self, handout: Handout[M], count: int) -> Handout[M] | None:
        """Make a hand-out of its own of what lies behind the first `count` messages of another.

        Returns:
            One as from `take`, which the caller ends too; None when nothing lies there.
        """
        behind = handout.messages[count:]
        if not behind:
            return None
        record_bytes = sum(message.record_bytes for message in behind)
        parted = Handout(behind, record_bytes, behind[0].queue_offset)
        handout.messages = handout.messages[:count]
        handout.record_bytes -= record_bytes
        self._handed.insert(self._handed.index(handout) + 1, parted)
        self.running += 1
        return parted

    def finish(self, handout: Handout[M], unfinished: Sequence[M] = ()) -> tuple[int, int]:
        """End a hand-out: all its messages are finished, except those in `unfinished`.

        Those stay in `handout.messages`, and the commit offset does not pass them.

        Args:
            handout: From `take` or `take_again`, not ended since.
            unfinished: Some of `handout.messages`, by offset.

        Returns:
            How many messages are finished by this call, and the length of their records.
        """
        self.running -= 1
        return self.settle(handout, unfinished)

    def settle(self, handout: Handout[M], unfinished: Sequence[M]) -> tuple[int, int]:
        """Record that a part of a hand-out is finished while the rest of it goes on.

        Args and result are those of `finish`.
        """
        done = len(handout.messages)
        done_bytes = handout.record_bytes
        if unfinished:
            handout.messages = list(unfinished)
            handout.record_bytes = sum(message.record_bytes for message in unfinished)
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

    def _cut(self, count_max: int) -> tuple[list[M], int]:
        """Remove at most `count_max` messages from the first waiting batch."""
        batch = self._waiting[0]
        left = len(batch.messages) - batch.taken
        if left <= count_max:
            self._waiting.popleft()
            whole = batch.messages if not batch.taken else batch.messages[batch.taken :]
            return whole, batch.record_bytes
        part = batch.messages[batch.taken : batch.taken + count_max]
        part_bytes = sum(message.record_bytes for message in part)
        batch.taken += count_max
        batch.record_bytes -= part_bytes
        return part, part_bytes
