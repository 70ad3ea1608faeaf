"""The rescheduler of waiting messages when the broker's clock has moved.

A message that was to wait for a length of time is due so much later or earlier; one that was to
wait until a time is due as before. All are laid at the log's end anew, from the first of the queue
on: so what was delivered lies before all that waits, by whichever clock it was due.
"""

import logging
from collections import deque
from typing import Final

from ternmq_broker.scheduled.rolling import Roller, RollResult
from ternmq_broker.scheduled.timer_wheel import DueMessages
from ternmq_model.clock import Clock
from ternmq_model.delay import tick_up
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import TIMER_DELAY_MS, TIMER_DELAY_SEC, decode_properties
from ternmq_model.record.format import Record
from ternmq_store.log.clock_moves import TimerMove

logger = logging.getLogger(__name__)

_BATCH_MESSAGES: Final = 256


def moved_due_ms(record: Record, due_ms: int, by_ms: int | None, *, now_ms: int = 0) -> int:
    """Return when a message is due after the clock has moved. Pure.

    Args:
        record: As it waits.
        due_ms: When it was due before that.
        by_ms: See `TimerMove`.
        now_ms: The clock as it is, if that is None.
    """
    properties = decode_properties(record.properties)
    if TIMER_DELAY_SEC not in properties and TIMER_DELAY_MS not in properties:
        return due_ms
    if by_ms is not None:
        return tick_up(due_ms + by_ms)
    return min(due_ms, tick_up(now_ms + due_ms - record.header.stored_at_ms))


class Rescheduler:
    """Lays waiting messages anew under the times that hold after steps of the clock.

    Owned by `TimedMessages`, which delivers nothing meanwhile.

    Args:
        roller: Lays messages anew.
        clock: The broker's.
    """

    def __init__(self, roller: Roller, clock: Clock) -> None:
        self._roller = roller
        self._clock = clock
        self._moves: deque[TimerMove] = deque()
        self._left: DueMessages | None = None
        """Messages that wait since before the first of the moves, by queue offset."""

    def note(self, move: TimerMove) -> None:
        """Take note of a step of the clock."""
        self._moves.append(move)

    @property
    def waiting(self) -> int:
        """Number of messages that are in no wheel, since they are laid anew."""
        return 0 if self._left is None else len(self._left)

    @property
    def first_offset(self) -> int | None:
        """The lowest queue offset of those; None when there is none."""
        return int(self._left.offsets[0]) if self._left is not None and len(self._left) else None

    @property
    def end(self) -> QueueOffset | None:
        """Behind the last message to be laid anew; None when no step of the clock is left."""
        return self._moves[0].end if self._moves else None

    @property
    def is_moving(self) -> bool:
        """Messages are being laid anew."""
        return self._left is not None

    def begin(self, waits: DueMessages) -> None:
        """Begin with the first of the steps.

        Args:
            waits: All that waited then, by queue offset.
        """
        self._left = waits

    async def step(self) -> RollResult:
        """Lay a batch of messages anew.

        Raises:
            TernError: It failed; the batch is looked at again.
        """
        assert self._left is not None, "begun"
        batch = self._left.rows(slice(_BATCH_MESSAGES))
        done = RollResult(0, 0, PhysicalOffset(0))
        if len(batch):
            done = await self._roller.lay_anew(batch, self._moved_ms)
            self._left = self._left.rows(slice(done.looked_at, None))
        if not len(self._left):
            self._left = None
            by_ms = self._moves.popleft().by_ms
            logger.info("timed messages follow the clock by_ms=%s", by_ms)
        return done

    def _moved_ms(self, record: Record, due_ms: int) -> int:
        """Return when a message is due that lies behind all of the moves once it is laid anew."""
        known = [move.by_ms for move in self._moves if move.by_ms is not None]
        if len(known) < len(self._moves):
            then_ms = self._clock.wall_ms() - sum(known)  # as if the clock had not moved since
            due_ms = moved_due_ms(record, due_ms, None, now_ms=then_ms)
        return moved_due_ms(record, due_ms, sum(known))
