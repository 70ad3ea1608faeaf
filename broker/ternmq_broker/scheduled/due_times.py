"""Due times of the messages of one delay level, whatever happens to the clock. Pure.

A queue holds the due time of each message: its store time and the level's delay. Steps of the clock
since then are added: a delay is a length of time. No message that was stored before the broker's
start waits longer than the delay from the start on, whichever clock stored it.

RocketMQ delivers a message at once if it seems to be due later than that, so messages after a clock
that was set back are not delayed at all.

Source: RocketMQ `ScheduleMessageService.correctDeliverTimestamp`.
"""

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.delay import level_delay_ms


class LevelDueTimes:
    """Due times of one level. Owned by `DelayLevels`.

    Args:
        level: Delay level, 1 to 18.
        end: End of the level's queue at the broker's start.
        now_ms: Wall clock at the broker's start.
    """

    def __init__(self, level: int, end: int, *, now_ms: int) -> None:
        self._delay_ms = level_delay_ms(level)
        self._found_end = end
        self._found_due_ms = now_ms + self._delay_ms

    def stepped(self, by_ms: int) -> None:
        """Record a step of the clock by `by_ms`: ahead, or back."""
        self._found_due_ms += by_ms

    def dues_ms(self, offset: int, codes: Ints, moved_ms: Ints) -> Ints:
        """Return the due times of messages.

        Args:
            offset: Queue offset of the first message.
            codes: Due codes, from the queue or from the records.
            moved_ms: Steps of the clock since each message was stored.
        """
        dues = codes + moved_ms
        if self._found_end > offset:
            found = dues[: self._found_end - offset]
            np.minimum(found, self._found_due_ms, out=found)
        return dues

    def count_likely(self, dues_ms: Ints, *, now_ms: int) -> int:
        """Return how many messages, from the first on, may be due; their records decide.

        A damaged unit may hold any time. No message waits longer than the delay, nor than one
        behind it.
        """
        rows = np.flatnonzero((dues_ms <= now_ms) | (dues_ms > now_ms + self._delay_ms))
        return int(rows[-1]) + 1 if len(rows) else 0
