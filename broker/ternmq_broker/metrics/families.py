"""Families of a broker's metrics: RocketMQ's where it has them, and `ternmq_` beside them. Pure.

Source: RocketMQ `BrokerMetricsConstant`, `DefaultStoreMetricsConstant`, and its Prometheus port.
"""

from typing import Final

from ternmq_broker.statistics.broker_statistics import DELAY_BOUNDS_S, SIZE_BOUNDS
from ternmq_broker.transactions.transitions import LATENCY_BOUNDS_MS
from ternmq_runtime.metrics.families import MetricFamily, MetricKind

_TOPIC: Final = ("topic", "message_type", "is_system")
_READ: Final = ("consumer_group", "topic", "is_system")
_LAG: Final = ("consumer_group", "topic", "is_retry", "is_system")
_DISK: Final = ("storage_type", "storage_medium")
DISK_VALUES: Final = ("local", "disk")
"""Values of the first labels of all families about the store and its timers."""

_CLIENT: Final = ("language", "version", "protocol_type")


def _counter(name: str, help: str, *labels: str) -> MetricFamily:
    return MetricFamily(name=name, kind=MetricKind.COUNTER, help=help, labels=labels)


def _gauge(name: str, help: str, *labels: str, is_extreme: bool = False) -> MetricFamily:
    return MetricFamily(
        name=name, kind=MetricKind.GAUGE, help=help, labels=labels, is_extreme=is_extreme
    )


def _histogram(name: str, help: str, *labels: str, bounds: tuple[float, ...]) -> MetricFamily:
    return MetricFamily(
        name=name, kind=MetricKind.HISTOGRAM, help=help, labels=labels, bounds=bounds
    )


MESSAGES_IN: Final = _counter("rocketmq_messages_in", "Messages that were stored.", *_TOPIC)
THROUGHPUT_IN: Final = _counter(
    "rocketmq_throughput_in", "Bytes of the records of stored messages.", *_TOPIC
)
MESSAGE_SIZE: Final = _histogram(
    "rocketmq_message_size",
    "Bytes of a stored record.",
    *_TOPIC,
    bounds=SIZE_BOUNDS,
)
MESSAGES_OUT: Final = _counter("rocketmq_messages_out", "Messages that groups got.", *_READ)
THROUGHPUT_OUT: Final = _counter(
    "rocketmq_throughput_out", "Bytes of the records that groups got.", *_READ
)
DEAD_LETTERS: Final = _counter(
    "rocketmq_send_to_dlq_messages", "Messages that became dead letters of a group.", *_READ
)

LAG: Final = _gauge(
    "rocketmq_consumer_lag_messages", "Messages behind the committed offsets.", *_LAG
)
LAG_LATENCY: Final = _gauge(
    "rocketmq_consumer_lag_latency_milliseconds",
    "Age of the oldest message behind a committed offset, ms.",
    *_LAG,
    is_extreme=True,
)
INFLIGHT: Final = _gauge(
    "rocketmq_consumer_inflight_messages", "Messages that were got and not committed.", *_LAG
)
READY: Final = _gauge("rocketmq_consumer_ready_messages", "Messages that were not got yet.", *_LAG)
QUEUEING_LATENCY: Final = _gauge(
    "rocketmq_consumer_queueing_latency_milliseconds",
    "Age of the oldest message that was not got yet, ms.",
    *_LAG,
    is_extreme=True,
)
QUEUE_LAG_SECONDS: Final = _gauge(
    "ternmq_consumer_queue_lag_seconds",
    "Age of the oldest message behind the committed offset of a queue, s.",
    "consumer_group",
    "topic",
    "queue_id",
    "is_system",
    is_extreme=True,
)
OLDEST_UNACKNOWLEDGED: Final = _gauge(
    "ternmq_consumer_oldest_unacknowledged_seconds",
    "Age of the oldest message that a group got and did not commit, s.",
    *_READ,
    is_extreme=True,
)

HALF_MESSAGES: Final = _gauge(
    "rocketmq_half_messages", "Half messages without a decision.", "topic"
)
COMMITS: Final = _counter("rocketmq_commit_messages", "Half messages that were committed.", "topic")
ROLLBACKS: Final = _counter(
    "rocketmq_rollback_messages", "Half messages that were rolled back.", "topic"
)
FINISH_LATENCY: Final = _histogram(
    "rocketmq_finish_message_latency_milliseconds",
    "Time from the half message to its commit, ms.",
    "topic",
    bounds=LATENCY_BOUNDS_MS,
)
CHECKS: Final = _counter(
    "ternmq_transaction_checks", "Check-backs that were sent to producers.", "topic"
)

STORAGE_SIZE: Final = _gauge(
    "rocketmq_storage_size_bytes", "Bytes of the CommitLog's files.", *_DISK
)
FLUSH_BEHIND: Final = _gauge(
    "rocketmq_storage_flush_behind_bytes", "Bytes of the CommitLog that are not synced.", *_DISK
)
DISPATCH_BEHIND: Final = _gauge(
    "rocketmq_storage_dispatch_behind_bytes",
    "Bytes of the CommitLog that are not in the ConsumeQueues.",
    *_DISK,
)
RESERVE_TIME: Final = _gauge(
    "rocketmq_storage_message_reserve_time_milliseconds",
    "Age of the oldest stored message, ms.",
    *_DISK,
)
FREE_BYTES: Final = _gauge(
    "ternmq_storage_free_bytes",
    "Bytes that the disk takes until messages are refused, at store.disk_full_percent.",
)
TIME_TO_FULL: Final = _gauge(
    "ternmq_storage_time_to_full_seconds",
    "Time until messages are refused if the log grows as in the last ten minutes, s; infinity = it"
    " does not grow.",
)

TIMER_ENQUEUE_LAG: Final = _gauge(
    "rocketmq_timer_enqueue_lag", "Timed messages that are not in the timer yet.", *_DISK
)
TIMER_ENQUEUE_LATENCY: Final = _gauge(
    "rocketmq_timer_enqueue_latency_milliseconds",
    "Age of the oldest timed message that is not in the timer yet, ms.",
    *_DISK,
)
TIMER_DEQUEUE_LAG: Final = _gauge(
    "rocketmq_timer_dequeue_lag", "Timed messages that are due and not delivered.", *_DISK
)
TIMER_DEQUEUE_LATENCY: Final = _gauge(
    "rocketmq_timer_dequeue_latency_milliseconds",
    "Time by which the oldest due message is late, ms.",
    *_DISK,
)
TIMING_MESSAGES: Final = _gauge(
    "rocketmq_timing_messages",
    "Delayed and timed messages, by the topic in which they wait.",
    *_DISK,
    "topic",
)
TIMER_SNAPSHOT: Final = _gauge(
    "rocketmq_timer_message_snapshot",
    "Timed messages that are due within a time, and not within a shorter one.",
    *_DISK,
    "timer_bound_s",
)
DELAY_LATENCY: Final = _histogram(
    "rocketmq_delay_message_latency_seconds",
    "Delay of a message at its arrival, s.",
    *_DISK,
    "topic",
    bounds=DELAY_BOUNDS_S,
)

PRODUCERS: Final = _gauge("rocketmq_producer_connections", "Connected producers.", *_CLIENT)
CONSUMERS: Final = _gauge(
    "rocketmq_consumer_connections",
    "Connected members of a group.",
    "consumer_group",
    *_CLIENT,
    "is_system",
)
TOPICS: Final = _gauge("rocketmq_topic_number", "Topics, those of the system included.")
GROUPS: Final = _gauge("rocketmq_consumer_group_number", "Consumer groups.")
PERMISSION: Final = _gauge(
    "rocketmq_broker_permission", "Permission of the broker: 4 for reads plus 2 for writes."
)
UNANSWERED_BYTES: Final = _gauge(
    "ternmq_unanswered_sends_bytes", "Bytes of sends without an answer yet."
)

IS_MASTER: Final = _gauge("ternmq_broker_is_master", "1 for a master, 0 for a slave.")
EPOCH: Final = _gauge("ternmq_broker_epoch", "Epoch of the newest master that is known.")
REPLICA_BEHIND: Final = _gauge(
    "ternmq_replica_behind_bytes",
    "Bytes of the log that a slave has not made safe, at its master; at a slave its own.",
    "replica",
)
