"""The share of one member. The properties that hold for all are in tests/property."""

from ternmq_consumer.allocation import allocate_averagely
from ternmq_model.queue import MessageQueue

QUEUES = [MessageQueue("t", "a", queue_id) for queue_id in range(5)]


def test_the_first_members_take_the_queues_that_are_left_over() -> None:
    members = ["m1", "m2", "m3"]

    assert allocate_averagely(QUEUES, members, "m1") == QUEUES[0:2]
    assert allocate_averagely(QUEUES, members, "m2") == QUEUES[2:4]
    assert allocate_averagely(QUEUES, members, "m3") == QUEUES[4:5]


def test_more_members_than_queues_leave_some_idle() -> None:
    members = [f"m{number}" for number in range(7)]

    shares = [allocate_averagely(QUEUES, members, member) for member in members]

    assert [len(share) for share in shares] == [1, 1, 1, 1, 1, 0, 0]
