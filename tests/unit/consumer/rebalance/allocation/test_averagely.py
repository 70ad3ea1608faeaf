"""Equal shares, by RocketMQ's tables. The properties that hold for all are in tests/property."""

import pytest

from ternmq_consumer.rebalance.allocation.averagely import allocate_averagely, allocate_by_circle
from ternmq_model.queue import MessageQueue


def ids(text: str) -> list[list[int]]:
    """Return what a table says: members parted by `|`, queue ids by blanks."""
    return [[int(each) for each in share.split()] for share in text.split("|")]


@pytest.mark.parametrize(
    ("queues", "averagely", "by_circle"),
    [
        (0, "|", "|"),
        (1, "0|", "0|"),
        (4, "0 1|2 3", "0 2|1 3"),
        (5, "0 1 2|3 4", "0 2 4|1 3"),
        (4, "0 1 2 3", "0 1 2 3"),
        (7, "0 1 2|3 4|5 6", "0 3 6|1 4|2 5"),
        (8, "0 1 2|3 4 5|6 7", "0 3 6|1 4 7|2 5"),
        (8, "0 1|2 3|4 5|6 7", "0 4|1 5|2 6|3 7"),
        (3, "0|1|2||", "0|1|2||"),
        (16, "0 1 2 3|4 5 6|7 8 9|10 11 12|13 14 15", "0 5 10 15|1 6 11|2 7 12|3 8 13|4 9 14"),
    ],
)
def test_shares_equal_those_of_the_tables(queues: int, averagely: str, by_circle: str) -> None:
    all_queues = [MessageQueue("t", "a", queue_id) for queue_id in range(queues)]
    members = [f"m{number}" for number in range(averagely.count("|") + 1)]
    for strategy, table in ((allocate_averagely, averagely), (allocate_by_circle, by_circle)):
        shares = [strategy(all_queues, members, member) for member in members]
        assert [[queue.queue_id for queue in share] for share in shares] == ids(table)


def test_foreign_member_gets_no_queues() -> None:
    queues = [MessageQueue("t", "a", 0)]
    for strategy in (allocate_averagely, allocate_by_circle):
        assert not strategy(queues, ["a", "c"], "b")
        assert not strategy(queues, [], "b")
