"""Waking held pulls: at once when a message for them becomes readable, and every few seconds.

Nothing here asks where messages come from: it is the same on a broker that takes them from a
master.

Source: RocketMQ `PullRequestHoldService`, `NotifyMessageArrivingListener`.
"""

from collections.abc import Callable, Sequence
from typing import Final

from ternmq_broker.pull.long_polling import HeldPull, PullHoldTable
from ternmq_runtime.service import Job
from ternmq_store.dispatch.log_dispatcher import Arrival

PULL_HOLD_JOB: Final = "pull-hold"

_LOOK_PAUSE_S: Final = 5.0


class PullWaker:
    """Wakes the pulls of one table. Owned by the broker's loop.

    Args:
        holds: The held pulls.
        end_of: Tells the end of a queue.
        short_polling_s: With short polling, how often pulls are woken.
        is_long_polling: Arrivals wake pulls at once, and it is looked after them every 5 s.

    Attributes:
        is_long_polling: May be changed.
    """

    def __init__(
        self,
        holds: PullHoldTable,
        end_of: Callable[[str, int], int],
        *,
        short_polling_s: float,
        is_long_polling: bool,
    ) -> None:
        self._holds = holds
        self._end_of = end_of
        self._short_polling_s = short_polling_s
        self._steps = 0
        self.is_long_polling = is_long_polling

    def job(self) -> Job:
        """Return what runs beside the arrivals."""
        pause_s = min(self._short_polling_s, _LOOK_PAUSE_S)
        return Job(name=PULL_HOLD_JOB, interval_s=pause_s, step=self.step)

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Wake who waits for one of the new messages."""
        if self.is_long_polling and len(self._holds):
            for arrival in arrivals:
                _wake(self._holds.on_arrival(*arrival))

    async def step(self) -> bool:
        """Look when it is time to: one step of a job."""
        pause_s = _LOOK_PAUSE_S if self.is_long_polling else self._short_polling_s
        if self._steps % max(1, round(pause_s / min(self._short_polling_s, _LOOK_PAUSE_S))) == 0:
            self.look()
        self._steps += 1
        return False

    def look(self) -> None:
        """Wake everybody whose queue has moved.

        Who filters thereby tells its consumer, and so its consumer the broker, how far it is in a
        queue that has nothing for it.
        """
        _wake(self._holds.on_look(self._end_of))


def _wake(pulls: Sequence[HeldPull]) -> None:
    for pull in pulls:
        pull.wake()
