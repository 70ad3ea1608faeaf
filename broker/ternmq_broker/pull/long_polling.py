"""Long polling: held pulls, and the service that wakes them.

Source: RocketMQ `PullRequestHoldService`, `NotifyMessageArrivingListener`.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.offsets import QueueOffset
from ternmq_runtime.service import Job
from ternmq_store.dispatch.log_dispatcher import Arrival

PULL_HOLD_JOB: Final = "pull-hold"

_SWEEP_PAUSE_S: Final = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class HeldPull:
    """A pull that found nothing."""

    topic: str
    queue_id: int
    next_offset: QueueOffset
    """Offset of the message for which the pull waits; a later one counts, too."""

    wake: Callable[[], None]
    """Called by the table's owner when the pull wakes: the reader reads again."""

    tag_codes: Collection[int] | None = None
    """Codes of the tags for which the pull waits; None = any message."""


class PullHoldTable:
    """Held pulls by queue. Decides who wakes; does not wake. Owned by the broker's loop."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], dict[HeldPull, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def hold(self, pull: HeldPull) -> None:
        """Hold `pull` until it wakes or is released."""
        self._held.setdefault((pull.topic, pull.queue_id), {})[pull] = None

    def release(self, pull: HeldPull) -> None:
        """Remove `pull`: its time is over, or its caller went away. Safe to repeat."""
        key = (pull.topic, pull.queue_id)
        held = self._held.get(key)
        if held is not None:
            held.pop(pull, None)
            if not held:
                del self._held[key]

    def on_arrival(
        self, topic: str, queue_id: int, max_offset: int, tag_codes: Ints | None = None
    ) -> list[HeldPull]:
        """Remove and return the pulls of a queue that wake.

        A pull that filters by tags sleeps on while none of the new messages is for it.

        Args:
            topic: The queue.
            queue_id: The queue.
            max_offset: Where its end is now.
            tag_codes: Those of all messages that are new; None when nobody looked, as if all
                matched. Their lower 32 bits count, as in a read.
        """
        held = self._held.get((topic, queue_id))
        if not held:
            return []
        codes: set[int] | None = None
        woken: list[HeldPull] = []
        for pull in held:
            if pull.next_offset >= max_offset:
                continue
            if tag_codes is not None and pull.tag_codes is not None:
                if codes is None:
                    codes = set(tag_codes.astype(np.int32).tolist())
                if codes.isdisjoint(pull.tag_codes):
                    continue
            woken.append(pull)
        for pull in woken:
            self.release(pull)
        return woken

    def on_sweep(self, end_of: Callable[[str, int], int]) -> list[HeldPull]:
        """Remove and return every pull whose queue has moved, whatever it waits for.

        Args:
            end_of: Returns the end of a queue.

        Source: RocketMQ `PullRequestHoldService.checkHoldRequest`.
        """
        return [
            pull
            for topic, queue_id in list(self._held)
            for pull in self.on_arrival(topic, queue_id, end_of(topic, queue_id))
        ]

    def take_topic(self, topic: str) -> list[HeldPull]:
        """Remove and return every pull of `topic`: it was deleted or changed."""
        taken = [pull for (name, _), held in self._held.items() if name == topic for pull in held]
        for pull in taken:
            self.release(pull)
        return taken

    def take_all(self) -> list[HeldPull]:
        """Remove and return every pull: the broker is closing."""
        taken = [pull for held in self._held.values() for pull in held]
        self._held.clear()
        return taken


class PullHoldService:
    """Wake-up of held pulls: at once when a message for them is readable, and every few seconds.

    A slave has it, too: its messages come from its master. Owned by the broker's loop.

    Args:
        holds: The held pulls.
        end_of: Returns the end of a queue.
        short_polling_s: With short polling, how often pulls are woken.
        is_long_polling: Arrivals wake pulls at once, and a sweep every 5 s catches the rest.

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
        """Return the job of the sweeps."""
        pause_s = min(self._short_polling_s, _SWEEP_PAUSE_S)
        return Job(name=PULL_HOLD_JOB, interval_s=pause_s, step=self.step)

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Wake the pulls that wait for one of the new messages."""
        if self.is_long_polling and len(self._holds):
            for arrival in arrivals:
                _wake(self._holds.on_arrival(*arrival))

    async def step(self) -> bool:
        """Sweep when it is time to: one step of a job."""
        pause_s = _SWEEP_PAUSE_S if self.is_long_polling else self._short_polling_s
        if self._steps % max(1, round(pause_s / min(self._short_polling_s, _SWEEP_PAUSE_S))) == 0:
            self.sweep()
        self._steps += 1
        return False

    def sweep(self) -> None:
        """Wake all pulls whose queue has moved.

        Lets a filtering consumer learn, and commit, its position in a queue without matches.
        """
        _wake(self._holds.on_sweep(self._end_of))


def _wake(pulls: Sequence[HeldPull]) -> None:
    for pull in pulls:
        pull.wake()
