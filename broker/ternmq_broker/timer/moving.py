"""What becomes of waiting messages when the broker's clock has moved.

A message that was to wait for a length of time is due so much later or earlier; one that was to
wait until a time is not concerned.
"""

import logging
import math
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ternmq_broker.inner.writer import InnerWriter
from ternmq_broker.reading import StoreReader
from ternmq_broker.timer.rolling import Rolled, read_many, rolled
from ternmq_broker.timer.wheel import NEVER_MS, Due, TimerWheel
from ternmq_model.clock import Clock
from ternmq_model.delay import tick_up
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import TIMER_DELAY_MS, TIMER_DELAY_SEC, decode_properties
from ternmq_model.record import Record
from ternmq_model.record_heads import Ints

if TYPE_CHECKING:
    from ternmq_broker.inner.inner_record import InnerRecord

logger = logging.getLogger(__name__)

_AHEAD_MS: Final = 60_000
"""Who was stored by so much in the future was stored by another clock."""

_BATCH_MESSAGES: Final = 256


class Move(NamedTuple):
    """A step of the clock."""

    end: QueueOffset
    """Behind the last message that was there."""

    by_ms: int | None
    """None = unknown: the clock was set back before the start."""


def moved_due_ms(record: Record, due_ms: int, by_ms: int | None, *, now_ms: int) -> int:
    """Return when a message is due after the clock has moved. Pure.

    Args:
        record: As it waits.
        due_ms: When it was due before that.
        by_ms: See `Move`.
        now_ms: The clock as it is.
    """
    properties = decode_properties(record.properties)
    if TIMER_DELAY_SEC not in properties and TIMER_DELAY_MS not in properties:
        return due_ms
    if by_ms is not None:
        return tick_up(due_ms + by_ms)
    stored_at_ms = record.header.stored_at_ms
    is_ahead = stored_at_ms > now_ms + _AHEAD_MS
    return tick_up(now_ms + due_ms - stored_at_ms) if is_ahead else due_ms


class Mover:
    """Files waiting messages under the times that hold after steps of the clock.

    Owned by `TimerService`, which delivers nothing meanwhile.

    Args:
        reader: Of the store.
        writer: Lays messages anew.
        clock: The broker's.
    """

    def __init__(self, reader: StoreReader, writer: InnerWriter, clock: Clock) -> None:
        self._reader = reader
        self._writer = writer
        self._clock = clock
        self._moves: deque[Move] = deque()
        self._left: Due | None = None
        """What the first of the moves has still to look at, by queue offset."""

    def note(self, move: Move) -> None:
        """Take note of a step of the clock."""
        self._moves.append(move)

    @property
    def waiting(self) -> int:
        """How many messages are in no wheel, since they are looked at."""
        return 0 if self._left is None else len(self._left)

    @property
    def first_offset(self) -> int | None:
        """The lowest queue offset of those; None when there is none."""
        return int(self._left.offsets[0]) if self._left is not None and len(self._left) else None

    def begins(self, wheel: TimerWheel, taken_to: int) -> bool:
        """Tell whether messages are to be looked at; all that `wheel` has are taken out of it then.

        Args:
            wheel: What waits. Empty, and to be replaced by a new one, if the answer is yes.
            taken_to: Up to where the queue was taken into it.
        """
        if self._left is not None or not self._moves or taken_to < self._moves[0].end:
            return False
        found = wheel.take(NEVER_MS, len(wheel))
        order = found.offsets.argsort()
        self._left = Due(*(column[order] for column in found))
        return True

    async def step(self, wheel: TimerWheel) -> Rolled | None:
        """Look at a batch: what is due as before goes back into `wheel`, the rest is laid anew.

        Returns:
            None when there is nothing to look at.

        Raises:
            TernError: It failed; the batch is looked at again.
        """
        left = self._left
        if left is None:
            return None
        move, batch = self._moves[0], Due(*(column[:_BATCH_MESSAGES] for column in left))
        records = await read_many(self._reader, batch.offsets.tolist())
        batch = Due(*(column[: len(records)] for column in batch))
        dues_ms = self._dues_ms(batch, records, move)
        stays = dues_ms == batch.due_ms
        anew: list[InnerRecord] = [
            rolled(record, due_ms)
            for record, due_ms, is_as_before in zip(records, dues_ms.tolist(), stays, strict=True)
            if record is not None and not is_as_before
        ]
        end = PhysicalOffset(0)
        if anew:
            end = (await self._writer.put(anew, timeout_s=math.inf)).end
        wheel.add(batch.offsets[stays], (dues_ms + batch.cancels)[stays])
        self._left = Due(*(column[len(records) :] for column in left))
        if not len(self._left):
            self._left = None
            self._moves.popleft()
            logger.info("timed messages follow the clock by_ms=%s", move.by_ms)
        return Rolled(len(anew), end)

    def _dues_ms(self, batch: Due, records: list[Record | None], move: Move) -> Ints:
        now_ms = self._clock.wall_ms()
        rows = zip(records, *(column.tolist() for column in batch[:2]), strict=True)
        return np.array(
            [
                due_ms
                if record is None or offset >= move.end
                else moved_due_ms(record, due_ms, move.by_ms, now_ms=now_ms)
                for record, offset, due_ms in rows
            ],
            dtype=np.int64,
        )
