"""Which delayed messages of one level are due, whatever happens to the clock. Pure.

A queue keeps of each message when it is due by the wall clock: its store time and the level's
delay. If the clock is set back, that is further ahead than the delay; nobody should wait so long.
From then on the monotonic clock decides: who was in the queue at some moment is due a delay later.

RocketMQ delivers such messages at once, so those that come after the clock was set back are not
delayed at all.

Source: RocketMQ `ScheduleMessageService.correctDeliverTimestamp`.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from ternmq_model.delay import level_delay_ms
from ternmq_model.record_heads import Ints

_MARKS_PER_DELAY: Final = 64
_MARK_MS_MIN: Final = 100


@dataclass(slots=True)
class Mark:
    """How far the queue reached at some moment."""

    end: int
    at_ms: int
    begun_at_ms: int
    """When the mark was made; until it is old enough, later moments replace it."""


class LevelWait:
    """What one level has to wait for. Owned by `DelayService`.

    Args:
        level: From 1 to 18.
    """

    def __init__(self, level: int) -> None:
        self._delay_ms = level_delay_ms(level)
        self._mark_ms = max(self._delay_ms // _MARKS_PER_DELAY, _MARK_MS_MIN)
        self._marks: deque[Mark] = deque()
        self._ripe_end = 0

    def count_due(self, offset: int, dues_ms: Ints, *, now_ms: int, monotonic_ms: int) -> int:
        """Return how many messages, from the first on, are due: none behind one that is not.

        Args:
            offset: The first message.
            dues_ms: When each is due, as the queue says.
            now_ms: Wall clock.
            monotonic_ms: Monotonic clock.
        """
        while self._marks and self._marks[0].at_ms + self._delay_ms <= monotonic_ms:
            self._ripe_end = max(self._ripe_end, self._marks.popleft().end)
        waits = dues_ms > now_ms
        if self._ripe_end > offset:
            waits[: self._ripe_end - offset] = False
        return int(waits.argmax()) if waits.any() else len(dues_ms)

    def note(self, end: int, due_ms: int, *, now_ms: int, monotonic_ms: int) -> None:
        """Take note of how far the queue reaches, if its clock does not agree with the wall's.

        Args:
            end: Behind the last message.
            due_ms: When one before it is due, as the queue says.
            now_ms: Wall clock.
            monotonic_ms: Monotonic clock.
        """
        if due_ms <= now_ms + self._delay_ms or end <= self._ripe_end:
            return
        last = self._marks[-1] if self._marks else None
        if last is not None and end <= last.end:
            return
        if last is not None and monotonic_ms - last.begun_at_ms < self._mark_ms:
            last.end, last.at_ms = end, monotonic_ms
        else:
            self._marks.append(Mark(end, monotonic_ms, monotonic_ms))

    def next_ms(self, due_ms: int, *, now_ms: int, monotonic_ms: int) -> int:
        """Return in how many milliseconds to look again for a message that is not due."""
        ahead_ms = due_ms - now_ms
        if self._marks:
            ahead_ms = min(ahead_ms, self._marks[0].at_ms + self._delay_ms - monotonic_ms)
        return max(ahead_ms, 0)
