"""Shares of queues, against RocketMQ's formulas and the promises that members rely on."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq_consumer.rebalance.allocation.averagely import allocate_averagely, allocate_by_circle
from ternmq_consumer.rebalance.allocation.consistent_hash import AllocateByConsistentHash
from ternmq_consumer.rebalance.allocation.machine_room import AllocateByMachineRoom, AllocateNearby
from ternmq_consumer.rebalance.allocation.strategy import AllocationStrategy
from ternmq_model.queue import MessageQueue

ROOMS = ["hz", "sh", "bj"]

EVEN: dict[str, AllocationStrategy] = {
    "AVG": allocate_averagely,
    "AVG_BY_CIRCLE": allocate_by_circle,
    "MACHINE_ROOM": AllocateByMachineRoom(ROOMS),
}
ALL: dict[str, AllocationStrategy] = {
    **EVEN,
    "CONSISTENT_HASH": AllocateByConsistentHash(),
    "ONE_POINT_EACH": AllocateByConsistentHash(1),
    "NEARBY-AVG": AllocateNearby(allocate_averagely),
    "NEARBY-AVG_BY_CIRCLE": AllocateNearby(allocate_by_circle),
    "NEARBY-CONSISTENT_HASH": AllocateNearby(AllocateByConsistentHash()),
}

broker_names = st.builds("{}@{}".format, st.sampled_from(ROOMS), st.sampled_from("abc"))
queue_sets = st.dictionaries(broker_names, st.integers(0, 20)).map(
    lambda counts: sorted(
        MessageQueue("t", name, queue_id)
        for name, count in counts.items()
        for queue_id in range(count)
    )
)
member_sets = st.sets(
    st.builds("{}-{}".format, st.sampled_from([*ROOMS, "xz"]), st.integers(0, 40)),
    min_size=1,
    max_size=20,
).map(sorted)


def queues_of(count: int) -> list[MessageQueue]:
    return [MessageQueue("t", "hz@broker", queue_id) for queue_id in range(count)]


def averagely(queues: Sequence[MessageQueue], members: int, index: int) -> list[MessageQueue]:
    """RocketMQ's `AllocateMessageQueueAveragely`, by the formula in its documentation."""
    remainder = len(queues) % members
    larger = remainder > 0 and index < remainder
    size = 1 if len(queues) <= members else len(queues) // members + larger
    start = index * size if larger else index * size + remainder
    return [queues[start + step] for step in range(min(size, len(queues) - start))]


def by_circle(queues: Sequence[MessageQueue], members: int, index: int) -> list[MessageQueue]:
    """RocketMQ's `AllocateMessageQueueAveragelyByCircle`."""
    return [queues[k] for k in range(index, len(queues)) if k % members == index]


def by_machine_room(queues: Sequence[MessageQueue], members: int, index: int) -> list[MessageQueue]:
    """RocketMQ's `AllocateMessageQueueByMachineRoom`, all queues being of wanted rooms."""
    mod, rem = len(queues) // members, len(queues) % members
    share = [*queues[mod * index : mod * index + mod]]
    return [*share, queues[index + mod * members]] if rem > index else share


def test_shares_equal_rocketmqs_for_small_numbers_of_queues_and_members() -> None:
    formulas = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle, "MACHINE_ROOM": by_machine_room}
    for count in range(41):
        queues = queues_of(count)
        for size in range(1, 21):
            members = [f"member-{number:02}" for number in range(size)]
            for index, member in enumerate(members):
                for name, formula in formulas.items():
                    share = EVEN[name](queues, members, member)
                    assert list(share) == formula(queues, size, index), name


@pytest.mark.parametrize("name", ALL)
@given(queues=queue_sets, members=member_sets)
def test_every_queue_has_one_owner_whoever_computes_it(
    name: str, queues: list[MessageQueue], members: list[str]
) -> None:
    shares = {member: list(ALL[name](queues, members, member)) for member in members}

    assert sorted(queue for share in shares.values() for queue in share) == queues
    for member in members:
        assert list(ALL[name](tuple(queues), tuple(members), member)) == shares[member]
    assert not ALL[name](queues, members, "stranger")
    assert not ALL[name](queues, [], "stranger")


@pytest.mark.parametrize("name", EVEN)
@given(queues=queue_sets, members=member_sets)
def test_equal_shares_differ_by_one_at_most_and_the_larger_come_first(
    name: str, queues: list[MessageQueue], members: list[str]
) -> None:
    sizes = [len(EVEN[name](queues, members, member)) for member in members]

    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1


@given(queues=queue_sets, members=member_sets)
def test_consistent_hash_moves_only_queues_of_departed_member(
    queues: list[MessageQueue], members: list[str]
) -> None:
    allocate = AllocateByConsistentHash()
    gone = members[len(members) // 2]
    stay = [member for member in members if member != gone]
    for member in stay:
        before = set(allocate(queues, members, member))
        assert before <= set(allocate(queues, stay, member))


@given(queues=queue_sets, members=member_sets)
def test_machine_room_with_members_keeps_its_queues(
    queues: list[MessageQueue], members: list[str]
) -> None:
    allocate = AllocateNearby(allocate_averagely)
    living = {member.split("-")[0] for member in members}
    for member in members:
        for queue in allocate(queues, members, member):
            room = queue.broker_name.split("@")[0]
            assert room == member.split("-")[0] or room not in living
