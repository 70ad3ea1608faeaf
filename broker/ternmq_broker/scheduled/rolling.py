"""Rolling: timed messages are appended to the log again.

A message is rolled so that old files can be removed, or because the broker's clock has moved: a
message that waits for a length of time becomes due later or earlier by the step of the clock; a
message that waits until a time is due as before. After a step all messages are rolled, in the order
of the queue, so that delivered messages lie before all waiting ones, whichever clock they were due
by.

Source: RocketMQ `TimerMessageStore`, which rolls all that waits for more than two days.
"""

import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ternmq_broker.scheduled.timer_wheel import DueMessages, TimerWheel
from ternmq_broker.storage.internal_append import InternalWriter
from ternmq_broker.storage.internal_record import InternalRecord, internal_record_of, with_source
from ternmq_broker.storage.reader import StoreReader
from ternmq_model.clock import Clock
from ternmq_model.delay import tick_up
from ternmq_model.names import WHEEL_TOPIC
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import (
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DUE_MS,
    TIMER_ENQUEUED_MS,
    TIMER_ROLLS,
    decode_properties,
)
from ternmq_model.record.format import Record, decode_record
from ternmq_store.log.clock_moves import TimerMove

logger = logging.getLogger(__name__)

_BATCH_MESSAGES: Final = 256
_BATCH_BYTES: Final = 1 << 20


class RollResult(NamedTuple):
    """Messages that were appended again."""

    read: int
    """Number of messages that were read, from the first on."""

    messages: int
    end: PhysicalOffset
    """End of the new records in the log; 0 without any."""

    originals: DueMessages | None = None
    """Messages in the order and form before; None for messages of the rescheduler."""


@dataclass(frozen=True, slots=True)
class Roller:
    """Writer that appends waiting timed messages again. Owns nothing."""

    reader: StoreReader
    writer: InternalWriter

    async def roll(self, wheel: TimerWheel, held_end: PhysicalOffset) -> RollResult | None:
        """Append a batch of the waiting messages that lie before `held_end` in the log again.

        Returns:
            None when no such message waits, except those that are due in a moment.

        Raises:
            TernError: The append failed; the messages wait where they were.
        """
        border = first_behind(self.reader, held_end) if held_end else 0
        due = wheel.take_before(border, _BATCH_MESSAGES) if border else None
        if due is None or not len(due):
            return None
        try:
            done = await self.reappend(due)
        except BaseException:
            _put_back(wheel, due)
            raise
        _put_back(wheel, due.rows(slice(done.read, None)))
        return done._replace(originals=due.rows(slice(done.read)))

    async def reappend(
        self,
        due: DueMessages,
        moved_ms: Callable[[Record, int], int] = lambda _record, due_ms: due_ms,
    ) -> RollResult:
        """Append some of the first messages of `due` to the log again.

        Args:
            due: At least one message.
            moved_ms: Returns the new due time of a message, given its record and old due time.

        Raises:
            TernError: The append failed; some messages may be stored.
        """
        records = await read_many(self.reader, due.offsets.tolist())
        good = [
            rolled(record, moved_ms(record, due_ms))
            for record, due_ms in zip(records, due.due_ms.tolist(), strict=False)
            if record is not None
        ]
        end = PhysicalOffset(0)
        if good:
            end = (await self.writer.put(good, timeout_s=math.inf)).end
        if len(good) < len(records):
            logger.error("timed messages damaged or gone count=%d", len(records) - len(good))
        return RollResult(len(records), len(good), end)


class Rescheduler:
    """Rescheduler of waiting messages after steps of the clock.

    Owned by `TimedMessages`, which delivers no message meanwhile.

    Args:
        roller: Appends messages to the log again.
        clock: Clock of the broker.
    """

    def __init__(self, roller: Roller, clock: Clock) -> None:
        self._roller = roller
        self._clock = clock
        self._moves: deque[TimerMove] = deque()
        self._waits: DueMessages | None = None
        """Messages that wait since before the first move, by queue offset."""

    def note(self, move: TimerMove) -> None:
        """Record a step of the clock."""
        self._moves.append(move)

    @property
    def waiting(self) -> int:
        """Number of messages that are being rescheduled, outside the wheel."""
        return 0 if self._waits is None else len(self._waits)

    @property
    def first_offset(self) -> int | None:
        """Lowest queue offset of the messages that are being rescheduled; None without any."""
        return int(self._waits.offsets[0]) if self._waits is not None and len(self._waits) else None

    @property
    def end(self) -> QueueOffset | None:
        """End of the messages to reschedule in the queue; None without a step of the clock."""
        return self._moves[0].end if self._moves else None

    @property
    def is_moving(self) -> bool:
        """True while messages are being rescheduled."""
        return self._waits is not None

    def begin(self, waits: DueMessages) -> None:
        """Begin with the first step of the clock.

        Args:
            waits: All messages that waited at that step, by queue offset.
        """
        self._waits = waits

    async def step(self) -> RollResult:
        """Reschedule a batch of messages.

        Raises:
            TernError: The append failed; the batch is tried again.
        """
        assert self._waits is not None, "begun"
        batch = self._waits.rows(slice(_BATCH_MESSAGES))
        done = RollResult(0, 0, PhysicalOffset(0))
        if len(batch):
            done = await self._roller.reappend(batch, self._moved_ms)
            self._waits = self._waits.rows(slice(done.read, None))
        if not len(self._waits):
            self._waits = None
            by_ms = self._moves.popleft().by_ms
            logger.info("timed messages follow the clock by_ms=%s", by_ms)
        return done

    def _moved_ms(self, record: Record, due_ms: int) -> int:
        """Return the due time of a message after all moves."""
        known = [move.by_ms for move in self._moves if move.by_ms is not None]
        if len(known) < len(self._moves):
            then_ms = self._clock.wall_ms() - sum(known)  # as if the clock had not moved since
            due_ms = moved_due_ms(record, due_ms, None, now_ms=then_ms)
        return moved_due_ms(record, due_ms, sum(known))


def moved_due_ms(record: Record, due_ms: int, by_ms: int | None, *, now_ms: int = 0) -> int:
    """Return the due time of a message after a step of the clock. Pure.

    Args:
        record: Record of the waiting message.
        due_ms: Due time before the step.
        by_ms: Step of the clock; see `TimerMove`.
        now_ms: Wall clock after a step of unknown size, for which `by_ms` is None.
    """
    properties = decode_properties(record.properties)
    if TIMER_DELAY_SEC not in properties and TIMER_DELAY_MS not in properties:
        return due_ms
    if by_ms is not None:
        return tick_up(due_ms + by_ms)
    return min(due_ms, tick_up(now_ms + due_ms - record.header.stored_at_ms))


def rolled(record: Record, due_ms: int) -> InternalRecord:
    """Return the new record of a timed message that is due at `due_ms`."""
    waiting = internal_record_of(record)
    times = waiting.properties.get(TIMER_ROLLS, "0")
    count = int(times) + 1 if times.isascii() and times.isdigit() else 1
    properties = {**waiting.properties, TIMER_DUE_MS: str(due_ms), TIMER_ROLLS: str(count)}
    properties.pop(TIMER_ENQUEUED_MS, None)
    return with_source(replace(waiting, properties=properties), record)


def _put_back(wheel: TimerWheel, due: DueMessages) -> None:
    order = due.offsets.argsort()
    wheel.add(due.offsets[order], (due.due_ms + due.cancels)[order])


def first_behind(reader: StoreReader, end: PhysicalOffset) -> int:
    """Return the first message of the wheel timer's queue at or behind `end` in the log."""
    low, high = reader.store.queue_range(WHEEL_TOPIC, 0)
    while low < high:
        middle = QueueOffset((low + high) // 2)
        at = reader.store.searches.place_of(WHEEL_TOPIC, 0, middle)
        if at is not None and at >= end:
            high = middle
        else:
            low = QueueOffset(middle + 1)
    return low


async def read_many(reader: StoreReader, offsets: Sequence[int]) -> list[Record | None]:
    """Return the records of the first of some messages; None for a missing or damaged one.

    Raises:
        RefusedError: The disk cannot be read.
    """
    plan = reader.store.searches.records_at(WHEEL_TOPIC, 0, offsets, bytes_max=_BATCH_BYTES)
    await reader.run(plan.run)
    reader.store.searches.records_done(plan)
    return [None if data is None else decode_record(data) for data in plan.records]
