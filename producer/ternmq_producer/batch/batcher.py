"""Natural batching: what is sent while earlier batches travel forms the next one. Pure.

Everything here is decided without waiting: a `BrokerLink` does the I/O and tells what came of it.

* A batch leaves as soon as there is something to send and fewer than the allowed number of batches
  are unanswered. There is no linger: alone, a message leaves at once.
* Messages of an ordered queue are in at most one unanswered batch. Else, when the first of two
  batches is refused and the second is not, they would change places.
* Messages that may have been stored already go in batches of their own, marked as such.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from ternmq_model.queue import MessageQueue
from ternmq_producer.batch.atomic_batch import PendingBatch
from ternmq_producer.batch.bulk import BulkSlice
from ternmq_producer.batch.pending_send import PendingSend

PendingT = TypeVar("PendingT", bound=PendingSend)


@dataclass(slots=True)
class ProducerBatch:
    """Messages that travel together. Their records lie in the order: singles, then slices."""

    singles: list[PendingSend] = field(default_factory=list[PendingSend])
    slices: list[BulkSlice] = field(default_factory=list[BulkSlice])
    ordered_queues: set[MessageQueue] = field(default_factory=set[MessageQueue])
    is_retry: bool = False
    atomic: PendingBatch | None = None
    """The one of `singles`, when it is an atomic batch."""

    record_bytes: int = 0
    """Bytes that the buffer is charged for all of it."""

    written_at_ms: int = 0
    """Monotonic."""

    def __len__(self) -> int:
        if self.atomic is not None:
            return len(self.atomic)
        return len(self.singles) + sum(map(len, self.slices))


@dataclass(slots=True)
class ExpiredSends:
    """Messages that ran out of time; a broker may have stored the unanswered ones."""

    unsent: list[PendingSend] = field(default_factory=list[PendingSend])
    unsent_slices: list[BulkSlice] = field(default_factory=list[BulkSlice])
    unanswered: list[PendingSend] = field(default_factory=list[PendingSend])
    unanswered_slices: list[BulkSlice] = field(default_factory=list[BulkSlice])


class Batcher:
    """The messages of one link, from their arrival to their answer. Pure: no I/O, no clock.

    Args:
        batch_bytes_max: Most bytes of records in a batch; one larger message goes alone.
        batches_max: Most unanswered batches.
        free: Called with the bytes of messages that were dropped because nobody waits for them.
    """

    def __init__(
        self, *, batch_bytes_max: int, batches_max: int, free: Callable[[int], None]
    ) -> None:
        self.batch_bytes_max = batch_bytes_max
        self._batches_max = batches_max
        self._free = free
        self._fresh: deque[PendingSend] = deque()
        self._suspect: deque[PendingSend] = deque()
        self._slices: deque[BulkSlice] = deque()
        self._ordered: dict[MessageQueue, deque[PendingSend]] = {}
        self._ready: dict[MessageQueue, None] = {}  # a dict keeps their order of arrival
        self._held: set[MessageQueue] = set()
        self._flying: deque[ProducerBatch] = deque()
        self._slices_first = False
        self._atomic_batches: deque[PendingBatch] = deque()
        """Atomic batches without an order; they take turns with everything else."""

        self._atomic_first = False

    @property
    def can_send(self) -> bool:
        """Tell whether a batch may leave now."""
        return (
            bool(
                self._fresh or self._slices or self._ready or self._suspect or self._atomic_batches
            )
            and len(self._flying) < self._batches_max
        )

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing waits and nothing is unanswered."""
        return not (
            self._fresh
            or self._slices
            or self._ordered
            or self._suspect
            or self._atomic_batches
            or self._flying
        )

    @property
    def oldest_batch_ms(self) -> int | None:
        """When the first unanswered batch was written; None if all are answered."""
        return self._flying[0].written_at_ms if self._flying else None

    def add(self, pending: PendingSend) -> None:
        """Let `pending` wait for the next batch."""
        if pending.is_ordered:
            self._add_ordered(pending)
        elif pending.maybe_stored:
            self._suspect.append(pending)
        else:
            self._fresh.append(pending)

    def add_batch(self, atomic: PendingBatch) -> None:
        """Let an atomic batch wait for its turn."""
        if atomic.is_ordered:
            self._add_ordered(atomic)
        else:
            self._atomic_batches.append(atomic)

    def add_slice(self, part: BulkSlice) -> None:
        """Let `part` wait for the next batches."""
        self._slices.append(part)

    def next_batch(self, now_ms: int) -> ProducerBatch | None:
        """Take the next batch, which is unanswered from now on; None when none may leave.

        Messages for which nobody waits any more are dropped.
        """
        if len(self._flying) >= self._batches_max:
            return None
        batch = ProducerBatch(written_at_ms=now_ms, is_retry=True)
        self._take_ordered(batch)
        if batch.atomic is None:
            self._take_singles(batch, self._suspect)
        if not batch.singles:
            self._take_atomic(batch)
        if not batch.singles:
            batch.is_retry = False
            self._take_ordered(batch)
        if batch.atomic is None and not batch.is_retry:
            self._slices_first = not self._slices_first
            if self._slices_first:
                self._take_slices(batch)
                self._take_singles(batch, self._fresh)
            else:
                self._take_singles(batch, self._fresh)
                self._take_slices(batch)
        if not batch.singles and not batch.slices:
            return None
        for pending in batch.singles:
            pending.attempts += 1
        self._flying.append(batch)
        return batch

    def answered(self) -> ProducerBatch | None:
        """Take the oldest unanswered batch, whose reply has come; None when there is none.

        Its ordered queues are held until `release`, so that what failed can be put back first.
        """
        return self._flying.popleft() if self._flying else None

    def unanswer(self, batch: ProducerBatch) -> None:
        """Take back `answered`: what came is no answer."""
        self._flying.appendleft(batch)

    def withdraw(self, batch: ProducerBatch) -> None:
        """Take back `next_batch`: nothing of the newest batch is left to be written."""
        newest = self._flying.pop()
        assert newest is batch, "only the newest can be taken back"
        self.release(batch.ordered_queues)

    def release(self, queues: Iterable[MessageQueue]) -> None:
        """Let ordered `queues` have messages in the next batch again."""
        for queue in queues:
            self._held.discard(queue)
            if self._ordered.get(queue):
                self._ready[queue] = None
            else:
                self._ordered.pop(queue, None)

    def put_back(self, failed: Iterable[PendingSend]) -> None:
        """Let messages that are to be tried again here wait, ahead of all others of their queue.

        Args:
            failed: In the order in which they were sent. The queues of ordered ones are still held.
        """
        for pending in reversed(list(failed)):
            if pending.is_ordered:
                self._ordered.setdefault(pending.queue, deque()).appendleft(pending)
            elif isinstance(pending, PendingBatch):
                self._atomic_batches.appendleft(pending)
            elif pending.maybe_stored:
                self._suspect.appendleft(pending)
            else:
                self._fresh.appendleft(pending)

    def break_off(self) -> list[ProducerBatch]:
        """Take every unanswered batch: the stream broke, and no reply will come.

        Their ordered queues are held until `release`.
        """
        broken = list(self._flying)
        self._flying.clear()
        return broken

    def drain(self) -> list[PendingSend]:
        """Take everything that waits, one by one: nothing can be sent here at present.

        Ordered queues are held until `release`.
        """
        drained = [*self._suspect, *self._fresh, *self._atomic_batches]
        self._suspect.clear()
        self._fresh.clear()
        self._atomic_batches.clear()
        for part in self._slices:
            if part.is_over or part.bulk.is_abandoned:
                self._free(part.bytes_total)
            else:
                drained.extend(part.to_pending())
        self._slices.clear()
        for queue, waiting in self._ordered.items():
            drained.extend(waiting)
            waiting.clear()
            self._held.add(queue)
        self._ready.clear()
        return drained

    def ordered_queues(self) -> list[MessageQueue]:
        """Return every ordered queue that has messages or is held."""
        return list(self._ordered.keys() | self._held)

    def expire(self, now_ms: int) -> tuple[ExpiredSends, int | None]:
        """Find what ran out of time, and when the next does; None when nothing is left.

        What waits is dropped; what is unanswered keeps its place, since its reply may come.
        """
        expired = ExpiredSends()
        self._fresh = self._still_waiting(self._fresh, expired, now_ms)
        self._suspect = self._still_waiting(self._suspect, expired, now_ms)
        self._atomic_batches = self._still_waiting(self._atomic_batches, expired, now_ms)
        for queue in list(self._ordered):
            left = self._still_waiting(self._ordered[queue], expired, now_ms)
            self._ordered[queue] = left
            if not left and queue not in self._held:
                del self._ordered[queue]
                self._ready.pop(queue, None)
        slices: deque[BulkSlice] = deque()
        for part in self._slices:
            if part.deadline_ms > now_ms:
                slices.append(part)
            else:
                expired.unsent_slices.append(part)
                self._free(part.bytes_total)
        self._slices = slices
        for batch in self._flying:
            for pending in batch.singles:
                if pending.deadline_ms <= now_ms and not pending.sink.done():
                    expired.unanswered.append(pending)
            for part in batch.slices:
                if part.deadline_ms <= now_ms and not part.is_over:
                    expired.unanswered_slices.append(part)
        return expired, self._earliest_deadline_ms(now_ms)

    def _earliest_deadline_ms(self, now_ms: int) -> int | None:
        deadlines = [one.deadline_ms for group in self._all_waiting() for one in group] + [
            one.deadline_ms
            for batch in self._flying
            for group in (batch.singles, batch.slices)
            for one in group
            if one.deadline_ms > now_ms
        ]
        return min(deadlines, default=None)

    def _all_waiting(self) -> Iterable[Iterable[PendingSend | BulkSlice]]:
        yield self._fresh
        yield self._suspect
        yield self._slices
        yield self._atomic_batches
        yield from self._ordered.values()

    def _still_waiting(
        self, waiting: deque[PendingT], expired: ExpiredSends, now_ms: int
    ) -> deque[PendingT]:
        left: deque[PendingT] = deque()
        for pending in waiting:
            if pending.deadline_ms > now_ms and not pending.sink.done():
                left.append(pending)
                continue
            self._free(pending.record_bytes)
            if not pending.sink.done():
                expired.unsent.append(pending)
        return left

    def _add_ordered(self, pending: PendingSend) -> None:
        queue = pending.queue
        waiting = self._ordered.get(queue)
        if waiting is None:
            waiting = self._ordered[queue] = deque()
        waiting.append(pending)
        if queue not in self._held:
            self._ready[queue] = None

    def _take_ordered(self, batch: ProducerBatch) -> None:
        """Move messages of ready queues into `batch`, and hold those queues.

        Only suspects go into a retry batch. They are always the first of their queue.
        """
        for queue in list(self._ready):
            waiting = self._ordered[queue]
            taken = len(batch.singles)
            room = True
            while room and waiting and (not batch.is_retry or waiting[0].maybe_stored):
                room = self._take_one(batch, waiting)
            if len(batch.singles) > taken:
                del self._ready[queue]
                self._held.add(queue)
                batch.ordered_queues.add(queue)
            elif not waiting:
                del self._ready[queue]
                del self._ordered[queue]
            if not room:
                return

    def _take_singles(self, batch: ProducerBatch, waiting: deque[PendingSend]) -> None:
        """Move `waiting` into `batch` as far as they fit. `_take_one` again and again, only faster:
        every single message goes this way."""
        singles, total = batch.singles, batch.record_bytes
        while waiting:
            pending = waiting[0]
            if pending.sink.done():
                self._free(waiting.popleft().record_bytes)
                continue
            grown = total + pending.record_bytes
            if grown > self.batch_bytes_max and total:
                break
            total = grown
            singles.append(waiting.popleft())
        batch.record_bytes = total

    def _take_one(self, batch: ProducerBatch, waiting: deque[PendingSend]) -> bool:
        """Move the first of `waiting` into `batch`; tell False when it did not fit."""
        pending = waiting[0]
        if pending.sink.done():
            waiting.popleft()
            self._free(pending.record_bytes)
            return True
        if isinstance(pending, PendingBatch):
            if not batch.singles:
                waiting.popleft()
                self._put_atomic(batch, pending)
            return False
        total = batch.record_bytes + pending.record_bytes
        if total > self.batch_bytes_max and batch.record_bytes:
            return False
        waiting.popleft()
        batch.singles.append(pending)
        batch.record_bytes = total
        return True

    def _take_atomic(self, batch: ProducerBatch) -> None:
        """Put an atomic batch into the empty `batch`, when it is its turn or nothing else waits."""
        batches = self._atomic_batches
        while batches and batches[0].sink.done():
            self._free(batches.popleft().record_bytes)
        if not batches:
            return
        self._atomic_first = not self._atomic_first
        if self._atomic_first or not (self._fresh or self._slices or self._ready):
            batch.is_retry = batches[0].maybe_stored
            self._put_atomic(batch, batches.popleft())

    @staticmethod
    def _put_atomic(batch: ProducerBatch, atomic: PendingBatch) -> None:
        batch.singles.append(atomic)
        batch.atomic = atomic
        batch.record_bytes = atomic.record_bytes

    def _take_slices(self, batch: ProducerBatch) -> None:
        while self._slices:
            part = self._slices.popleft()
            if part.is_over or part.bulk.is_abandoned:
                self._free(part.bytes_total)
                continue
            room = self.batch_bytes_max - batch.record_bytes
            if batch.record_bytes and part.record_bytes[0] > room:
                self._slices.appendleft(part)
                return
            first, rest = part.split(room)
            batch.slices.append(first)
            batch.record_bytes += first.bytes_total
            if rest is not None:
                self._slices.appendleft(rest)
                return


def all_pending(batch: ProducerBatch) -> list[PendingSend]:
    """Return every message of `batch`, one by one, in the order of its records."""
    pending = list(batch.singles)
    for part in batch.slices:
        for one in part.to_pending():
            one.attempts = 1  # slices travel once: what is tried again travels by itself
            pending.append(one)
    return pending
