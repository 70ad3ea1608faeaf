"""Waking held pulls: at once when a message for them becomes readable, and every few seconds.

Nothing here asks where messages come from: it is the same on a broker that takes them from a
master.

Source: RocketMQ `PullRequestHoldService`, `NotifyMessageArrivingListener`.
"""

from collections.abc import Callable, Sequence
from typing import Final

from ternmq_broker.pull_hold import HeldPull, PullHoldTable
from ternmq_runtime.service import Job
from ternmq_store.dispatcher import Arrival

PULL_HOLD_JOB: Final = "pull-hold"

_LOOK_PAUSE_S: Final = 5.0


class PullWaker:
    """Wakes the pulls of one table. Owned by the broker's loop.

    Args:
        holds: The held pulls.
        end_of: Tells the end of a queue.
        short_polling_s: With short polling, how often pulls are woken; None = long polling.
    """

    def __init__(
        self,
        holds: PullHoldTable,
        end_of: Callable[[str, int], int],
        *,
        short_polling_s: float | None,
    ) -> None:
        self._holds = holds
        self._end_of = end_of
        self._short_polling_s = short_polling_s

    def job(self) -> Job:
        """Return what runs beside the arrivals."""
        pause_s = _LOOK_PAUSE_S if self._short_polling_s is None else self._short_polling_s
        return Job(name=PULL_HOLD_JOB, interval_s=pause_s, step=self.look)

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Wake who waits for one of the new messages."""
        if self._short_polling_s is None and len(self._holds):
            for arrival in arrivals:
                _wake(self._holds.on_arrival(*arrival))

    async def look(self) -> bool:
        """Wake everybody whose queue has moved: one step of a job.

        Who filters thereby tells its consumer, and so its consumer the broker, how far it is in a
        queue that has nothing for it.
        """
        _wake(self._holds.on_look(self._end_of))
        return False


def _wake(pulls: Sequence[HeldPull]) -> None:
    for pull in pulls:
        pull.wake()
