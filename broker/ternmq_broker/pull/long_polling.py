"""Long polling: held pulls, and the service that holds and wakes them.

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

_SWEEP_PAUSE_S: Final = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class HeldPull:
    """Pull that found no message."""

    topic: str
    queue_id: int
    next_offset: QueueOffset
    """Offset of the message for which the pull waits; a later one counts, too."""

    wake: Callable[[], None]
    """Called when the pull wakes: its reader reads again."""

    tag_codes: Collection[int] | None = None
    """Codes of the tags for which the pull waits; None = all messages."""


class PullHoldService:
    """Held pulls by queue. Owned by the broker's loop.

    A pull wakes at once when a message for it is readable; a sweep every few seconds catches the
    rest. On a slave the messages come from its master.

    Args:
        end_of: Returns the end of a queue.
        short_polling_s: Time between wake-ups with short polling.
        is_long_polling: Arrivals wake pulls at once, and a sweep every 5 s catches the rest.

    Attributes:
        is_long_polling: May be changed.
    """

    def __init__(
        self,
        end_of: Callable[[str, int], int],
        *,
        short_polling_s: float,
        is_long_polling: bool,
    ) -> None:
        self._end_of = end_of
        self._short_polling_s = short_polling_s
        self._held: dict[tuple[str, int], dict[HeldPull, None]] = {}
        self._steps = 0
        self.is_long_polling = is_long_polling

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

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Wake the pulls that wait for one of the new messages."""
        if self.is_long_polling and self._held:
            for arrival in arrivals:
                self._wake(self._ready(*arrival))

    def sweep(self) -> None:
        """Wake every pull whose queue has moved, also those whose filter lets nothing pass.

        Lets a filtering consumer learn, and commit, its position in a queue without matches.

        Source: RocketMQ `PullRequestHoldService.checkHoldRequest`.
        """
        for topic, queue_id in list(self._held):
            self._wake(self._ready(topic, queue_id, self._end_of(topic, queue_id)))

    def wake_topic(self, topic: str) -> None:
        """Wake every pull of `topic`, which was deleted or changed."""
        self._wake(
            [pull for (name, _), held in self._held.items() if name == topic for pull in held]
        )

    def wake_all(self) -> None:
        """Wake every pull: the broker is closing."""
        self._wake([pull for held in self._held.values() for pull in held])

    def job(self) -> Job:
        """Return the job of the sweeps."""
        pause_s = min(self._short_polling_s, _SWEEP_PAUSE_S)
        return Job(name="pull-hold", interval_s=pause_s, step=self.step)

    async def step(self) -> bool:
        """Sweep at the due time: one step of a job."""
        pause_s = _SWEEP_PAUSE_S if self.is_long_polling else self._short_polling_s
        if self._steps % max(1, round(pause_s / min(self._short_polling_s, _SWEEP_PAUSE_S))) == 0:
            self.sweep()
        self._steps += 1
        return False

    def _ready(
        self,
        topic: str,
        queue_id: int,
        max_offset: int,
        tag_codes: Ints | tuple[int] | None = None,
    ) -> list[HeldPull]:
        """Return the pulls of a queue that wake.

        Args:
            topic: Topic of the queue.
            queue_id: Number of the queue.
            max_offset: End of the queue.
            tag_codes: Tag codes of all new messages; None = all match. The lower 32 bits count.
        """
        codes: set[int] | None = None
        ready: list[HeldPull] = []
        for pull in self._held.get((topic, queue_id), ()):
            if pull.next_offset >= max_offset:
                continue
            if tag_codes is not None and pull.tag_codes is not None:
                if codes is None:
                    codes = set(np.asarray(tag_codes).astype(np.int32).tolist())
                if codes.isdisjoint(pull.tag_codes):
                    continue
            ready.append(pull)
        return ready

    def _wake(self, pulls: Sequence[HeldPull]) -> None:
        for pull in pulls:
            self.release(pull)
        for pull in pulls:
            pull.wake()
