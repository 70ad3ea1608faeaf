"""TernMQ: a message queue with the semantics of Apache RocketMQ, for Python.

Everything an application needs is here; other packages may change without notice.
"""

from dataclasses import is_dataclass as _is_dataclass
from sys import modules as _modules
from types import FunctionType as _FunctionType
from typing import cast as _cast

from ternmq_client.admin.admin_client import AdminClient as AdminClient
from ternmq_client.admin.descriptions import TopicCreation as TopicCreation
from ternmq_client.admin.descriptions import TopicDescription as TopicDescription
from ternmq_client.config import ClientConfig as ClientConfig
from ternmq_client.interceptors import ConsumeEvent as ConsumeEvent
from ternmq_client.interceptors import ConsumeInterceptor as ConsumeInterceptor
from ternmq_client.interceptors import ConsumeOutcome as ConsumeOutcome
from ternmq_client.interceptors import SendEvent as SendEvent
from ternmq_client.interceptors import SendInterceptor as SendInterceptor
from ternmq_client.reply_message import is_request as is_request
from ternmq_client.telemetry.telemetry import Telemetry as Telemetry
from ternmq_consumer.config import ConsumeFrom as ConsumeFrom
from ternmq_consumer.config import MessageModel as MessageModel
from ternmq_consumer.config import OffsetsKept as OffsetsKept
from ternmq_consumer.config import PullConsumerConfig as PullConsumerConfig
from ternmq_consumer.config import PushConsumerConfig as PushConsumerConfig
from ternmq_consumer.consume_status import ConsumeStatus as ConsumeStatus
from ternmq_consumer.consume_status import ReconsumeLater as ReconsumeLater
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
from ternmq_model.errors import BrokerBusy as BrokerBusy
from ternmq_model.errors import BrokerDraining as BrokerDraining
from ternmq_model.errors import ClientNotOnline as ClientNotOnline
from ternmq_model.errors import ClosedError as ClosedError
from ternmq_model.errors import ConfigError as ConfigError
from ternmq_model.errors import ConnectionLost as ConnectionLost
from ternmq_model.errors import CorruptBody as CorruptBody
from ternmq_model.errors import CorruptRecord as CorruptRecord
from ternmq_model.errors import Fault as Fault
from ternmq_model.errors import GroupNotFound as GroupNotFound
from ternmq_model.errors import IllegalMessage as IllegalMessage
from ternmq_model.errors import IllegalName as IllegalName
from ternmq_model.errors import InvalidParameter as InvalidParameter
from ternmq_model.errors import MessageNotFound as MessageNotFound
from ternmq_model.errors import MessageRefused as MessageRefused
from ternmq_model.errors import MissingPackage as MissingPackage
from ternmq_model.errors import PermissionRefused as PermissionRefused
from ternmq_model.errors import RefusedError as RefusedError
from ternmq_model.errors import RequestTimedOut as RequestTimedOut
from ternmq_model.errors import SendVetoed as SendVetoed
from ternmq_model.errors import TernError as TernError
from ternmq_model.errors import TopicNotFound as TopicNotFound
from ternmq_model.errors import TransportError as TransportError
from ternmq_model.errors import Unreachable as Unreachable
from ternmq_model.errors import UsageError as UsageError
from ternmq_model.message import Message as Message
from ternmq_model.message import SendManyFailed as SendManyFailed
from ternmq_model.message import SendResult as SendResult
from ternmq_model.message import SendStatus as SendStatus
from ternmq_model.queue import MessageQueue as MessageQueue
from ternmq_model.route import Permission as Permission
from ternmq_model.route import TopicConfig as TopicConfig
from ternmq_model.stored_message import StoredMessage as StoredMessage
from ternmq_model.subscription import Subscription as Subscription
from ternmq_model.subscription import sql as sql
from ternmq_model.transaction import Resolution as Resolution
from ternmq_model.transaction import TransactionResult as TransactionResult
from ternmq_model.version import __version__ as __version__
from ternmq_producer.batch.bulk import SendResults as SendResults
from ternmq_producer.batch.column_results import ColumnResults as ColumnResults
from ternmq_producer.batch.column_results import SendColumnsFailed as SendColumnsFailed
from ternmq_producer.blocking_producer import BlockingProducer as BlockingProducer
from ternmq_producer.blocking_producer import (
    BlockingTransactionProducer as BlockingTransactionProducer,
)
from ternmq_producer.config import ProducerConfig as ProducerConfig
from ternmq_producer.producer import Producer as Producer
from ternmq_producer.queue_selection.selectors import ByHash as ByHash
from ternmq_producer.queue_selection.selectors import ByKey as ByKey
from ternmq_producer.queue_selection.selectors import ByMachineRoom as ByMachineRoom
from ternmq_producer.queue_selection.selectors import ByRandom as ByRandom
from ternmq_producer.queue_selection.selectors import QueueSelector as QueueSelector
from ternmq_producer.queue_selection.selectors import RoundRobin as RoundRobin
from ternmq_producer.send_statistics import BrokerSends as BrokerSends
from ternmq_producer.send_statistics import SendStatistics as SendStatistics
from ternmq_producer.transactions.transaction_producer import (
    TransactionProducer as TransactionProducer,
)
from ternmq_remoting.tls import Credentials as Credentials
from ternmq_runtime.settings.field_docs import describe_fields as _describe_fields
from ternmq_runtime.signals import run as run

__all__ = [
    "AdminClient",
    "AllocateByConfiguration",
    "AllocateByConsistentHash",
    "AllocateByMachineRoom",
    "AllocateNearby",
    "BlockingProducer",
    "BlockingPullConsumer",
    "BlockingTransactionProducer",
    "BrokerBusy",
    "BrokerDraining",
    "BrokerSends",
    "ByHash",
    "ByKey",
    "ByMachineRoom",
    "ByRandom",
    "ClientConfig",
    "ClientNotOnline",
    "ClosedError",
    "ColumnResults",
    "ConfigError",
    "ConnectionLost",
    "ConsumeEvent",
    "ConsumeFrom",
    "ConsumeInterceptor",
    "ConsumeOutcome",
    "ConsumeStatus",
    "CorruptBody",
    "CorruptRecord",
    "Credentials",
    "Fault",
    "GroupNotFound",
    "IllegalMessage",
    "IllegalName",
    "InvalidParameter",
    "Message",
    "MessageModel",
    "MessageNotFound",
    "MessageQueue",
    "MessageRefused",
    "MissingPackage",
    "OffsetsKept",
    "Permission",
    "PermissionRefused",
    "Producer",
    "ProducerConfig",
    "PullConsumer",
    "PullConsumerConfig",
    "PushConsumer",
    "PushConsumerConfig",
    "QueueSelector",
    "ReconsumeLater",
    "RefusedError",
    "RequestTimedOut",
    "Resolution",
    "RoundRobin",
    "SendColumnsFailed",
    "SendEvent",
    "SendInterceptor",
    "SendManyFailed",
    "SendResult",
    "SendResults",
    "SendStatistics",
    "SendStatus",
    "SendVetoed",
    "StoredMessage",
    "Subscription",
    "Telemetry",
    "TernError",
    "TopicConfig",
    "TopicCreation",
    "TopicDescription",
    "TopicNotFound",
    "TransactionProducer",
    "TransactionResult",
    "TransportError",
    "Unreachable",
    "UsageError",
    "__version__",
    "allocate_averagely",
    "allocate_by_circle",
    "is_request",
    "run",
    "sql",
]


_RETURNED_FROM = (
    "ternmq_client.admin.dead_letters",
    "ternmq_client.admin.nameserver_admin",
    "ternmq_client.admin.replication",
    "ternmq_client.admin.open_transactions",
    "ternmq_client.admin.descriptions",
    "ternmq_client.admin.redrive",
    "ternmq_client.retry_policy",
    "ternmq_client.tracing.trace_records",
    "ternmq_consumer.listener.consumer_statistics",
    "ternmq_model.address",
    "ternmq_model.group_settings",
    "ternmq_model.record.format",
    "ternmq_model.route",
    "ternmq_model.sql92.condition",
)
"""Have classes that the methods of public ones return."""


def _describe(value: object) -> None:
    kind = _cast("type[object]", value)
    if isinstance(value, type) and (_is_dataclass(kind) or hasattr(kind, "_fields")):
        _describe_fields(kind)


def _claim_names() -> None:
    """Let names say where users find them, and what their fields mean."""
    for name in __all__:
        value: object = globals()[name]
        _describe(value)
        if isinstance(value, type | _FunctionType):
            value.__module__ = "ternmq"
    for module in _RETURNED_FROM:
        for value in vars(_modules[module]).values():
            if getattr(value, "__module__", None) == module:
                _describe(value)


_claim_names()
