"""Rolling: timed messages are appended to the log again, so that old files can be removed.

Source: RocketMQ `TimerMessageStore`, which does so with all that waits for more than two days.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from ternmq_broker.scheduled.timer_wheel import DueMessages, TimerWheel
from ternmq_broker.storage.internal_append import InternalWriter
from ternmq_broker.storage.internal_record import InternalRecord, internal_record_of, with_source
from ternmq_broker.storage.reader import StoreReader
from ternmq_model.errors import refusal
from ternmq_model.names import WHEEL_TOPIC
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import TIMER_DUE_MS, TIMER_ENQUEUED_MS, TIMER_ROLLS
from ternmq_model.record.format import Record, decode_record
from ternmq_model.response_code import ResponseCode

logger = logging.getLogger(__name__)

_BATCH_MESSAGES: Final = 256
_BATCH_BYTES: Final = 1 << 20


class RollResult(NamedTuple):
    """Messages that were appended again."""

    looked_at: int
    """Number of messages that were read, from the first on."""

    messages: int
    end: PhysicalOffset
    """End of the new records in the log; 0 without any."""

    originals: DueMessages | None = None
    """Messages as they waited before; None for messages of the rescheduler."""


class Roller:
    """Writer that appends waiting timed messages again. Owns nothing.

    Args:
        reader: Reader of the store.
        writer: Writer of internal records.
    """

    def __init__(self, reader: StoreReader, writer: InternalWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def roll(self, wheel: TimerWheel, held_end: PhysicalOffset) -> RollResult | None:
        """Append a batch of the waiting messages that lie before `held_end` in the log again.

        Returns:
            None when no such message waits, except those that are due in a moment.

        Raises:
            TernError: The append failed; the messages wait where they were.
        """
        border = first_behind(self._reader, held_end) if held_end else 0
        due = wheel.take_before(border, _BATCH_MESSAGES) if border else None
        if due is None or not len(due):
            return None
        try:
            done = await self.reappend(due)
        except BaseException:
            _put_back(wheel, due)
            raise
        _put_back(wheel, due.rows(slice(done.looked_at, None)))
        return done._replace(originals=due.rows(slice(done.looked_at)))

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
        records = await read_many(self._reader, due.offsets.tolist())
        good = [
            rolled(record, moved_ms(record, due_ms))
            for record, due_ms in zip(records, due.due_ms.tolist(), strict=False)
            if record is not None
        ]
        end = PhysicalOffset(0)
        if good:
            end = (await self._writer.put(good, timeout_s=math.inf)).end
        if len(good) < len(records):
            logger.error("timed messages damaged or gone count=%d", len(records) - len(good))
        return RollResult(len(records), len(good), end)


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
        place = reader.store.searches.place_of(WHEEL_TOPIC, 0, middle)
        if place is not None and place >= end:
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
    try:
        await reader.blocking.run(plan.run)
    except OSError as error:
        remark = f"the disk cannot be read: {error}"
        raise refusal(ResponseCode.SYSTEM_ERROR, remark) from error
    reader.store.searches.records_done(plan)
    return [None if data is None else decode_record(data) for data in plan.records]
