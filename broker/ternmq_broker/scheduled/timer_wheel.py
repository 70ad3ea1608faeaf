"""The wheel of waiting timed messages, by due time, and due codes of their queue. Pure.

A bucket holds the messages that are due within 64 ticks, 6.4 s: one number of 8 bytes for each,
with the tick within the bucket, a bit for cancelling messages, and the offset in the wheel timer's
queue.

    0 | tick 6 | 0 = cancels, 1 = does not 1 | queue offset 56

A bucket is sorted when it is due, so that cancelling messages come first within their tick.

Source: RocketMQ `TimerWheel`, which is a file with a slot for each second.
"""

import heapq
from array import array
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_broker.state.timer_checkpoint import TimerCheckpoint
from ternmq_model.arrays import Ints
from ternmq_model.delay import EARLIEST_CODE, TICK_MS, wheel_code
from ternmq_model.properties import (
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_DUE_MS,
    decode_properties,
)
from ternmq_model.record.format import Record

_TICK_BITS: Final = 6
_TICKS: Final = 1 << _TICK_BITS
_BUCKET_MS: Final = TICK_MS << _TICK_BITS
_OFFSET_BITS: Final = 56
_KIND_BIT: Final = 1 << _OFFSET_BITS
_TICK_SHIFT: Final = _OFFSET_BITS + 1
_OFFSET_MASK: Final = _KIND_BIT - 1

_GONE_CODE: Final = 0
_LATEST_CODE: Final = 1 << 57
_NONE: Final[Ints] = np.zeros(0, dtype=np.int64)

NEVER_MS: Final = 1 << 62


class DueMessages(NamedTuple):
    """Due messages: columns of one length, in the order of delivery."""

    offsets: Ints
    due_ms: Ints
    cancels: Ints
    """1 for a message that cancels another, else 0."""

    def __len__(self) -> int:
        return len(self.offsets)

    @classmethod
    def joined(cls, parts: Sequence["DueMessages"]) -> "DueMessages":
        """Return the messages of all parts, in their order."""
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    def rows(self, chosen: slice | Ints | NDArray[np.bool_]) -> "DueMessages":
        """Return the messages in the chosen rows."""
        return DueMessages(*(column[chosen] for column in self))


class TimerWheel:
    """Wheel of the waiting messages. Owned by `TimedMessages`."""

    def __init__(self) -> None:
        self._buckets: dict[int, array[int]] = {}
        """Buckets by number; in each, messages are in the order of their offsets."""
        self._order: list[int] = []
        """Heap of the buckets' numbers."""
        self._open = -1
        """Number of the due bucket; messages of that or an earlier bucket are added to `_late`."""
        self._sorted = _NONE
        self._position = 0
        self._late: list[tuple[int, int]] = []
        """Heap of (tick, key)."""
        self._count = 0

    def __len__(self) -> int:
        """Return the number of waiting messages."""
        return self._count

    def add(self, offsets: Ints, codes: Ints) -> None:
        """Add messages.

        Args:
            offsets: Offsets in the wheel timer's queue, ascending.
            codes: Due codes; see `wheel_code`.
        """
        if not len(offsets):
            return
        self._count += len(offsets)
        ticks = codes // TICK_MS
        keys = (
            ((ticks & (_TICKS - 1)) << _TICK_SHIFT)
            | np.where(codes % TICK_MS == 1, 0, _KIND_BIT)
            | offsets
        )
        numbers = ticks >> _TICK_BITS
        order = np.argsort(numbers, kind="stable")
        numbers, keys = numbers[order], keys[order]
        cuts = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
        begins = [0, *cuts.tolist()]
        for begin, end in zip(begins, [*begins[1:], len(numbers)], strict=True):
            self._add_to(int(numbers[begin]), keys[begin:end])

    def _add_to(self, number: int, keys: Ints) -> None:
        if number <= self._open:
            base = number << _TICK_BITS
            for key in keys.tolist():
                heapq.heappush(self._late, (base + (key >> _TICK_SHIFT), key))
            return
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = array("q")
            heapq.heappush(self._order, number)
        is_later = not bucket or bucket[-1] & _OFFSET_MASK < int(keys[0]) & _OFFSET_MASK
        bucket.frombytes(keys.tobytes())
        if not is_later:
            bucket[:] = array("q", sorted(bucket, key=_OFFSET_MASK.__and__))

    def take(self, now_ms: int, count_max: int) -> DueMessages:
        """Remove and return the earliest due messages, at most `count_max`.

        Messages that were added after their tick are first.
        """
        now_tick = now_ms // TICK_MS
        keys: list[int] = []
        ticks: list[int] = []
        while self._late and self._late[0][0] <= now_tick and len(keys) < count_max:
            tick, key = heapq.heappop(self._late)
            ticks.append(tick)
            keys.append(key)
        found = [_due(np.array(keys, dtype=np.int64), np.array(ticks, dtype=np.int64))]
        free = count_max - len(keys)
        while free:
            part = self._take_sorted(now_tick, free)
            if part is not None:
                found.append(part)
                free -= len(part)
            elif not self._open_next(now_tick):
                break
        done = found[0] if len(found) == 1 else DueMessages.joined(found)
        self._count -= len(done)
        return done

    def _take_sorted(self, now_tick: int, count_max: int) -> DueMessages | None:
        """Return due messages of the open bucket, None without any."""
        base = self._open << _TICK_BITS
        keys = self._sorted[self._position : self._position + count_max]
        if now_tick - base < _TICKS - 1:
            limit = max(now_tick - base + 1, 0) << _TICK_SHIFT
            keys = keys[: int(np.searchsorted(keys, limit))]
        if not len(keys):
            return None
        self._position += len(keys)
        if self._position == len(self._sorted):
            self._sorted, self._position = _NONE, 0
        return _of_bucket(self._open, keys)

    def _open_next(self, now_tick: int) -> bool:
        """Open the next bucket if it is due and the open one is empty."""
        if self._position < len(self._sorted) or not self._order:
            return False
        if self._order[0] << _TICK_BITS > now_tick:
            return False
        self._open = heapq.heappop(self._order)
        bucket = self._buckets.pop(self._open)
        self._sorted = np.sort(np.frombuffer(bucket, dtype=np.int64))
        self._position = 0
        return True

    @property
    def first_ms(self) -> int:
        """Due time of the first message, or the start of its bucket."""
        first = NEVER_MS
        if self._late:
            first = self._late[0][0] * TICK_MS
        if self._position < len(self._sorted):
            tick = (self._open << _TICK_BITS) + (int(self._sorted[self._position]) >> _TICK_SHIFT)
            return min(first, tick * TICK_MS)
        return min(first, self._order[0] * _BUCKET_MS) if self._order else first

    def first_offset(self) -> int | None:
        """Return the lowest queue offset of the waiting messages; None without any.

        The search reads every bucket: some milliseconds when there are many.
        """
        return min(self._lowest(), default=None)

    def _lowest(self) -> Iterator[int]:
        for bucket in self._buckets.values():
            yield bucket[0] & _OFFSET_MASK
        for _, key in self._late:
            yield key & _OFFSET_MASK
        if self._position < len(self._sorted):
            yield int((self._sorted[self._position :] & _OFFSET_MASK).min())

    def waiting(self) -> DueMessages:
        """Return all waiting messages, in no order."""
        late = np.array(self._late, dtype=np.int64).reshape(-1, 2)
        keys = np.frombuffer(b"".join(self._buckets.values()), dtype=np.int64)
        numbers = np.array([*self._buckets], dtype=np.int64)
        counts = np.fromiter(map(len, self._buckets.values()), dtype=np.int64)
        bases = np.repeat(numbers << _TICK_BITS, counts)
        found = (
            _due(late[:, 1], late[:, 0]),
            _of_bucket(self._open, self._sorted[self._position :]),
            _due(keys, bases + (keys >> _TICK_SHIFT)),
        )
        return DueMessages.joined(found)

    def due_counts(self, now_ms: int, within_ms: Sequence[int]) -> list[int]:
        """Return how many messages are due within each time from now on.

        A message that was added after its bucket was opened counts as due. The search reads the
        number of every bucket: some milliseconds when there are many.

        Args:
            now_ms: Wall clock.
            within_ms: Times, not negative.
        """
        numbers = np.fromiter(self._buckets, dtype=np.int64, count=len(self._buckets))
        counts = np.fromiter(map(len, self._buckets.values()), dtype=np.int64)
        opened = self._sorted[self._position :]
        found: list[int] = []
        for each_ms in within_ms:
            tick = (now_ms + each_ms) // TICK_MS
            number, limit = tick >> _TICK_BITS, ((tick & (_TICKS - 1)) + 1) << _TICK_SHIFT
            count = len(self._late) + int(counts[numbers < number].sum())
            count += int((np.array(self._buckets.get(number, ()), dtype=np.int64) < limit).sum())
            is_over = self._open < number
            count += len(opened) if is_over else int(np.searchsorted(opened, limit))
            found.append(count)
        return found

    def take_before(self, offset: int, count_max: int) -> DueMessages:
        """Remove and return messages that lie before a queue offset, in no order.

        Messages of the open bucket are left out.
        """
        found = [_due(_NONE, _NONE)]
        free = count_max
        for number in list(self._buckets):
            if free <= 0:
                break
            bucket = self._buckets[number]
            if bucket[0] & _OFFSET_MASK >= offset:
                continue
            keys = np.array(bucket, dtype=np.int64)
            rows = np.flatnonzero((keys & _OFFSET_MASK) < offset)[:free]
            found.append(_of_bucket(number, keys[rows]))
            free -= len(rows)
            remaining = np.delete(keys, rows)
            if len(remaining):
                self._buckets[number] = array("q", remaining.tobytes())
            else:
                del self._buckets[number]
                self._order.remove(number)
        heapq.heapify(self._order)
        done = DueMessages.joined(found)
        self._count -= len(done)
        return done


def _of_bucket(number: int, keys: Ints) -> DueMessages:
    return _due(keys, (number << _TICK_BITS) + (keys >> _TICK_SHIFT))


def _due(keys: Ints, ticks: Ints) -> DueMessages:
    return DueMessages(
        keys & _OFFSET_MASK, ticks * TICK_MS, ((keys & _KIND_BIT) == 0).astype(np.int64)
    )


def is_time(codes: Ints) -> NDArray[np.bool_]:
    """Return which codes of a queue are due codes; the others are tag codes."""
    found: NDArray[np.bool_] = (codes >= EARLIEST_CODE) & (codes < _LATEST_CODE)
    return found


def codes_of_records(records: Sequence[Record | None]) -> Ints:
    """Return the due codes that belong to records.

    A record without a time is due at once; a missing record has a code that never waits.
    """
    return np.array([_code_of(record) for record in records], dtype=np.int64)


def _code_of(record: Record | None) -> int:
    if record is None:
        return _GONE_CODE
    code = wheel_code(decode_properties(record.properties), record.header.stored_at_ms)
    return EARLIEST_CODE if code is None else code


def not_delivered(offsets: Ints, codes: Ints, known: TimerCheckpoint) -> NDArray[np.bool_]:
    """Return which messages wait, according to a checkpoint.

    Args:
        offsets: Offsets in the wheel timer's queue.
        codes: Due codes of the messages.
        known: Checkpoint of earlier deliveries.
    """
    is_late = codes // TICK_MS * TICK_MS > known.read_ms
    waits: NDArray[np.bool_] = (codes != _GONE_CODE) & ((offsets >= known.known_end) | is_late)
    return waits


def asked_for_ms(record: Record) -> int:
    """Return the delivery time that a message asks for; its store time without one."""
    properties = decode_properties(record.properties)
    is_after = TIMER_DELAY_SEC in properties or TIMER_DELAY_MS in properties
    text = properties.get(TIMER_DUE_MS if is_after else TIMER_DELIVER_MS, "")
    return int(text) if text.isascii() and text.isdigit() else record.header.stored_at_ms
