"""Which waiting pulls wake when messages arrive. Pure.

Source: RocketMQ `PullRequestHoldService`, `NotifyMessageArrivingListener`.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from ternmq_model.offsets import QueueOffset


@dataclass(frozen=True, slots=True, eq=False)
class HeldPull:
    """A pull that found nothing."""

    topic: str
    queue_id: int
    next_offset: QueueOffset
    """It waits for a message at this offset or a later one."""

    wake: Callable[[], None]
    """Called by the table's owner when it wakes: the reader looks again."""


class PullHoldTable:
    """Held pulls by queue. Decides who wakes; does not wake. Owned by the broker's loop."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], dict[HeldPull, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def hold(self, pull: HeldPull) -> None:
        """Keep `pull` until it wakes or is released."""
        self._held.setdefault((pull.topic, pull.queue_id), {})[pull] = None

    def release(self, pull: HeldPull) -> None:
        """Forget `pull`: its time is over, or its caller went away. Safe to repeat."""
        key = (pull.topic, pull.queue_id)
        held = self._held.get(key)
        if held is not None:
            held.pop(pull, None)
            if not held:
                del self._held[key]

    def on_arrival(self, topic: str, queue_id: int, max_offset: int) -> list[HeldPull]:
        """Remove and return the pulls of a queue, whose end is now at `max_offset`, that wake."""
        held = self._held.get((topic, queue_id))
        if not held:
            return []
        woken = [pull for pull in held if pull.next_offset < max_offset]
        for pull in woken:
            self.release(pull)
        return woken

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


class TopicReaders:
    """Who is told, at once, that a topic is deleted. Owned by the broker's loop.

    Looking later is not enough: a topic of that name may exist again by then.
    """

    def __init__(self) -> None:
        self._readers: dict[Callable[[str], None], None] = {}

    @contextmanager
    def told(self, reader: Callable[[str], None]) -> Generator[None]:
        """Call `reader` with the name of every topic that is deleted during the block."""
        self._readers[reader] = None
        try:
            yield
        finally:
            del self._readers[reader]

    def deleted(self, topic: str) -> None:
        """Tell all of them."""
        for reader in list(self._readers):
            reader(topic)
