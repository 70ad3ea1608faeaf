"""Which queues a member of a group consumes."""

from ternmq_consumer.rebalance.allocation.averaging import allocate_averagely as allocate_averagely
from ternmq_consumer.rebalance.allocation.averaging import allocate_by_circle as allocate_by_circle
from ternmq_consumer.rebalance.allocation.configured import (
    AllocateByConfiguration as AllocateByConfiguration,
)
from ternmq_consumer.rebalance.allocation.hashing import (
    AllocateByConsistentHash as AllocateByConsistentHash,
)
from ternmq_consumer.rebalance.allocation.named import strategy_of as strategy_of
from ternmq_consumer.rebalance.allocation.rooms import (
    AllocateByMachineRoom as AllocateByMachineRoom,
)
from ternmq_consumer.rebalance.allocation.rooms import AllocateNearby as AllocateNearby
from ternmq_consumer.rebalance.allocation.strategy import AllocationStrategy as AllocationStrategy
