"""The rescheduler of waiting messages when the broker's clock has moved.

A message that waits for a length of time becomes due later or earlier by the step of the clock; a
message that waits until a time is due as before. All are appended to the log again, in the order of
the queue, so that delivered messages lie before all waiting ones, whichever clock they were due by.
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
            self._waits = self._waits.rows(slice(done.looked_at, None))
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
