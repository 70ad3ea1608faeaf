"""Table of open and ended transactions, and of progress in their two topics. Pure.

The offset of the half queue is the lowest half message that is still needed; the offset of the op
queue is the lowest op message that names such a half message. Neither passes a record before its
replacement is flushed: a loss of power may leave only the old record.

Source: RocketMQ `TransactionalMessageServiceImpl`, which has the same two offsets.
"""

import heapq
import itertools
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from ternmq_broker.transactions.deadlines import StagedDeadlines
from ternmq_broker.transactions.half_codec import ops_bytes
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.transaction import Resolution

ENDED_MAX: Final = 65_536
"""Limit on the ended transactions in memory; the ends of older ones are looked up in the log."""

WORKED_ON_MAX: Final = 4_096
"""Limit on the batches with their time of last work in memory."""

_EARLIER_MAX: Final = 16


@dataclass(slots=True, eq=False)
class OpenTransaction:
    """Open transaction. Owned by its `TransactionTable`."""

    transaction: PhysicalOffset
    physical_offset: PhysicalOffset
    """Log offset of the newest half message."""

    queue_offset: QueueOffset
    """Offset of the newest half message in the half queue."""

    began_at_ms: int
    """Monotonic time of the first half message."""

    due_at_ms: int = 0
    """Monotonic time of the next check."""

    quiet_until_ms: int = 0
    """Monotonic time before which no producer is asked, by the immunity time of the message."""

    group: str = ""
    """Producer group; empty until the record is read."""

    is_alone: bool = False
    """No producer of the group was connected at the last check."""

    earlier: tuple[QueueOffset, ...] = ()
    """Offsets of the half messages before the newest: the first, and the last few."""

    is_ending: bool = False
    """A request works on the end of this transaction."""

    is_staged: bool = False
    """No producer is asked about this transaction, and its half message is never copied; when it is
    due, it is rolled back."""

    topic: str = ""
    """Real topic of the message."""


_Untouched: TypeAlias = tuple[QueueOffset, int, int, str]
"""Staged transaction, before a request works on its end: offset in the half queue, time of its
begin, time at which it is due, and topic. There may be a million, and the garbage collector would
visit each if it were an object that refers to others."""


class EndedTransaction(NamedTuple):
    """Transaction that was committed or rolled back."""

    transaction: PhysicalOffset
    resolution: Resolution
    group: str
    message_id: str
    end: PhysicalOffset
    """Confirm offset from which on the end is safe to answer."""

    queue_id: int = 0
    queue_offset: int = -1
    why: str = ""
    """Reason of an end that no producer requested."""


class OpenTimes(NamedTuple):
    """Times of an open transaction that are not in its half message."""

    began_at_ms: int
    """Monotonic."""

    due_at_ms: int | None
    """Monotonic time of its roll-back; None = it is not staged."""


class TransactionTable:
    """All open transactions, and the newest ended ones. Owned by the broker's loop."""

    def __init__(self) -> None:
        self.half_end = QueueOffset(0)
        """Offset behind the newest half message."""

        self.op_end = QueueOffset(0)
        """Offset behind the newest op message."""

        self.committed = 0
        """Number of transactions committed since the start."""

        self.rolled_back = 0
        """Number of transactions rolled back since the start."""

        self.staged = 0
        """Number of open transactions that are staged."""

        self.open_topics: Counter[str] = Counter()
        """Number of open transactions by topic."""

        self.work_known_from_ms = 0
        """Monotonic time before which work on batches is not known."""

        self.unwritten_bytes = 0
        """Length of the next op message."""

        self._open: dict[PhysicalOffset, OpenTransaction | _Untouched] = {}
        self._queue: dict[QueueOffset, OpenTransaction | PhysicalOffset] = {}
        """Transactions by the queue offset of their newest half message, ascending; for untouched
        ones the log offset."""

        # OrderedDicts where the oldest entry is removed again and again: the first entry of a plain
        # dict is found only behind the gaps of all that were removed before it.
        self._ended: OrderedDict[PhysicalOffset, EndedTransaction] = OrderedDict()
        self._fresh: deque[tuple[int, OpenTransaction]] = deque()
        self._later: list[tuple[int, int, OpenTransaction]] = []
        self._deadlines = StagedDeadlines()
        self._serial = itertools.count()
        self._held: OrderedDict[QueueOffset, PhysicalOffset] = OrderedDict()
        """Half messages that are needed until the log is flushed to an offset, by ascending
        offsets."""

        self._unwritten: dict[QueueOffset, PhysicalOffset] = {}
        """Half messages that no op message names yet, with the log offset of the ending message."""

        self._worked_on: OrderedDict[str, int] = OrderedDict()
        """Time of a producer's last question about a batch or commit of it, by the batch's name."""

        self._unflushed: deque[tuple[PhysicalOffset, PhysicalOffset]] = deque()
        """Ends of op messages that may not be flushed, with the first message that each names; both
        ascend."""

        self._ops: deque[tuple[QueueOffset, QueueOffset]] = deque()
        """Op messages, with the highest half message that each names."""

    def __len__(self) -> int:
        return len(self._open)

    def get(self, transaction: PhysicalOffset) -> OpenTransaction | None:
        """Return an open transaction, for work on it; None when it is not open."""
        entry = self._open.get(transaction)
        if not isinstance(entry, tuple):
            return entry
        number, began_at_ms, due_at_ms, topic = entry
        entry = OpenTransaction(
            transaction, transaction, number, began_at_ms, due_at_ms, is_staged=True, topic=topic
        )
        self._open[transaction] = self._queue[number] = entry
        return entry

    def physical_offset_of(self, transaction: PhysicalOffset) -> PhysicalOffset | None:
        """Return the log offset of a transaction's newest half message; None = it is not open."""
        entry = self._open.get(transaction)
        if entry is None:
            return None
        return transaction if isinstance(entry, tuple) else entry.physical_offset

    def is_ending(self, transaction: PhysicalOffset) -> bool:
        """Return whether a request works on the end of an open transaction."""
        entry = self._open.get(transaction)
        return isinstance(entry, OpenTransaction) and entry.is_ending

    def next_open(self, begin: QueueOffset, *, offsets_max: int) -> QueueOffset:
        """Return the first offset from `begin` on with a half message that may be open.

        At most `offsets_max` offsets are tried; the next one is returned when none of them is
        open. From 0 on, offsets before the oldest open half message are not tried.
        """
        if not begin:  # only then: the first entry is found behind the gaps of all before it
            begin = next(iter(self._queue), self.half_end)
        offsets = range(begin, min(begin + offsets_max, self.half_end))
        return next(
            (QueueOffset(offset) for offset in offsets if offset in self._queue),
            QueueOffset(offsets.stop),
        )

    def times_at(self, queue_offset: QueueOffset) -> OpenTimes | None:
        """Return the times of the open transaction with its newest half message at an offset.

        Returns:
            The times, or None without such a transaction.
        """
        entry = self._queue.get(queue_offset)
        if isinstance(entry, OpenTransaction):
            return OpenTimes(entry.began_at_ms, entry.due_at_ms if entry.is_staged else None)
        untouched = None if entry is None else self._open[entry]
        if not isinstance(untouched, tuple):
            return None
        return OpenTimes(untouched[1], untouched[2])

    def work_on(self, staged_for: str, *, now_ms: int) -> None:
        """Record a producer's question about a batch or commit of it; an empty name is ignored."""
        if staged_for:
            self._worked_on[staged_for] = now_ms
            self._worked_on.move_to_end(staged_for)
            if len(self._worked_on) > WORKED_ON_MAX:
                _, self.work_known_from_ms = self._worked_on.popitem(last=False)

    def worked_on_at(self, staged_for: str) -> int:
        """Return the latest time at which a producer may have worked on a batch; monotonic."""
        return self._worked_on.get(staged_for, self.work_known_from_ms)

    def ended(self, transaction: PhysicalOffset) -> EndedTransaction | None:
        """Return the end of a transaction; None when it is open or no longer in memory."""
        return self._ended.get(transaction)

    def is_open(self, entry: OpenTransaction) -> bool:
        """Return whether a transaction has not ended yet."""
        return self._open.get(entry.transaction) is entry

    def begin(
        self,
        physical_offsets: Sequence[PhysicalOffset],
        queue_offsets: Sequence[QueueOffset],
        *,
        now_ms: int,
        due_at_ms: int,
        topics: Iterable[str],
        is_staged: bool = False,
    ) -> None:
        """Open the transactions of half messages that were just appended.

        Args:
            physical_offsets: Log offsets of the half messages.
            queue_offsets: Offsets of the half messages in the half queue, ascending.
            now_ms: Monotonic.
            due_at_ms: Monotonic time of the first check, or of the roll-back of staged ones.
            topics: Real topic of each message.
            is_staged: True for staged half messages, all of them.
        """
        opened, queue = self._open, self._queue
        for physical, number, topic in zip(physical_offsets, queue_offsets, topics, strict=True):
            self.open_topics[topic] += 1
            if is_staged:
                opened[physical] = (number, now_ms, due_at_ms, topic)
                queue[number] = physical
            else:
                entry = OpenTransaction(physical, physical, number, now_ms, due_at_ms, topic=topic)
                opened[physical] = queue[number] = entry
                self._fresh.append((due_at_ms, entry))
        end = QueueOffset(queue_offsets[-1] + 1)
        if is_staged:
            self.staged += len(physical_offsets)
            self._deadlines.add(queue_offsets[0], end, due_at_ms)
        self.half_end = max(self.half_end, end)

    def restore(self, entries: Iterable[OpenTransaction]) -> None:
        """Open transactions from the log, which are older than all in the table."""
        found = [entry for entry in entries if entry.transaction not in self._open]
        found.sort(key=lambda entry: entry.queue_offset)
        newer, self._queue = self._queue, {}
        for entry in found:
            number, times = entry.queue_offset, (entry.began_at_ms, entry.due_at_ms)
            self.open_topics[entry.topic] += 1
            if entry.is_staged and entry.physical_offset == entry.transaction:
                self._open[entry.transaction] = (number, *times, entry.topic)
                self._queue[number] = entry.transaction
            else:
                self._open[entry.transaction] = self._queue[number] = entry
            if entry.is_staged:
                self._deadlines.add(number, QueueOffset(number + 1), entry.due_at_ms)
                self.staged += 1
            else:
                self._later.append((entry.due_at_ms, next(self._serial), entry))
        heapq.heapify(self._later)
        self._queue |= newer

    def rest(self, entry: OpenTransaction, *, until_ms: int) -> None:
        """Set the time of a transaction's next check; monotonic."""
        entry.due_at_ms = until_ms
        heapq.heappush(self._later, (until_ms, next(self._serial), entry))

    def due_at_ms(self) -> float:
        """Return the monotonic time of the first check or roll-back; infinity = none is planned."""
        planned = [plan[0][0] for plan in (self._fresh, self._later) if plan]
        return min([*planned, self._deadlines.first_ms()], default=math.inf)

    def take_due(self, now_ms: int) -> OpenTransaction | None:
        """Return the first due transaction, which needs `rest` or an end afterwards; else None."""
        while True:
            if self._fresh and self._fresh[0][0] <= now_ms:
                at_ms, entry = self._fresh.popleft()
            elif self._later and self._later[0][0] <= now_ms:
                at_ms, _, entry = heapq.heappop(self._later)
            else:
                return None
            if self.is_open(entry) and entry.due_at_ms == at_ms:
                return entry

    def take_expired(self, now_ms: int, *, offsets_max: int) -> tuple[list[OpenTransaction], bool]:
        """Return due staged transactions; each needs `rest` or an end afterwards.

        Args:
            now_ms: Monotonic.
            offsets_max: Limit on the offsets of the half topic that are tried.

        Returns:
            The transactions, and True if more offsets are to be tried now.
        """
        numbers = self._deadlines.take(now_ms, maximum=offsets_max)
        expired: list[OpenTransaction] = []
        for number in numbers:
            entry = self._queue.get(number)
            if isinstance(entry, int):
                entry = self.get(entry)
            if entry is not None and entry.is_staged and entry.due_at_ms <= now_ms:
                expired.append(entry)
        return expired, len(numbers) == offsets_max

    def put_back(
        self,
        entry: OpenTransaction,
        physical_offset: PhysicalOffset,
        queue_offset: QueueOffset,
        *,
        end: PhysicalOffset,
    ) -> None:
        """Record a copy of an open transaction's half message, which ends at `end` in the log."""
        del self._queue[entry.queue_offset]
        self._held[entry.queue_offset] = end
        earlier = (*entry.earlier, entry.queue_offset)
        if len(earlier) > _EARLIER_MAX:
            earlier = (earlier[0], *earlier[-_EARLIER_MAX + 1 :])
        entry.earlier = earlier
        entry.physical_offset, entry.queue_offset = physical_offset, queue_offset
        self._queue[queue_offset] = entry
        self.half_end = max(self.half_end, QueueOffset(queue_offset + 1))

    def end(
        self, entry: OpenTransaction, ended: EndedTransaction, *, record_at: PhysicalOffset | None
    ) -> None:
        """Record an open transaction's end, which is in the log.

        Args:
            entry: Open transaction.
            ended: End of the transaction.
            record_at: Log offset of the message or parked copy that ended the transaction and still
                lacks its op message. None = the op message itself ended the transaction.
        """
        del self._open[entry.transaction]
        del self._queue[entry.queue_offset]
        self.staged -= entry.is_staged
        self.open_topics[entry.topic] -= 1
        if not self.open_topics[entry.topic]:
            del self.open_topics[entry.topic]
        for number in (*entry.earlier, entry.queue_offset):
            # An earlier one that is passed already stays passed; others move to the end.
            if self._held.pop(number, None) is not None or number == entry.queue_offset:
                self._held[number] = ended.end
            if record_at is not None:
                self._unwritten[number] = record_at
                self.unwritten_bytes += ops_bytes(number)
        if ended.resolution is Resolution.COMMIT:
            self.committed += 1
        else:
            self.rolled_back += 1
        self.remember(ended)

    def remember(self, ended: EndedTransaction) -> None:
        """Store the end of a transaction for later requests."""
        self._ended[ended.transaction] = ended
        if len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)

    def unwritten(self) -> Sequence[QueueOffset]:
        """Return the half messages that the next op message must name."""
        return list(self._unwritten)

    def op_written(
        self, named: Sequence[QueueOffset], queue_offset: QueueOffset, *, end: PhysicalOffset
    ) -> None:
        """Record an op message that names all of `unwritten`, perhaps others.

        Until the log is flushed to `end`, a loss of power leaves those messages without an op
        message.
        """
        if self._unwritten:
            self._unflushed.append((end, next(iter(self._unwritten.values()))))
        self._unwritten.clear()
        self.unwritten_bytes = 0
        self.op_found(max(named), queue_offset)

    def op_found(self, highest: QueueOffset, queue_offset: QueueOffset) -> None:
        """Record an op message in the log, with the highest half message that it names."""
        self._ops.append((queue_offset, highest))
        self.op_end = max(self.op_end, QueueOffset(queue_offset + 1))

    def scan_offset(self, flushed: PhysicalOffset) -> PhysicalOffset:
        """Return the log offset before which every message has a flushed op message.

        Args:
            flushed: Offset up to which the log survives a loss of power.
        """
        while self._unflushed and self._unflushed[0][0] <= flushed:
            self._unflushed.popleft()
        if self._unflushed:
            return min(flushed, self._unflushed[0][1])
        return min(flushed, next(iter(self._unwritten.values()), flushed))

    def half_offset(self, flushed: PhysicalOffset) -> QueueOffset:
        """Return the lowest half message that may be needed after a loss of power."""
        while self._held:
            number = next(iter(self._held))
            if self._held[number] > flushed:
                break
            del self._held[number]
        lowest = next(iter(self._queue), self.half_end)
        return min(lowest, min(self._held, default=lowest))

    def lowest_physical_offset(self) -> PhysicalOffset | None:
        """Return the log offset of the oldest open half message; None when there is none."""
        first = next(iter(self._queue.values()), None)
        return first.physical_offset if isinstance(first, OpenTransaction) else first

    def op_offset(self, half_offset: QueueOffset) -> QueueOffset:
        """Return the lowest op message that names a half message from `half_offset` on."""
        while self._ops and self._ops[0][1] < half_offset:
            self._ops.popleft()
        return self._ops[0][0] if self._ops else self.op_end
