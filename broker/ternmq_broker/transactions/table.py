"""The table of open and ended transactions, and of progress in their two topics. Pure.

The half queue's offset is the lowest half message that is still needed, the op queue's the lowest
op message that names one. Neither passes a record before what replaced it is flushed: a loss of
power may take what was not, and then the old record is all there is.

Source: RocketMQ `TransactionalMessageServiceImpl`, whose two offsets these are.
"""

import heapq
import itertools
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from ternmq_broker.transactions.deadlines import StagedDeadlines
from ternmq_broker.transactions.op_codec import ops_bytes
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.transaction import Resolution

ENDED_MAX: Final = 65_536
"""Ended transactions whose outcome is told again from memory; older ones are looked up."""

WORKED_ON_MAX: Final = 4_096
"""Batches of which it is kept when they were last worked on."""

_EARLIER_MAX: Final = 16


@dataclass(slots=True, eq=False)
class OpenTransaction:
    """A transaction that is open. Owned by its `TransactionTable`."""

    transaction: PhysicalOffset
    physical_offset: PhysicalOffset
    """Offset in the log of its newest half message."""

    queue_offset: QueueOffset
    """Offset in the half queue of the same."""

    began_at_ms: int
    """Monotonic."""

    due_at_ms: int = 0
    """Monotonic: of the next look."""

    quiet_until_ms: int = 0
    """Monotonic: before that nobody is asked, as its record says."""

    group: str = ""
    """Its producers, once its record was looked at."""

    is_alone: bool = False
    """Nobody of the group was there to ask, when it was looked at last."""

    earlier: tuple[QueueOffset, ...] = ()
    """Half messages of it before the newest: the first one, and the last few."""

    is_ending: bool = False
    """Somebody works on its end."""

    is_staged: bool = False
    """Nobody is asked about it, and it stays where it is; when it is due, it is rolled back."""


_Untouched: TypeAlias = tuple[QueueOffset, int, int]
"""A staged one on whose end nobody has worked yet: its place in the half queue, when it began and
when it is due. There may be a million, at each of which the collector would look if it were an
object that refers to others."""


class EndedTransaction(NamedTuple):
    """A transaction that was committed or rolled back."""

    transaction: PhysicalOffset
    resolution: Resolution
    group: str
    message_id: str
    end: PhysicalOffset
    """The answer is given when the confirm offset is here."""

    queue_id: int = 0
    queue_offset: int = -1
    why: str = ""
    """Reason of its end, when no producer ended it."""


class OpenTimes(NamedTuple):
    """Times of an open transaction that its half message does not tell."""

    began_at_ms: int
    """Monotonic."""

    due_at_ms: int | None
    """Monotonic: when it is rolled back; None = it is not staged."""


class TransactionTable:
    """Every open transaction, and the newest that ended. Owned by the broker's loop."""

    def __init__(self) -> None:
        self.half_end = QueueOffset(0)
        """Behind the newest half message that is known."""

        self.op_end = QueueOffset(0)
        """Behind the newest op message."""

        self.committed = 0
        """Number of transactions committed since the start."""

        self.rolled_back = 0
        """Number of transactions rolled back since the start."""

        self.staged = 0
        """Number of open ones that are staged."""

        self._open: dict[PhysicalOffset, OpenTransaction | _Untouched] = {}
        self._queue: dict[QueueOffset, OpenTransaction | PhysicalOffset] = {}
        """By the queue offset of the newest half message; ascending. Of an untouched one, where it
        is."""

        # Both lose their oldest again and again: to find the first entry of a plain dict, all that
        # were ever before it are passed over.
        self._ended: OrderedDict[PhysicalOffset, EndedTransaction] = OrderedDict()
        self._fresh: deque[tuple[int, OpenTransaction]] = deque()
        self._later: list[tuple[int, int, OpenTransaction]] = []
        self._deadlines = StagedDeadlines()
        self._serial = itertools.count()
        self._held: OrderedDict[QueueOffset, PhysicalOffset] = OrderedDict()
        """Half messages that are done with once the log is flushed to an offset; those ascend."""

        self._unwritten: dict[QueueOffset, PhysicalOffset] = {}
        """Half messages that no op message names yet, and the message that ended each."""

        self._worked_on: OrderedDict[str, int] = OrderedDict()
        """Time of a producer's last question about or commit of a batch, by its name."""

        self._work_known_from_ms = 0
        self._unwritten_bytes = 0
        self._unflushed: deque[tuple[PhysicalOffset, PhysicalOffset]] = deque()
        """Ends of op messages that may not be flushed, and the first message that each tells of;
        both ascend."""

        self._ops: deque[tuple[QueueOffset, QueueOffset]] = deque()
        """Op messages, and the highest half message that each names."""

    def __len__(self) -> int:
        return len(self._open)

    def get(self, transaction: PhysicalOffset) -> OpenTransaction | None:
        """Return the transaction when it is open, for who works on it."""
        entry = self._open.get(transaction)
        return self._touched(transaction, entry) if isinstance(entry, tuple) else entry

    def _touched(self, transaction: PhysicalOffset, untouched: _Untouched) -> OpenTransaction:
        number, began_at_ms, due_at_ms = untouched
        entry = OpenTransaction(
            transaction, transaction, number, began_at_ms, due_at_ms, is_staged=True
        )
        self._open[transaction] = self._queue[number] = entry
        return entry

    def place(self, transaction: PhysicalOffset) -> PhysicalOffset | None:
        """Return where the newest half message of a transaction lies; None when it is not open."""
        entry = self._open.get(transaction)
        if entry is None:
            return None
        return transaction if isinstance(entry, tuple) else entry.physical_offset

    def is_ending(self, transaction: PhysicalOffset) -> bool:
        """Tell whether somebody works on the end of a transaction that is open."""
        entry = self._open.get(transaction)
        return isinstance(entry, OpenTransaction) and entry.is_ending

    def first_place(self, begin: QueueOffset, *, places_max: int) -> QueueOffset:
        """Return the first place from `begin` on that may be of an open transaction.

        Only so many are looked at: the place behind them is returned when there is nothing at any.
        From 0 on, that is nothing before the oldest open one.
        """
        if not begin:  # else not: that passes over all that were ever before the oldest
            begin = next(iter(self._queue), self.half_end)
        places = range(begin, min(begin + places_max, self.half_end))
        return next(
            (QueueOffset(place) for place in places if place in self._queue),
            QueueOffset(places.stop),
        )

    def times_at(self, place: QueueOffset) -> OpenTimes | None:
        """Return what is told of the transaction whose newest half message is at a place.

        Returns:
            None: There is no such one that is open.
        """
        entry = self._queue.get(place)
        if isinstance(entry, OpenTransaction):
            return OpenTimes(entry.began_at_ms, entry.due_at_ms if entry.is_staged else None)
        untouched = None if entry is None else self._open[entry]
        if not isinstance(untouched, tuple):
            return None
        return OpenTimes(untouched[1], untouched[2])

    def work_on(self, staged_for: str, *, now_ms: int) -> None:
        """Take note that a producer asked about or committed one that is staged for this."""
        if staged_for:
            self._worked_on[staged_for] = now_ms
            self._worked_on.move_to_end(staged_for)
            if len(self._worked_on) > WORKED_ON_MAX:
                _, self._work_known_from_ms = self._worked_on.popitem(last=False)

    def know_work_from(self, now_ms: int) -> None:
        """Take note that nothing is known of work before this."""
        self._work_known_from_ms = now_ms

    def worked_on_at(self, staged_for: str) -> int:
        """Return when that may have been last, monotonic: before what is known, it may have."""
        return self._worked_on.get(staged_for, self._work_known_from_ms)

    def ended(self, transaction: PhysicalOffset) -> EndedTransaction | None:
        """Return how the transaction ended, when that was not long ago."""
        return self._ended.get(transaction)

    def is_open(self, entry: OpenTransaction) -> bool:
        """Tell whether `entry` is not ended yet."""
        return self._open.get(entry.transaction) is entry

    def begin(
        self,
        physical_offsets: Sequence[PhysicalOffset],
        queue_offsets: Sequence[QueueOffset],
        *,
        now_ms: int,
        due_at_ms: int,
    ) -> None:
        """Take note of first half messages that were appended just now; none is staged."""
        for physical, number in zip(physical_offsets, queue_offsets, strict=True):
            entry = OpenTransaction(physical, physical, number, now_ms, due_at_ms)
            self._open[physical] = self._queue[number] = entry
            self._fresh.append((due_at_ms, entry))
        self.half_end = max(self.half_end, QueueOffset(queue_offsets[-1] + 1))

    def stage(
        self,
        physical_offsets: Sequence[PhysicalOffset],
        queue_offsets: Sequence[QueueOffset],
        *,
        now_ms: int,
        due_at_ms: int,
    ) -> None:
        """Take note of staged half messages that were appended just now.

        Args:
            physical_offsets: Of each.
            queue_offsets: Of each, ascending.
            now_ms: Monotonic.
            due_at_ms: Monotonic: when they are rolled back.
        """
        opened, queue = self._open, self._queue
        for physical, number in zip(physical_offsets, queue_offsets, strict=True):
            opened[physical] = (number, now_ms, due_at_ms)
            queue[number] = physical
        self.staged += len(physical_offsets)
        self._deadlines.add(queue_offsets[0], QueueOffset(queue_offsets[-1] + 1), due_at_ms)
        self.half_end = max(self.half_end, QueueOffset(queue_offsets[-1] + 1))

    def restore(self, entries: Iterable[OpenTransaction]) -> None:
        """Take over transactions that were found in the log: older than all that are known."""
        found = [entry for entry in entries if entry.transaction not in self._open]
        found.sort(key=lambda entry: entry.queue_offset)
        newer, self._queue = self._queue, {}
        for entry in found:
            place = entry.queue_offset
            if entry.is_staged and entry.physical_offset == entry.transaction:
                self._open[entry.transaction] = (place, entry.began_at_ms, entry.due_at_ms)
                self._queue[place] = entry.transaction
            else:
                self._open[entry.transaction] = self._queue[place] = entry
            if entry.is_staged:
                self._deadlines.add(place, QueueOffset(place + 1), entry.due_at_ms)
                self.staged += 1
            else:
                self._later.append((entry.due_at_ms, next(self._serial), entry))
        heapq.heapify(self._later)
        self._queue |= newer

    def rest(self, entry: OpenTransaction, *, until_ms: int) -> None:
        """Look at a transaction again, at a time of the monotonic clock."""
        entry.due_at_ms = until_ms
        self._push(entry)

    def _push(self, entry: OpenTransaction) -> None:
        heapq.heappush(self._later, (entry.due_at_ms, next(self._serial), entry))

    def take_due(self, now_ms: int, *, maximum: int) -> list[OpenTransaction]:
        """Return transactions that are due, the first due first; each wants `rest` or its end."""
        due: list[OpenTransaction] = []
        while len(due) < maximum:
            if self._fresh and self._fresh[0][0] <= now_ms:
                at_ms, entry = self._fresh.popleft()
            elif self._later and self._later[0][0] <= now_ms:
                at_ms, _, entry = heapq.heappop(self._later)
            else:
                break
            if self.is_open(entry) and entry.due_at_ms == at_ms:
                due.append(entry)
        return due

    def take_expired(self, now_ms: int, *, places_max: int) -> tuple[list[OpenTransaction], bool]:
        """Return staged transactions whose time is over; each wants `rest` or its end.

        Args:
            now_ms: Monotonic.
            places_max: Of the half topic, so many are looked at.

        Returns:
            Them, and whether there are more places to look at now.
        """
        places = self._deadlines.take(now_ms, maximum=places_max)
        expired: list[OpenTransaction] = []
        for place in places:
            entry = self._queue.get(place)
            if isinstance(entry, int):
                entry = self.get(entry)
            if entry is not None and entry.is_staged and entry.due_at_ms <= now_ms:
                expired.append(entry)
        return expired, len(places) == places_max

    def put_back(
        self,
        entry: OpenTransaction,
        physical_offset: PhysicalOffset,
        queue_offset: QueueOffset,
        *,
        end: PhysicalOffset,
    ) -> None:
        """Take note of a copy of an open transaction's half message; it ends at `end`."""
        del self._queue[entry.queue_offset]
        self._held[entry.queue_offset] = end
        kept = (*entry.earlier, entry.queue_offset)
        entry.earlier = kept if len(kept) <= _EARLIER_MAX else (kept[0], *kept[-_EARLIER_MAX + 1 :])
        entry.physical_offset, entry.queue_offset = physical_offset, queue_offset
        self._queue[queue_offset] = entry
        self.half_end = max(self.half_end, QueueOffset(queue_offset + 1))

    def end(
        self, entry: OpenTransaction, ended: EndedTransaction, *, record_at: PhysicalOffset | None
    ) -> None:
        """Take note of an open transaction's end, which the log holds.

        Args:
            entry: The transaction.
            ended: How it ended.
            record_at: Where the message or parked copy lies that ended it; its op message is still
                to be written. None = the op message itself ended it.
        """
        del self._open[entry.transaction]
        del self._queue[entry.queue_offset]
        self.staged -= entry.is_staged
        places = (*entry.earlier, entry.queue_offset)
        for place in places:
            # An earlier one that is passed already is so for good; others go to the line's end.
            if self._held.pop(place, None) is not None or place == entry.queue_offset:
                self._held[place] = ended.end
            if record_at is not None:
                self._unwritten[place] = record_at
                self._unwritten_bytes += ops_bytes(place)
        if ended.resolution is Resolution.COMMIT:
            self.committed += 1
        else:
            self.rolled_back += 1
        self.remember(ended)

    def remember(self, ended: EndedTransaction) -> None:
        """Keep how a transaction ended, for who asks again."""
        self._ended[ended.transaction] = ended
        if len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)

    @property
    def unwritten_bytes(self) -> int:
        """Length of the op message that is to be written."""
        return self._unwritten_bytes

    def unwritten(self) -> Sequence[QueueOffset]:
        """Return the half messages that the next op message must name."""
        return list(self._unwritten)

    def op_written(
        self, named: Sequence[QueueOffset], queue_offset: QueueOffset, *, end: PhysicalOffset
    ) -> None:
        """Take note of an op message that names all of `unwritten`, perhaps others; it ends there.

        As long as it is not flushed, a loss of power leaves those messages without one.
        """
        if self._unwritten:
            self._unflushed.append((end, next(iter(self._unwritten.values()))))
        self._unwritten.clear()
        self._unwritten_bytes = 0
        self.op_found(max(named), queue_offset)

    def op_found(self, highest: QueueOffset, queue_offset: QueueOffset) -> None:
        """Take note of an op message in the log, by the highest half message it names."""
        self._ops.append((queue_offset, highest))
        self.op_end = max(self.op_end, QueueOffset(queue_offset + 1))

    def scan_offset(self, flushed: PhysicalOffset) -> PhysicalOffset:
        """Return before which no message lies without an op message that survives a loss of power.

        Args:
            flushed: Where the log survives one: it may go on from there anew.
        """
        while self._unflushed and self._unflushed[0][0] <= flushed:
            self._unflushed.popleft()
        if self._unflushed:
            return min(flushed, self._unflushed[0][1])
        return min(flushed, next(iter(self._unwritten.values()), flushed))

    def half_offset(self, flushed: PhysicalOffset) -> QueueOffset:
        """Return the lowest half message that may be needed after a loss of power."""
        while self._held:
            place = next(iter(self._held))
            if self._held[place] > flushed:
                break
            del self._held[place]
        lowest = next(iter(self._queue), self.half_end)
        return min(lowest, min(self._held, default=lowest))

    def lowest_place(self) -> PhysicalOffset | None:
        """Return where the oldest open half message lies in the log; None when there is none."""
        first = next(iter(self._queue.values()), None)
        return first.physical_offset if isinstance(first, OpenTransaction) else first

    def op_offset(self, half_offset: QueueOffset) -> QueueOffset:
        """Return the lowest op message that names a half message from `half_offset` on."""
        while self._ops and self._ops[0][1] < half_offset:
            self._ops.popleft()
        return self._ops[0][0] if self._ops else self.op_end
