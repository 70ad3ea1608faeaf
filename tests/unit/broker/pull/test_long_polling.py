from collections.abc import Collection

import numpy as np

from ternmq_broker.pull.long_polling import HeldPull, PullHoldTable
from ternmq_model.arrays import Ints
from ternmq_model.offsets import QueueOffset


def held(
    offset: int, queue_id: int = 0, topic: str = "T", tags: Collection[int] | None = None
) -> HeldPull:
    return HeldPull(topic, queue_id, QueueOffset(offset), lambda: None, tags)


def test_pull_wakes_when_its_message_arrives() -> None:
    table = PullHoldTable()
    pull = held(5)
    table.hold(pull)
    assert table.on_arrival("T", 0, 5) == []
    assert table.on_arrival("T", 0, 6) == [pull]
    assert table.on_arrival("T", 0, 7) == []
    assert len(table) == 0


def test_other_queues_wake_no_pull() -> None:
    table = PullHoldTable()
    table.hold(held(0))
    assert table.on_arrival("T", 1, 9) == []
    assert table.on_arrival("U", 0, 9) == []
    assert len(table) == 1


def test_two_equal_pulls_are_held_separately() -> None:
    table = PullHoldTable()
    one, two = held(0), held(0)
    table.hold(one)
    table.hold(two)
    table.release(one)
    table.release(one)
    assert table.on_arrival("T", 0, 1) == [two]


def test_deleted_topic_and_closing_broker_wake_all_their_pulls() -> None:
    table = PullHoldTable()
    one, two, other = held(0), held(0, 1), held(0, topic="U")
    for pull in (one, two, other):
        table.hold(pull)
    assert table.take_topic("T") == [one, two]
    assert table.take_all() == [other]
    assert len(table) == 0


def codes(*values: int) -> Ints:
    return np.array(values, dtype=np.int64)


def test_filtering_pull_sleeps_until_a_match() -> None:
    table = PullHoldTable()
    one, two, every = held(5, tags={7}), held(5, tags={-3, 9}), held(5)
    for pull in (one, two, every):
        table.hold(pull)
    assert table.on_arrival("T", 0, 8, codes(1, 2, 0)) == [every]
    assert table.on_arrival("T", 0, 9, codes(1, 7)) == [one]
    assert table.on_arrival("T", 0, 5, codes(9)) == []
    assert table.on_arrival("T", 0, 9, codes((1 << 32) - 3)) == [two]


def test_sweep_wakes_every_pull_whose_queue_moved() -> None:
    table = PullHoldTable()
    one, still = held(5, tags={7}), held(5, 1)
    for pull in (one, still):
        table.hold(pull)
    ends = {("T", 0): 6, ("T", 1): 5}
    assert table.on_sweep(lambda topic, queue_id: ends[topic, queue_id]) == [one]
    assert len(table) == 1
