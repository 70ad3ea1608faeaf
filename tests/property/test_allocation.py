"""Shares of queues, against RocketMQ's formula and the promises that members rely on."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from ternmq_consumer.allocation import allocate_averagely
from ternmq_model.queue import MessageQueue


def queues_of(count: int) -> list[MessageQueue]:
    return [MessageQueue("t", "broker", queue_id) for queue_id in range(count)]


def java_share(queues: Sequence[MessageQueue], members: int, index: int) -> list[MessageQueue]:
    """RocketMQ's `AllocateMessageQueueAveragely`, by the formula in its documentation."""
    remainder = len(queues) % members
    larger = remainder > 0 and index < remainder
    size = 1 if len(queues) <= members else len(queues) // members + larger
    start = index * size if larger else index * size + remainder
    return [queues[start + step] for step in range(min(size, len(queues) - start))]


def test_shares_are_those_of_rocketmq_for_every_small_number_of_queues_and_members() -> None:
    for count in range(41):
        queues = queues_of(count)
        for size in range(1, 21):
            members = [f"member-{number:02}" for number in range(size)]
            for index, member in enumerate(members):
                assert list(allocate_averagely(queues, members, member)) == java_share(
                    queues, size, index
                )


@given(st.integers(0, 200), st.sets(st.text(min_size=1, max_size=5), min_size=1, max_size=30))
def test_shares_partition_the_queues_and_differ_by_one_at_most(count: int, names: set[str]) -> None:
    queues = queues_of(count)
    members = sorted(names)

    shares = [allocate_averagely(queues, members, member) for member in members]

    assert [queue for share in shares for queue in share] == queues
    sizes = [len(share) for share in shares]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1


def test_who_is_no_member_gets_nothing() -> None:
    assert not allocate_averagely(queues_of(8), ["a", "c"], "b")
    assert not allocate_averagely(queues_of(8), [], "b")
