from ternmq_broker.pull_hold import HeldPull, PullHoldTable
from ternmq_model.offsets import QueueOffset


def held(offset: int, queue_id: int = 0, topic: str = "T") -> HeldPull:
    return HeldPull(topic, queue_id, QueueOffset(offset), lambda: None)


def test_a_pull_wakes_when_its_message_is_there() -> None:
    table = PullHoldTable()
    pull = held(5)
    table.hold(pull)
    assert table.on_arrival("T", 0, 5) == []
    assert table.on_arrival("T", 0, 6) == [pull]
    assert table.on_arrival("T", 0, 7) == []
    assert len(table) == 0


def test_other_queues_wake_nobody() -> None:
    table = PullHoldTable()
    table.hold(held(0))
    assert table.on_arrival("T", 1, 9) == []
    assert table.on_arrival("U", 0, 9) == []
    assert len(table) == 1


def test_two_equal_pulls_are_two() -> None:
    table = PullHoldTable()
    one, two = held(0), held(0)
    table.hold(one)
    table.hold(two)
    table.release(one)
    table.release(one)
    assert table.on_arrival("T", 0, 1) == [two]


def test_a_deleted_topic_and_a_closing_broker_wake_all_of_theirs() -> None:
    table = PullHoldTable()
    one, two, other = held(0), held(0, 1), held(0, topic="U")
    for pull in (one, two, other):
        table.hold(pull)
    assert table.take_topic("T") == [one, two]
    assert table.take_all() == [other]
    assert len(table) == 0
