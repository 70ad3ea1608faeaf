"""Natural batching: messages sent while earlier batches travel form the next one. Pure.

A `BrokerLink` does the I/O and reports its outcome.

* A batch leaves as soon as a message waits and fewer than the allowed number of batches are
  unanswered. There is no linger: a single message leaves at once.
* Messages of an ordered queue are in at most one unanswered batch. Otherwise they would change
  places when the first of two batches is refused and the second is stored.
* Messages that may have been stored already go in batches of their own, marked as retries.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ternmq_model.queue import MessageQueue
from ternmq_producer.batch.pending_send import (
    ROW_BYTES,
    ROW_DEADLINE,
    ROW_SINK,
    ROW_TOPIC,
    Pending,
    PendingBatch,
    PendingSend,
    SendRow,
)
from ternmq_producer.batch.result_sinks import SinkList

MANY: Final = 24
"""Number of messages from which columns are faster than one message after the other."""


@dataclass(slots=True)
class ProducerBatch:
    """Messages that travel together. The order of their records is: singles, then parts."""

    singles: list[PendingSend] = field(default_factory=list[PendingSend])
    parts: list[PendingBatch] = field(default_factory=list[PendingBatch])
    """Messages that were sent one by one, as columns; parts of `send_many` calls; or one atomic
    batch, which travels alone."""

    ordered_queues: set[MessageQueue] = field(default_factory=set[MessageQueue])
    is_retry: bool = False
    record_bytes: int = 0
    """Bytes that the messages have reserved in the buffer."""

    written_at_ms: int = 0
    """Time of the write, monotonic."""

    written_at_s: float = 0.0
    """Time of the write for metrics, by their clock; 0 without metrics."""

    def __len__(self) -> int:
        return len(self.singles) + sum(map(len, self.parts))

    @property
    def is_atomic(self) -> bool:
        """True for an atomic batch."""
        return bool(self.parts) and self.parts[0].is_atomic

    def put(self, pending: Pending) -> None:
        """Append `pending`."""
        if isinstance(pending, PendingSend):
            self.singles.append(pending)
        else:
            self.parts.append(pending)
        self.record_bytes += pending.record_bytes

    def one_by_one(self) -> Sequence[Pending]:
        """Return the units that are answered or retried by themselves, in record order."""
        return self.parts if self.is_atomic else self.as_singles()

    def separate(self) -> None:
        """Move messages that were sent one by one out of columns, without a change of their order.

        Such columns are the first parts.
        """
        while self.parts and isinstance(self.parts[0].sink, SinkList):
            self.singles += self.parts.pop(0).singles()

    def as_singles(self) -> list[PendingSend]:
        """Return every message of a batch that is not atomic, in record order."""
        return [*self.singles, *(one for part in self.parts for one in part.singles())]


@dataclass(slots=True)
class ExpiredSends:
    """Messages past their deadline; a broker may have stored the unanswered ones."""

    unsent: list[Pending] = field(default_factory=list[Pending])
    unanswered: list[Pending] = field(default_factory=list[Pending])


class Batcher:
    """Messages of one link, from their arrival to their answer. Pure: no I/O, no clock.

    Args:
        batch_bytes_max: Limit of a batch's records, bytes; a larger message travels alone.
        batches_max: Limit of unanswered batches.
        free: Called with the bytes of messages that were dropped because no caller waits.
    """

    def __init__(
        self, *, batch_bytes_max: int, batches_max: int, free: Callable[[int], None]
    ) -> None:
        self.batch_bytes_max = batch_bytes_max
        self._batches_max = batches_max
        self._free = free
        self._rows: deque[SendRow] = deque()
        """New messages without an order."""

        self.add_row = self._rows.append
        """Appends a new message without an order to those that wait. Bound once, for each."""

        self._fresh: deque[PendingSend] = deque()
        """Messages without an order that were not stored, and come before new ones."""

        self._suspect: deque[PendingSend] = deque()
        self._parts: deque[PendingBatch] = deque()
        """Parts of `send_many` calls; they take turns with fresh single messages."""

        self._parts_first = False
        self._atomic: deque[PendingBatch] = deque()
        """Atomic batches without an order; they take turns with everything else."""

        self._atomic_first = False
        self._unordered: tuple[deque[Any], ...] = (
            self._suspect,
            self._fresh,
            self._atomic,
            self._parts,
        )
        self._ordered: dict[MessageQueue, deque[Pending]] = {}
        self._ready: dict[MessageQueue, None] = {}  # a dict keeps their order of arrival
        self._held: set[MessageQueue] = set()
        self._flying: deque[ProducerBatch] = deque()

    @property
    def can_send(self) -> bool:
        """True when a batch may leave now."""
        is_waiting = bool(self._rows or any(self._unordered) or self._ready)
        return is_waiting and len(self._flying) < self._batches_max

    @property
    def is_empty(self) -> bool:
        """True without waiting and unanswered messages."""
        return not (self._rows or any(self._unordered) or self._ordered or self._flying)

    @property
    def oldest_batch_ms(self) -> int | None:
        """Time at which the first unanswered batch was written. None = all are answered."""
        return self._flying[0].written_at_ms if self._flying else None

    def add(self, pending: Pending) -> None:
        """Append `pending` to those that wait for the next batches."""
        if isinstance(pending, PendingSend) and not (pending.is_ordered or pending.maybe_stored):
            self._fresh.append(pending)
        elif pending.is_ordered:
            queue = pending.queue
            waiting = self._ordered.get(queue)
            if waiting is None:
                waiting = self._ordered[queue] = deque()
            waiting.append(pending)
            if queue not in self._held:
                self._ready[queue] = None
        elif isinstance(pending, PendingBatch):
            (self._atomic if pending.is_atomic else self._parts).append(pending)
        else:
            self._suspect.append(pending)

    def next_batch(self, now_ms: int) -> ProducerBatch | None:
        """Return the next batch, which then counts as unanswered; None when none may leave.

        Messages without a waiting caller are dropped.
        """
        if len(self._flying) >= self._batches_max:
            return None
        if self._ready or self._suspect or self._atomic or self._parts:
            batch = self._mixed_batch(now_ms)
        else:
            batch = ProducerBatch(written_at_ms=now_ms)
            self._take_singles(batch, self._fresh)
            self._take_rows(batch)
        if not batch.record_bytes:
            return None
        for pending in batch.singles:
            pending.attempts += 1
        for part in batch.parts:
            part.attempts += 1
        self._flying.append(batch)
        return batch

    def _mixed_batch(self, now_ms: int) -> ProducerBatch:
        """Return a batch of messages of all kinds, perhaps an empty one."""
        batch = ProducerBatch(written_at_ms=now_ms, is_retry=True)
        self._take_ordered(batch)
        if not batch.is_atomic:
            self._take_singles(batch, self._suspect)
        if not batch.record_bytes:
            self._take_atomic(batch)
        if not batch.record_bytes:
            batch.is_retry = False
            self._take_ordered(batch)
        if not batch.is_atomic and not batch.is_retry:
            self._parts_first = not self._parts_first
            if self._parts_first:
                self._take_parts(batch)
                self._take_singles(batch, self._fresh)
                self._take_rows(batch)
            else:
                self._take_singles(batch, self._fresh)
                self._take_rows(batch)
                self._take_parts(batch)
        return batch

    def answered(self) -> ProducerBatch | None:
        """Remove and return the oldest unanswered batch, whose reply has come; None = none.

        Ordered queues of the batch are held until `release`, so that failed messages can be put
        back first.
        """
        return self._flying.popleft() if self._flying else None

    def unanswer(self, batch: ProducerBatch) -> None:
        """Undo `answered` after an impossible reply."""
        self._flying.appendleft(batch)

    def withdraw(self, batch: ProducerBatch) -> None:
        """Undo `next_batch` for the newest batch, which has become empty."""
        newest = self._flying.pop()
        assert newest is batch, "only the newest can be taken back"
        self.release(batch.ordered_queues)

    def release(self, queues: Iterable[MessageQueue]) -> None:
        """Allow messages of ordered `queues` in the next batch again."""
        for queue in queues:
            self._held.discard(queue)
            if self._ordered.get(queue):
                self._ready[queue] = None
            else:
                self._ordered.pop(queue, None)

    def put_back(self, failed: Iterable[Pending]) -> None:
        """Put failed messages ahead of all others of their queue.

        Args:
            failed: Messages in the order of sending. Queues of ordered ones are still held.
        """
        for pending in reversed(list(failed)):
            if pending.is_ordered:
                self._ordered.setdefault(pending.queue, deque()).appendleft(pending)
            elif isinstance(pending, PendingBatch):
                self._atomic.appendleft(pending)
            elif pending.maybe_stored:
                self._suspect.appendleft(pending)
            else:
                self._fresh.appendleft(pending)

    def break_off(self) -> list[ProducerBatch]:
        """Remove and return every unanswered batch of a broken stream.

        Ordered queues of the batches are held until `release`.
        """
        broken = list(self._flying)
        self._flying.clear()
        return broken

    def drain(self) -> list[Pending]:
        """Remove and return every waiting message. Ordered queues are held until `release`."""
        self._separate_rows()
        drained: list[Pending] = [*self._suspect, *self._fresh, *self._atomic]
        for part in self._parts:
            if part.sink.done():
                self._free(part.record_bytes)
            else:
                drained += part.singles()
        for waiting in self._unordered:
            waiting.clear()
        for queue, waiting in self._ordered.items():
            drained += waiting
            waiting.clear()
            self._held.add(queue)
        self._ready.clear()
        return drained

    def ordered_queues(self) -> list[MessageQueue]:
        """Return every ordered queue that has messages or is held."""
        return list(self._ordered.keys() | self._held)

    def expire(self, now_ms: int) -> tuple[ExpiredSends, int | None]:
        """Return the messages past their deadline, and the next deadline; None = there is none.

        Waiting messages are dropped; unanswered ones stay, since their reply may come.
        """
        expired = ExpiredSends()
        deadlines_ms = [row[ROW_DEADLINE] for row in self._rows]
        if any(deadline_ms <= now_ms for deadline_ms in deadlines_ms):
            self._separate_rows()
            deadlines_ms = []
        for waiting in self._unordered:
            self._drop_expired(waiting, expired, now_ms)
        for queue, waiting in list(self._ordered.items()):
            self._drop_expired(waiting, expired, now_ms)
            if not waiting and queue not in self._held:
                del self._ordered[queue]
                self._ready.pop(queue, None)
        left: list[Pending] = []
        for group in (*self._unordered, *self._ordered.values()):
            left += group
        for batch in self._flying:
            written: list[Pending] = [*batch.singles]
            for part in batch.parts:
                is_due = part.deadlines_ms is not None and part.deadline_ms <= now_ms
                written += part.singles() if is_due else [part]
            for pending in written:
                if pending.deadline_ms > now_ms:
                    left.append(pending)
                elif not pending.sink.done():
                    expired.unanswered.append(pending)
        deadlines_ms += [pending.deadline_ms for pending in left]
        return expired, min(deadlines_ms, default=None)

    def _drop_expired(self, waiting: deque[Any], expired: ExpiredSends, now_ms: int) -> None:
        for _ in range(len(waiting)):
            pending: Pending = waiting.popleft()
            if pending.sink.done():
                self._free(pending.record_bytes)
            elif pending.deadline_ms > now_ms:
                waiting.append(pending)
            else:
                self._free(pending.record_bytes)
                expired.unsent.append(pending)

    def _take_ordered(self, batch: ProducerBatch) -> None:
        """Move messages of ready queues into `batch`, and hold those queues.

        Only suspects go into a retry batch. They are always the first of their queue.
        """
        for queue in list(self._ready):
            waiting = self._ordered[queue]
            taken_bytes = batch.record_bytes
            is_fit = True
            while is_fit and waiting and (not batch.is_retry or waiting[0].maybe_stored):
                is_part = isinstance(waiting[0], PendingBatch)
                is_fit = self._take_one(batch, waiting)
                if is_part:  # a single message behind it would stand before it in the batch
                    break
            if batch.record_bytes > taken_bytes:
                del self._ready[queue]
                self._held.add(queue)
                batch.ordered_queues.add(queue)
            elif not waiting:
                del self._ready[queue]
                del self._ordered[queue]
            if not is_fit:
                return

    def _take_singles(self, batch: ProducerBatch, waiting: deque[PendingSend]) -> None:
        """Move fitting sends of `waiting` into `batch`: `_take_one` in one fast loop."""
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

    def _take_rows(self, batch: ProducerBatch) -> None:
        """Move fitting new messages into `batch`: many of a topic as columns, before its parts."""
        rows, taken, total = self._rows, list[SendRow](), batch.record_bytes
        while rows:
            row = rows[0]
            if row[ROW_SINK].done():
                self._free(rows.popleft()[ROW_BYTES])
                continue
            grown = total + row[ROW_BYTES]
            if grown > self.batch_bytes_max and total:
                break
            total = grown
            taken.append(rows.popleft())
        batch.record_bytes = total
        columns: list[PendingBatch] = []
        for group in _by_topic(taken):
            if len(group) < MANY:
                batch.singles += [PendingSend(*row) for row in group]
            else:
                columns.append(PendingBatch.of_rows(group))
        batch.parts[:0] = columns

    def _separate_rows(self) -> None:
        """Make a `PendingSend` of each new message."""
        self._fresh.extend(PendingSend(*row) for row in self._rows)
        self._rows.clear()

    def _take_one(self, batch: ProducerBatch, waiting: deque[Pending]) -> bool:
        """Move the first of `waiting` into `batch`; return whether another one may follow."""
        pending = waiting[0]
        if pending.sink.done():
            waiting.popleft()
            self._free(pending.record_bytes)
            return True
        if isinstance(pending, PendingBatch) and not pending.is_atomic:
            return self._take_part(batch, waiting, pending)
        is_alone = isinstance(pending, PendingBatch)
        grown = batch.record_bytes + pending.record_bytes
        if batch.record_bytes and (is_alone or grown > self.batch_bytes_max):
            return False
        batch.put(waiting.popleft())
        return not is_alone

    def _take_atomic(self, batch: ProducerBatch) -> None:
        """Put an atomic batch into the empty `batch`, in its turn or when nothing else waits."""
        batches = self._atomic
        while batches and batches[0].sink.done():
            self._free(batches.popleft().record_bytes)
        if not batches:
            return
        self._atomic_first = not self._atomic_first
        if self._atomic_first or not (self._rows or self._fresh or self._parts or self._ready):
            batch.is_retry = batches[0].maybe_stored
            batch.put(batches.popleft())

    def _take_parts(self, batch: ProducerBatch) -> None:
        while self._parts:
            part = self._parts[0]
            if part.sink.done():
                self._free(self._parts.popleft().record_bytes)
            elif not self._take_part(batch, self._parts, part):
                return

    def _take_part(self, batch: ProducerBatch, waiting: deque[Any], part: PendingBatch) -> bool:
        """Move as much of `part`, the first of `waiting`, as fits; return whether all of it did."""
        free_bytes = self.batch_bytes_max - batch.record_bytes
        if batch.record_bytes and part.sizes[0] > free_bytes:
            return False
        waiting.popleft()
        first, rest = part.split(free_bytes)
        batch.put(first)
        if rest is not None:
            waiting.appendleft(rest)
        return rest is None


def _by_topic(rows: list[SendRow]) -> Iterable[list[SendRow]]:
    """Return the messages of each topic."""
    topics = [row[ROW_TOPIC] for row in rows]
    if not rows or topics.count(topics[0]) == len(rows):
        return [rows] if rows else []
    groups: dict[bytes, list[SendRow]] = {topic: [] for topic in topics}
    for row in rows:
        groups[row[ROW_TOPIC]].append(row)
    return groups.values()
