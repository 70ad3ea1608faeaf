from collections.abc import Callable, Collection, Sequence

import numpy as np

from ternmq_broker.pull.long_polling import HeldPull, PullHoldService
from ternmq_model.offsets import QueueOffset
from ternmq_store.dispatch.log_dispatcher import Arrival


class Holds(PullHoldService):
    """A hold service that notes which pulls wake."""

    def __init__(self, end_of: Callable[[str, int], int] = lambda _topic, _queue_id: 0) -> None:
        super().__init__(end_of, short_polling_s=1.0, is_long_polling=True)
        self._woken: list[HeldPull] = []

    def held(
        self, offset: int, queue_id: int = 0, topic: str = "T", tags: Collection[int] | None = None
    ) -> HeldPull:
        """Return a pull that is held now."""
        pull = HeldPull(
            topic, queue_id, QueueOffset(offset), lambda: self._woken.append(pull), tags
        )
        self.hold(pull)
        return pull

    def woken(self) -> Sequence[HeldPull]:
        """Return the pulls that woke since the last call."""
        woken, self._woken = self._woken, []
        return woken

    def woken_by(self, topic: str, queue_id: int, end: int, *tag_codes: int) -> Sequence[HeldPull]:
        """Return the pulls that an arrival wakes."""
        codes = np.array(tag_codes or (0,), dtype=np.int64)
        self.arrived([Arrival(topic, queue_id, QueueOffset(end), codes)])
        return self.woken()


def test_pull_wakes_when_its_message_arrives() -> None:
    holds = Holds()
    pull = holds.held(5)
    assert holds.woken_by("T", 0, 5) == []
    assert holds.woken_by("T", 0, 6) == [pull]
    assert holds.woken_by("T", 0, 7) == []
    assert len(holds) == 0


def test_other_queues_wake_no_pull() -> None:
    holds = Holds()
    holds.held(0)
    assert holds.woken_by("T", 1, 9) == []
    assert holds.woken_by("U", 0, 9) == []
    assert len(holds) == 1


def test_two_equal_pulls_are_held_separately() -> None:
    holds = Holds()
    one, two = holds.held(0), holds.held(0)
    holds.release(one)
    holds.release(one)
    assert holds.woken_by("T", 0, 1) == [two]


def test_deleted_topic_and_closing_broker_wake_all_their_pulls() -> None:
    holds = Holds()
    one, two, other = holds.held(0), holds.held(0, 1), holds.held(0, topic="U")
    holds.wake_topic("T")
    assert holds.woken() == [one, two]
    holds.wake_all()
    assert holds.woken() == [other]
    assert len(holds) == 0


def test_filtering_pull_sleeps_until_a_match() -> None:
    holds = Holds()
    one, two, every = holds.held(5, tags={7}), holds.held(5, tags={-3, 9}), holds.held(5)
    assert holds.woken_by("T", 0, 8, 1, 2, 0) == [every]
    assert holds.woken_by("T", 0, 9, 1, 7) == [one]
    assert holds.woken_by("T", 0, 5, 9) == []
    assert holds.woken_by("T", 0, 9, (1 << 32) - 3) == [two]


def test_sweep_wakes_every_pull_whose_queue_moved() -> None:
    ends = {("T", 0): 6, ("T", 1): 5}
    holds = Holds(lambda topic, queue_id: ends[topic, queue_id])
    one = holds.held(5, tags={7})
    holds.held(5, 1)
    holds.sweep()
    assert holds.woken() == [one]
    assert len(holds) == 1
