"""Which queues a member of a group consumes."""

from ternmq_consumer.rebalance.allocation.averagely import allocate_averagely as allocate_averagely
from ternmq_consumer.rebalance.allocation.averagely import allocate_by_circle as allocate_by_circle
from ternmq_consumer.rebalance.allocation.configured_queues import (
    AllocateByConfiguration as AllocateByConfiguration,
)
from ternmq_consumer.rebalance.allocation.consistent_hash import (
    AllocateByConsistentHash as AllocateByConsistentHash,
)
from ternmq_consumer.rebalance.allocation.machine_room import (
    AllocateByMachineRoom as AllocateByMachineRoom,
)
from ternmq_consumer.rebalance.allocation.machine_room import AllocateNearby as AllocateNearby
from ternmq_consumer.rebalance.allocation.strategy import AllocationStrategy as AllocationStrategy
from ternmq_consumer.rebalance.allocation.strategy_names import strategy_of as strategy_of
