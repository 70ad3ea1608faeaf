"""The four boards: cluster, topic, group, store. Pure.

Their metrics are the families of brokers, NameServers and `ternmq_runtime.metrics`. A master and
its slave have the same labels but for the target's, so gauges of both are one by `max by`.
"""

from typing import Final

from ternmq_console.generate.panels import Board, BoardPanel, BoardVariable

NODE: Final = 'cluster=~"$cluster",node_id=~"$node"'
"""Selector of the boards by node, and the following ones by topic and group."""

TOPIC: Final = 'cluster=~"$cluster",topic=~"$topic"'
GROUP: Final = 'cluster=~"$cluster",consumer_group=~"$group",topic=~"$topic"'
_CLUSTER_ALONE: Final = 'cluster=~"$cluster"'
_WITHOUT_MASTER: Final = f"ternmq_nameserver_without_master{{{_CLUSTER_ALONE}}} > 0"
_GROUP_ALONE: Final = 'cluster=~"$cluster",consumer_group=~"$group"'

_CLUSTER_CHOICE: Final = BoardVariable(
    name="cluster", label="Cluster", values="ternmq_build_info, cluster"
)
_NODE_CHOICE: Final = BoardVariable(
    name="node", label="Node", values='ternmq_build_info{cluster=~"$cluster"}, node_id'
)
_TOPIC_CHOICE: Final = BoardVariable(
    name="topic", label="Topic", values='rocketmq_messages_in_total{cluster=~"$cluster"}, topic'
)
_GROUP_CHOICE: Final = BoardVariable(
    name="group",
    label="Group",
    values='rocketmq_consumer_lag_messages{cluster=~"$cluster"}, consumer_group',
)


def _rate(counter: str, where: str, by: str) -> str:
    return f"sum by ({by}) (rate({counter}{{{where}}}[$__rate_interval]))"


def _sum(gauge: str, where: str, by: str, series: str = "") -> str:
    """Return a sum of series that master and slave both show: each counts once."""
    labels = ", ".join(dict.fromkeys(f"cluster, node_id, {by}, {series}".strip(", ").split(", ")))
    return f"sum by ({by}) (max by ({labels}) ({gauge}{{{where}}}))"


def _most(gauge: str, where: str, by: str) -> str:
    return f"max by ({by}) ({gauge}{{{where}}})"


def _quantile(share: float, histogram: str, where: str, by: str) -> str:
    buckets = f"rate({histogram}_bucket{{{where}}}[$__rate_interval])"
    return f"histogram_quantile({share}, sum by ({by}, le) ({buckets}))"


def _of_process(expression: str) -> str:
    """Return metrics of processes with the names of their nodes: theirs are only the target's."""
    names = 'max by (job, instance, node_type, node_id) (ternmq_build_info{node_id=~"$node"})'
    return f"{expression} * on (job, instance) group_left (node_type, node_id) {names}"


def _stat(title: str, unit: str, query: str, description: str = "", columns: int = 3) -> BoardPanel:
    return BoardPanel(
        title=title,
        unit=unit,
        queries={title.lower(): query},
        description=description,
        kind="stat",
        columns=columns,
    )


def _curves(
    title: str, unit: str, queries: dict[str, str], description: str = "", columns: int = 12
) -> BoardPanel:
    return BoardPanel(
        title=title, unit=unit, queries=queries, description=description, columns=columns
    )


_BY_NODE: Final = "{{node_id}}"
_BY_PROCESS: Final = "{{node_type}} {{node_id}} {{instance}}"
_BY_TOPIC: Final = "{{topic}}"
_BY_GROUP: Final = "{{consumer_group}} {{topic}}"

_REPLICAS_BEHIND: Final = {
    "{{node_id}} {{replica}}": _most("ternmq_replica_behind_bytes", NODE, "node_id, replica")
}

_CLUSTER: Final = Board(
    name="cluster",
    title="TernMQ / Cluster",
    variables=[_CLUSTER_CHOICE, _NODE_CHOICE],
    rows={
        "Health": [
            _stat(
                "Brokers",
                "short",
                f"sum(max by (cluster) (ternmq_nameserver_brokers{{{_CLUSTER_ALONE}}}))",
                "Masters and slaves that a NameServer knows.",
            ),
            _stat(
                "Masters",
                "short",
                f"sum(ternmq_broker_is_master{{{NODE}}})",
                "Brokers that accept messages now.",
            ),
            _stat(
                "Without master",
                "short",
                f"count(max by (cluster, broker) ({_WITHOUT_MASTER})) or vector(0)",
                "Names of brokers whose members lack a master: 0 is good.",
            ),
            _stat("Topics", "short", f"max(rocketmq_topic_number{{{NODE}}})"),
            _stat("Groups", "short", f"max(rocketmq_consumer_group_number{{{NODE}}})"),
            _stat(
                "Oldest lag",
                "s",
                f"max(ternmq_consumer_queue_lag_seconds{{{NODE}}}) or vector(0)",
                "Age of the oldest message that waits for a group.",
            ),
            _stat(
                "Disk full in",
                "s",
                f"min(ternmq_storage_time_to_full_seconds{{{NODE}}})",
                "By the rate of the last ten minutes; infinite when the store does not grow.",
            ),
            _stat(
                "Hidden series",
                "short",
                f"sum(ternmq_metrics_hidden_series{{{NODE}}}) or vector(0)",
                "Series above metrics.series_max, summed under `other`: 0 is good.",
            ),
        ],
        "Traffic": [
            _curves(
                "Messages stored",
                "cps",
                {_BY_NODE: _rate("rocketmq_messages_in_total", NODE, "node_id")},
            ),
            _curves(
                "Messages read",
                "cps",
                {_BY_NODE: _rate("rocketmq_messages_out_total", NODE, "node_id")},
            ),
            _curves(
                "Bytes stored and read",
                "Bps",
                {
                    "in {{node_id}}": _rate("rocketmq_throughput_in_total", NODE, "node_id"),
                    "out {{node_id}}": _rate("rocketmq_throughput_out_total", NODE, "node_id"),
                },
            ),
            _curves(
                "Connections",
                "short",
                {
                    "producers {{node_id}}": _sum(
                        "rocketmq_producer_connections", NODE, "node_id", "language, version"
                    ),
                    "consumers {{node_id}}": _sum(
                        "rocketmq_consumer_connections",
                        NODE,
                        "node_id",
                        "consumer_group, language, version",
                    ),
                },
            ),
        ],
        "Requests": [
            _curves(
                "Latency of requests, 99 %",
                "ms",
                {
                    "{{node_type}} {{request_code}}": _quantile(
                        0.99,
                        "rocketmq_rpc_latency_milliseconds",
                        'node_id=~"$node",is_long_polling="false"',
                        "node_type, request_code",
                    )
                },
                "Without those that wait for messages.",
            ),
            _curves(
                "Requests by answer",
                "reqps",
                {
                    "{{node_type}} {{response_code}}": _rate(
                        "rocketmq_rpc_latency_milliseconds_count",
                        'node_id=~"$node"',
                        "node_type, response_code",
                    )
                },
            ),
        ],
        "Processes": [
            _curves(
                "Pause of the event loop, 99 %",
                "s",
                {
                    _BY_PROCESS: _quantile(
                        0.99,
                        "ternmq_loop_pause_seconds",
                        'node_id=~"$node"',
                        "node_type, node_id, instance",
                    )
                },
                "Above 0.2 s every answer of this process is late.",
            ),
            _curves(
                "Processor",
                "percentunit",
                {_BY_PROCESS: _of_process("rate(process_cpu_seconds_total[$__rate_interval])")},
                "1 = one core.",
            ),
            _curves(
                "Resident memory",
                "decbytes",
                {_BY_PROCESS: _of_process("process_resident_memory_bytes")},
            ),
            _curves(
                "Bytes that slaves lack",
                "decbytes",
                _REPLICAS_BEHIND,
                "A slave far behind loses its vote and delays sends of a sync_master.",
            ),
        ],
    },
)

_TOPIC: Final = Board(
    name="topic",
    title="TernMQ / Topic",
    variables=[_CLUSTER_CHOICE, _TOPIC_CHOICE],
    rows={
        "Messages": [
            _curves(
                "Messages stored",
                "cps",
                {_BY_TOPIC: _rate("rocketmq_messages_in_total", TOPIC, "topic")},
            ),
            _curves(
                "Messages read by group",
                "cps",
                {_BY_GROUP: _rate("rocketmq_messages_out_total", TOPIC, "consumer_group, topic")},
            ),
            _curves(
                "Bytes stored",
                "Bps",
                {_BY_TOPIC: _rate("rocketmq_throughput_in_total", TOPIC, "topic")},
            ),
            _curves(
                "Size of messages, 99 %",
                "decbytes",
                {_BY_TOPIC: _quantile(0.99, "rocketmq_message_size", TOPIC, "topic")},
            ),
            _curves(
                "Messages stored by kind",
                "cps",
                {"{{message_type}}": _rate("rocketmq_messages_in_total", TOPIC, "message_type")},
            ),
            _curves(
                "Messages behind, all groups",
                "short",
                {_BY_GROUP: _sum("rocketmq_consumer_lag_messages", TOPIC, "consumer_group, topic")},
            ),
        ],
        "Transactions": [
            _curves(
                "Open half messages",
                "short",
                {_BY_TOPIC: _sum("rocketmq_half_messages", TOPIC, "topic")},
                "Messages whose producer has not decided. A rising curve means lost decisions.",
            ),
            _curves(
                "Decisions and check-backs",
                "cps",
                {
                    "commits {{topic}}": _rate("rocketmq_commit_messages_total", TOPIC, "topic"),
                    "rollbacks {{topic}}": _rate(
                        "rocketmq_rollback_messages_total", TOPIC, "topic"
                    ),
                    "check-backs {{topic}}": _rate(
                        "ternmq_transaction_checks_total", TOPIC, "topic"
                    ),
                },
            ),
            _curves(
                "Time until the commit, 99 %",
                "ms",
                {
                    _BY_TOPIC: _quantile(
                        0.99, "rocketmq_finish_message_latency_milliseconds", TOPIC, "topic"
                    )
                },
            ),
        ],
        "Delayed messages": [
            _curves(
                "Delay of messages, 99 %",
                "s",
                {
                    _BY_TOPIC: _quantile(
                        0.99, "rocketmq_delay_message_latency_seconds", TOPIC, "topic"
                    )
                },
            ),
        ],
    },
)

_GROUP: Final = Board(
    name="group",
    title="TernMQ / Group",
    variables=[_CLUSTER_CHOICE, _GROUP_CHOICE, _TOPIC_CHOICE],
    rows={
        "Behind": [
            _curves(
                "Lag in seconds",
                "s",
                {
                    _BY_GROUP: _most(
                        "ternmq_consumer_queue_lag_seconds", GROUP, "consumer_group, topic"
                    )
                },
                "Age of the oldest message behind a committed offset, in the worst queue.",
            ),
            _curves(
                "Lag in messages",
                "short",
                {_BY_GROUP: _sum("rocketmq_consumer_lag_messages", GROUP, "consumer_group, topic")},
            ),
            _curves(
                "Ten worst queues",
                "s",
                {
                    "{{consumer_group}} {{topic}} {{node_id}} {{queue_id}}": "topk(10, "
                    + _most(
                        "ternmq_consumer_queue_lag_seconds",
                        GROUP,
                        "consumer_group, topic, node_id, queue_id",
                    )
                    + ")"
                },
                "One queue alone: its consumer hangs, or an ordered message fails again and again.",
            ),
            _curves(
                "Oldest unacknowledged message",
                "s",
                {
                    _BY_GROUP: _most(
                        "ternmq_consumer_oldest_unacknowledged_seconds",
                        GROUP,
                        "consumer_group, topic",
                    )
                },
                "Got by a consumer, and not committed: listeners that hang.",
            ),
        ],
        "Progress": [
            _curves(
                "Messages read",
                "cps",
                {_BY_GROUP: _rate("rocketmq_messages_out_total", GROUP, "consumer_group, topic")},
            ),
            _curves(
                "In flight and ready",
                "short",
                {
                    f"in flight {_BY_GROUP}": _sum(
                        "rocketmq_consumer_inflight_messages", GROUP, "consumer_group, topic"
                    ),
                    f"ready {_BY_GROUP}": _sum(
                        "rocketmq_consumer_ready_messages", GROUP, "consumer_group, topic"
                    ),
                },
                "Ready messages were not got yet; those in flight wait for their listeners.",
            ),
            _curves(
                "Dead letters",
                "cps",
                {
                    _BY_GROUP: _rate(
                        "rocketmq_send_to_dlq_messages_total", GROUP, "consumer_group, topic"
                    )
                },
                "Messages that failed in each of their attempts: `ternmq dlq show GROUP`.",
            ),
            _curves(
                "Members",
                "short",
                {
                    "{{consumer_group}} {{node_id}}": _sum(
                        "rocketmq_consumer_connections",
                        _GROUP_ALONE,
                        "consumer_group, node_id",
                        "language, version",
                    )
                },
            ),
        ],
    },
)

_STORE: Final = Board(
    name="store",
    title="TernMQ / Store",
    variables=[_CLUSTER_CHOICE, _NODE_CHOICE],
    rows={
        "Disk": [
            _curves(
                "Size of the store",
                "decbytes",
                {"{{node_id}} {{instance}}": f"rocketmq_storage_size_bytes{{{NODE}}}"},
            ),
            _curves(
                "Free bytes",
                "decbytes",
                {"{{node_id}} {{instance}}": f"ternmq_storage_free_bytes{{{NODE}}}"},
            ),
            _curves(
                "Disk full in",
                "s",
                {"{{node_id}} {{instance}}": f"ternmq_storage_time_to_full_seconds{{{NODE}}}"},
                "By the rate of the last ten minutes; infinite when the store does not grow.",
            ),
            _curves(
                "Age of the oldest message",
                "ms",
                {
                    "{{node_id}} {{instance}}": "rocketmq_storage_message_reserve_time_milliseconds"
                    f"{{{NODE}}}"
                },
                "What a group can still read: retention deletes older messages.",
            ),
        ],
        "Durability": [
            _curves(
                "Bytes not synced",
                "decbytes",
                {"{{node_id}} {{instance}}": f"rocketmq_storage_flush_behind_bytes{{{NODE}}}"},
                "Lost with the machine's power, unless a slave has them.",
            ),
            _curves(
                "Bytes not dispatched",
                "decbytes",
                {"{{node_id}} {{instance}}": f"rocketmq_storage_dispatch_behind_bytes{{{NODE}}}"},
                "Stored, and not visible to consumers yet.",
            ),
            _curves(
                "Bytes that slaves lack",
                "decbytes",
                _REPLICAS_BEHIND,
            ),
            _curves(
                "Bytes stored",
                "Bps",
                {_BY_NODE: _rate("rocketmq_throughput_in_total", NODE, "node_id")},
            ),
        ],
        "Timer": [
            _curves(
                "Delayed and timed messages",
                "short",
                {"{{node_id}} {{topic}}": _sum("rocketmq_timing_messages", NODE, "node_id, topic")},
                "By the system's topic in which they wait.",
            ),
            _curves(
                "Messages in the timer, by time until due",
                "short",
                {
                    "{{node_id}} within {{timer_bound_s}} s": _most(
                        "rocketmq_timer_message_snapshot", NODE, "node_id, timer_bound_s"
                    )
                },
            ),
            _curves(
                "Lateness of the timer",
                "ms",
                {
                    "into the timer {{node_id}}": _most(
                        "rocketmq_timer_enqueue_latency_milliseconds", NODE, "node_id"
                    ),
                    "out of it {{node_id}}": _most(
                        "rocketmq_timer_dequeue_latency_milliseconds", NODE, "node_id"
                    ),
                },
            ),
        ],
    },
)

BOARDS: Final = (_CLUSTER, _TOPIC, _GROUP, _STORE)
"""All boards, the widest view first."""
