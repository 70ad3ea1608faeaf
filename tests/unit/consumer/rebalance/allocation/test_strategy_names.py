"""Strategies by name."""

import pytest

from ternmq_consumer.config import PushConsumerConfig
from ternmq_consumer.rebalance.allocation.averagely import allocate_averagely, allocate_by_circle
from ternmq_consumer.rebalance.allocation.consistent_hash import AllocateByConsistentHash
from ternmq_consumer.rebalance.allocation.machine_room import AllocateNearby
from ternmq_consumer.rebalance.allocation.strategy import AllocationStrategy
from ternmq_consumer.rebalance.allocation.strategy_names import strategy_of
from ternmq_model.errors import ConfigError
from ternmq_model.queue import MessageQueue

QUEUES = [MessageQueue("t", f"{room}-b", number) for room in "xy" for number in range(5)]
MEMBERS = ["x-1", "x-2", "y-1"]


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("AVG", allocate_averagely),
        ("AVG_BY_CIRCLE", allocate_by_circle),
        ("CONSISTENT_HASH", AllocateByConsistentHash()),
        ("MACHINE_ROOM_NEARBY-AVG", AllocateNearby(allocate_averagely)),
        ("MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE", AllocateNearby(allocate_by_circle)),
        ("MACHINE_ROOM_NEARBY-CONSISTENT_HASH", AllocateNearby(AllocateByConsistentHash())),
    ],
)
def test_name_selects_the_strategy_rocketmq_calls_so(
    name: str, strategy: AllocationStrategy
) -> None:
    for member in MEMBERS:
        share = strategy_of(name)(QUEUES, MEMBERS, member)
        assert list(share) == list(strategy(QUEUES, MEMBERS, member))


def test_function_is_a_strategy() -> None:
    assert strategy_of(allocate_by_circle) is allocate_by_circle


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        (
            "avg",
            "is no strategy; the strategies are AVG, AVG_BY_CIRCLE, CONSISTENT_HASH,"
            " MACHINE_ROOM_N",
        ),
        ("", "is no strategy"),
        ("MACHINE_ROOM_NEARBY-", "is no strategy"),
        ("MACHINE_ROOM_NEARBY-CONFIG", "is no strategy"),
        ("MACHINE_ROOM_NEARBY", r"needs arguments: give 'MACHINE_ROOM_NEARBY-<inner"),
        ("CONFIG", r"needs arguments: give AllocateByConfiguration\(queues\)"),
        ("MACHINE_ROOM", r"needs arguments: give AllocateByMachineRoom\(rooms\)"),
        (7, "must be a function, or the name of a strategy"),
        (len, ".*must take 3 arguments"),
    ],
)
def test_unknown_strategy_is_refused_when_a_consumer_is_configured(name: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rf"consumer\.allocate={name!r}: {rule}"):
        PushConsumerConfig(allocate=name)
