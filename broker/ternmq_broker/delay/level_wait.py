"""When the messages of one level are due, whatever happens to the clock. Pure.

A queue keeps of each message when it is due: its store time and the level's delay. What the clock
has moved since is added: a delay is a length of time. Nobody waits longer than the delay from the
broker's start, whatever clock its message was stored by.

RocketMQ delivers at once what seems to be due later than that, so what comes after its clock was
set back is not delayed at all.

Source: RocketMQ `ScheduleMessageService.correctDeliverTimestamp`.
"""

import numpy as np

from ternmq_model.delay import level_delay_ms
from ternmq_model.record_heads import Ints


class LevelWait:
    """What one level has to wait for. Owned by `DelayService`.

    Args:
        level: From 1 to 18.
        end: Behind the last message of its queue at the broker's start.
        now_ms: The clock at that time.
    """

    def __init__(self, level: int, end: int, *, now_ms: int) -> None:
        self._found_end = end
        self._found_due_ms = now_ms + level_delay_ms(level)

    def stepped(self, by_ms: int) -> None:
        """Take note that the clock has moved by so much: ahead, or back."""
        self._found_due_ms += by_ms

    def dues_ms(self, offset: int, codes: Ints, moved_ms: Ints) -> Ints:
        """Return when messages are due.

        Args:
            offset: The first message; nobody asks for one before it any more.
            codes: What the queue says of each.
            moved_ms: How far the clock has moved since each was stored.
        """
        dues = codes + moved_ms
        if self._found_end > offset:
            found = dues[: self._found_end - offset]
            np.minimum(found, self._found_due_ms, out=found)
        return dues


def count_due(dues_ms: Ints, *, now_ms: int) -> int:
    """Return how many messages, from the first on, are due: none behind one that is not."""
    waits = dues_ms > now_ms
    return int(waits.argmax()) if waits.any() else len(dues_ms)
