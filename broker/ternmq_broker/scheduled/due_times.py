"""Due times of the messages of one delay level, whatever happens to the clock. Pure.

A queue keeps of each message when it is due: its store time and the level's delay. What the clock
has moved since is added: a delay is a length of time. No message that is found at the broker's
start waits longer than the delay from there, whatever clock stored it.

RocketMQ delivers at once what seems to be due later than that, so what comes after its clock was
set back is not delayed at all.

Source: RocketMQ `ScheduleMessageService.correctDeliverTimestamp`.
"""

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.delay import level_delay_ms


class LevelDueTimes:
    """Due times of one level. Owned by `DelayLevels`.

    Args:
        level: From 1 to 18.
        end: Behind the last message of its queue at the broker's start.
        now_ms: The clock at that time.
    """

    def __init__(self, level: int, end: int, *, now_ms: int) -> None:
        self._delay_ms = level_delay_ms(level)
        self._found_end = end
        self._found_due_ms = now_ms + self._delay_ms

    def stepped(self, by_ms: int) -> None:
        """Take note that the clock has moved by so much: ahead, or back."""
        self._found_due_ms += by_ms

    def dues_ms(self, offset: int, codes: Ints, moved_ms: Ints) -> Ints:
        """Return when messages are due.

        Args:
            offset: The first message; nobody asks for one before it any more.
            codes: What the queue, or the record, says of each.
            moved_ms: How far the clock has moved since each was stored.
        """
        dues = codes + moved_ms
        if self._found_end > offset:
            found = dues[: self._found_end - offset]
            np.minimum(found, self._found_due_ms, out=found)
        return dues

    def count_likely(self, dues_ms: Ints, *, now_ms: int) -> int:
        """Return how many messages, from the first on, may be due; their records decide.

        A damaged unit may say any time. None waits longer than the delay, nor than one behind it.
        """
        rows = np.flatnonzero((dues_ms <= now_ms) | (dues_ms > now_ms + self._delay_ms))
        return int(rows[-1]) + 1 if len(rows) else 0
