"""Consumers: the push consumer of a group, and the pull consumer of assigned queues."""

from ternmq_consumer.config import ConsumeFrom as ConsumeFrom
from ternmq_consumer.config import MessageModel as MessageModel
from ternmq_consumer.config import OffsetsKept as OffsetsKept
from ternmq_consumer.config import PullConsumerConfig as PullConsumerConfig
from ternmq_consumer.config import PushConsumerConfig as PushConsumerConfig
from ternmq_consumer.consume_status import DEAD_LETTER as DEAD_LETTER
from ternmq_consumer.consume_status import ConsumeStatus as ConsumeStatus
from ternmq_consumer.consume_status import ReconsumeLater as ReconsumeLater
from ternmq_consumer.listener.consumer_statistics import ConsumerStatistics as ConsumerStatistics
from ternmq_consumer.pull.blocking_pull_consumer import BlockingPullConsumer as BlockingPullConsumer
from ternmq_consumer.pull.pull_consumer import PullConsumer as PullConsumer
from ternmq_consumer.push.push_consumer import PushConsumer as PushConsumer
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
