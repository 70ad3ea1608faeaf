"""Every strategy is what members may compute alone."""

import pytest

from ternmq_consumer.rebalance.allocation.strategy import AllocationStrategy
from ternmq_consumer.rebalance.allocation.strategy_names import strategy_of
from ternmq_model.queue import MessageQueue

QUEUES = [MessageQueue("t", name, queue_id) for name in ("a", "b") for queue_id in range(4)]


@pytest.mark.parametrize("name", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"])
def test_strategy_computes_the_same_shares_for_every_member(name: str) -> None:
    first: AllocationStrategy = strategy_of(name)
    again: AllocationStrategy = strategy_of(f"MACHINE_ROOM_NEARBY-{name}")
    for strategy in (first, again):
        members = ["m1", "m2", "m3"]
        once = [list(strategy(QUEUES, members, member)) for member in members]
        assert once == [list(strategy(tuple(QUEUES), tuple(members), m)) for m in members]
        assert sorted(queue for share in once for queue in share) == QUEUES
