"""Which queues a member of a group consumes."""

from ternmq_consumer.allocation.averaging import allocate_averagely as allocate_averagely
from ternmq_consumer.allocation.averaging import allocate_by_circle as allocate_by_circle
from ternmq_consumer.allocation.configured import AllocateByConfiguration as AllocateByConfiguration
from ternmq_consumer.allocation.hashing import AllocateByConsistentHash as AllocateByConsistentHash
from ternmq_consumer.allocation.named import strategy_of as strategy_of
from ternmq_consumer.allocation.rooms import AllocateByMachineRoom as AllocateByMachineRoom
from ternmq_consumer.allocation.rooms import AllocateNearby as AllocateNearby
from ternmq_consumer.allocation.strategy import AllocationStrategy as AllocationStrategy
