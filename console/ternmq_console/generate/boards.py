"""The four boards: cluster, topic, group, store. Pure.

Their metrics are the families of brokers, NameServers and `ternmq_runtime.metrics`.
"""

from typing import Final

from ternmq_console.generate.board_queries import (
    NO_SYSTEM,
    longest_lag,
    mean,
    most,
    of_process,
    quantile,
    rate,
    sum_once,
)
from ternmq_console.generate.panels import Board, BoardVariable, curves, stat

NODE: Final = 'cluster=~"$cluster",node_id=~"$node"'
"""Selector of the boards by node, and the following ones by topic and group."""

TOPIC: Final = 'cluster=~"$cluster",topic=~"$topic"'
GROUP: Final = f'cluster=~"$cluster",consumer_group=~"$group",topic=~"$topic",{NO_SYSTEM}'
_TRAFFIC: Final = f"{TOPIC},{NO_SYSTEM}"
_NODE_TRAFFIC: Final = f"{NODE},{NO_SYSTEM}"
_CLUSTER_ALONE: Final = 'cluster=~"$cluster"'
_WITHOUT_MASTER: Final = f"ternmq_nameserver_without_master{{{_CLUSTER_ALONE}}} > 0"
_GROUP_ALONE: Final = f'cluster=~"$cluster",consumer_group=~"$group",{NO_SYSTEM}'

_LAG: Final = "rocketmq_consumer_lag_messages"

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
    values=f"{_LAG}{{{_CLUSTER_ALONE}}}, consumer_group",
)


_BY_NODE: Final = "{{node_id}}"
_BY_STORE: Final = "{{node_id}} {{instance}}"
_BY_PROCESS: Final = "{{node_type}} {{node_id}} {{instance}}"
_BY_TOPIC: Final = "{{topic}}"
_BY_GROUP: Final = "{{consumer_group}} {{topic}}"

_FULL_IN: Final = "By the rate of the last ten minutes; infinite when the store does not grow."
_UNANSWERED: Final = most("ternmq_unanswered_sends_bytes", NODE, "node_id")
_REPLICAS_BEHIND: Final = {
    "{{node_id}} {{replica}}": most("ternmq_replica_behind_bytes", NODE, "node_id, replica")
}

_CLUSTER: Final = Board(
    name="cluster",
    title="TernMQ / Cluster",
    variables=[_CLUSTER_CHOICE, _NODE_CHOICE],
    rows={
        "Health": [
            stat(
                "Brokers",
                "short",
                f"sum(max by (cluster) (ternmq_nameserver_brokers{{{_CLUSTER_ALONE}}}))",
                "Masters and slaves that a NameServer knows.",
            ),
            stat(
                "Masters",
                "short",
                f"sum(ternmq_broker_is_master{{{NODE}}})",
                "Brokers that accept messages now.",
            ),
            stat(
                "Without master",
                "short",
                f"count(max by (cluster, broker) ({_WITHOUT_MASTER})) or vector(0)",
                "Names of brokers whose members lack a master: 0 is good.",
            ),
            stat("Topics", "short", f"max(rocketmq_topic_number{{{NODE}}})"),
            stat("Groups", "short", f"max(rocketmq_consumer_group_number{{{NODE}}})"),
            stat(
                "Oldest lag",
                "s",
                f"{longest_lag(_NODE_TRAFFIC, '')} or vector(0)",
                "Age of the oldest message that waits for a group.",
            ),
            stat(
                "Disk full in",
                "s",
                f"min(ternmq_storage_time_to_full_seconds{{{NODE}}})",
                _FULL_IN,
            ),
            stat(
                "Hidden series",
                "short",
                f"sum(ternmq_metrics_hidden_series{{{NODE}}}) or vector(0)",
                "Series above metrics.series_max, summed under `other`: 0 is good.",
            ),
        ],
        "Traffic": [
            curves(
                "Messages stored",
                "cps",
                {_BY_NODE: rate("rocketmq_messages_in_total", _NODE_TRAFFIC, "node_id")},
            ),
            curves(
                "Messages read",
                "cps",
                {_BY_NODE: rate("rocketmq_messages_out_total", _NODE_TRAFFIC, "node_id")},
            ),
            curves(
                "Bytes stored and read",
                "Bps",
                {
                    "in {{node_id}}": rate("rocketmq_throughput_in_total", NODE, "node_id"),
                    "out {{node_id}}": rate("rocketmq_throughput_out_total", NODE, "node_id"),
                },
            ),
            curves(
                "Connections",
                "short",
                {
                    "producers {{node_id}}": sum_once(
                        "rocketmq_producer_connections", NODE, "node_id", "language, version"
                    ),
                    "consumers {{node_id}}": sum_once(
                        "rocketmq_consumer_connections",
                        NODE,
                        "node_id",
                        "consumer_group, language, version",
                    ),
                },
            ),
        ],
        "Requests": [
            curves(
                "Latency of requests, 99 %",
                "ms",
                {
                    "{{node_type}} {{request_code}}": quantile(
                        0.99,
                        "rocketmq_rpc_latency_milliseconds",
                        'node_id=~"$node",is_long_polling="false"',
                        "node_type, request_code",
                    )
                },
                "Without those that wait for messages.",
            ),
            curves(
                "Requests by answer",
                "reqps",
                {
                    "{{node_type}} {{response_code}}": rate(
                        "rocketmq_rpc_latency_milliseconds_count",
                        'node_id=~"$node"',
                        "node_type, response_code",
                    )
                },
            ),
        ],
        "Limits": [
            curves(
                "Bytes of sends without an answer",
                "decbytes",
                {_BY_NODE: _UNANSWERED},
                "At broker.unanswered_max_bytes a broker refuses sends as SYSTEM_BUSY.",
            ),
            curves(
                "Connections and calls that the port refused",
                "cps",
                {
                    "{{node_type}} {{limit}}": rate(
                        "ternmq_port_limits_total", 'node_id=~"$node"', "node_type, limit"
                    )
                },
                "By the exceeded limit of the section `network`.",
            ),
        ],
        "Processes": [
            curves(
                "Pause of the event loop, 99 %",
                "s",
                {
                    _BY_PROCESS: quantile(
                        0.99,
                        "ternmq_loop_pause_seconds",
                        'node_id=~"$node"',
                        "node_type, node_id, instance",
                    )
                },
                "Above 0.2 s every answer of this process is late.",
            ),
            curves(
                "Processor",
                "percentunit",
                {_BY_PROCESS: of_process("rate(process_cpu_seconds_total[$__rate_interval])")},
                "1 = one core.",
            ),
            curves(
                "Resident memory",
                "decbytes",
                {_BY_PROCESS: of_process("process_resident_memory_bytes")},
            ),
            curves(
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
            curves(
                "Messages stored",
                "cps",
                {_BY_TOPIC: rate("rocketmq_messages_in_total", _TRAFFIC, "topic")},
            ),
            curves(
                "Messages read by group",
                "cps",
                {_BY_GROUP: rate("rocketmq_messages_out_total", _TRAFFIC, "consumer_group, topic")},
            ),
            curves(
                "Bytes stored",
                "Bps",
                {_BY_TOPIC: rate("rocketmq_throughput_in_total", _TRAFFIC, "topic")},
            ),
            curves(
                "Mean size of messages",
                "decbytes",
                {_BY_TOPIC: mean("rocketmq_message_size", _TRAFFIC, "topic")},
            ),
            curves(
                "Messages stored by kind",
                "cps",
                {"{{message_type}}": rate("rocketmq_messages_in_total", _TRAFFIC, "message_type")},
            ),
            curves(
                "Messages behind, all groups",
                "short",
                {_BY_GROUP: sum_once(_LAG, _TRAFFIC, "consumer_group, topic")},
            ),
        ],
        "Transactions": [
            curves(
                "Open half messages",
                "short",
                {_BY_TOPIC: sum_once("rocketmq_half_messages", TOPIC, "topic")},
                "Messages whose producer has not decided. A rising curve means lost decisions.",
            ),
            curves(
                "Decisions and check-backs",
                "cps",
                {
                    "commits {{topic}}": rate("rocketmq_commit_messages_total", TOPIC, "topic"),
                    "rollbacks {{topic}}": rate("rocketmq_rollback_messages_total", TOPIC, "topic"),
                    "check-backs {{topic}}": rate(
                        "ternmq_transaction_checks_total", TOPIC, "topic"
                    ),
                },
            ),
            curves(
                "Time until the commit, 99 %",
                "ms",
                {
                    _BY_TOPIC: quantile(
                        0.99, "rocketmq_finish_message_latency_milliseconds", TOPIC, "topic"
                    )
                },
            ),
        ],
        "Delayed messages": [
            curves(
                "Mean delay of messages",
                "s",
                {_BY_TOPIC: mean("rocketmq_delay_message_latency_seconds", TOPIC, "topic")},
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
            curves(
                "Lag in seconds",
                "s",
                {_BY_GROUP: longest_lag(GROUP, "consumer_group, topic")},
                "Age of the oldest message behind a committed offset, in the worst queue.",
            ),
            curves(
                "Lag in messages",
                "short",
                {_BY_GROUP: sum_once(_LAG, GROUP, "consumer_group, topic")},
            ),
            curves(
                "Ten worst queues",
                "s",
                {
                    "{{consumer_group}} {{topic}} {{node_id}} {{queue_id}}": "topk(10, "
                    + longest_lag(GROUP, "consumer_group, topic, node_id, queue_id")
                    + ")"
                },
                "One queue alone: its consumer hangs, or an ordered message fails again and again.",
            ),
            curves(
                "Oldest unacknowledged message",
                "s",
                {
                    _BY_GROUP: most(
                        "ternmq_consumer_oldest_unacknowledged_seconds",
                        GROUP,
                        "consumer_group, topic",
                    )
                },
                "Got by a consumer, and not committed: listeners that hang.",
            ),
        ],
        "Progress": [
            curves(
                "Messages read",
                "cps",
                {_BY_GROUP: rate("rocketmq_messages_out_total", GROUP, "consumer_group, topic")},
            ),
            curves(
                "In flight and ready",
                "short",
                {
                    f"in flight {_BY_GROUP}": sum_once(
                        "rocketmq_consumer_inflight_messages", GROUP, "consumer_group, topic"
                    ),
                    f"ready {_BY_GROUP}": sum_once(
                        "rocketmq_consumer_ready_messages", GROUP, "consumer_group, topic"
                    ),
                },
                "Ready messages were not got yet; those in flight wait for their listeners.",
            ),
            curves(
                "Dead letters",
                "cps",
                {
                    _BY_GROUP: rate(
                        "rocketmq_send_to_dlq_messages_total", GROUP, "consumer_group, topic"
                    )
                },
                "Messages that failed in each of their attempts: `ternmq dlq show GROUP`.",
            ),
            curves(
                "Members",
                "short",
                {
                    "{{consumer_group}} {{node_id}}": sum_once(
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
            curves(
                "Size of the store",
                "decbytes",
                {_BY_STORE: f"rocketmq_storage_size_bytes{{{NODE}}}"},
            ),
            curves(
                "Free bytes",
                "decbytes",
                {_BY_STORE: f"ternmq_storage_free_bytes{{{NODE}}}"},
                "Without those that the store leaves free: at 0 it refuses messages.",
            ),
            curves(
                "Disk full in",
                "s",
                {_BY_STORE: f"ternmq_storage_time_to_full_seconds{{{NODE}}}"},
                _FULL_IN,
            ),
            curves(
                "Age of the oldest message",
                "ms",
                {_BY_STORE: f"rocketmq_storage_message_reserve_time_milliseconds{{{NODE}}}"},
                "What a group can still read: retention deletes older messages.",
            ),
        ],
        "Durability": [
            curves(
                "Bytes not synced",
                "decbytes",
                {_BY_STORE: f"rocketmq_storage_flush_behind_bytes{{{NODE}}}"},
                "Lost with the machine's power, unless a slave has them.",
            ),
            curves(
                "Bytes not dispatched",
                "decbytes",
                {_BY_STORE: f"rocketmq_storage_dispatch_behind_bytes{{{NODE}}}"},
                "Stored, and not visible to consumers yet.",
            ),
            curves(
                "Bytes that slaves lack",
                "decbytes",
                _REPLICAS_BEHIND,
            ),
            curves(
                "Bytes stored",
                "Bps",
                {_BY_NODE: rate("rocketmq_throughput_in_total", NODE, "node_id")},
            ),
        ],
        "Timer": [
            curves(
                "Delayed and timed messages",
                "short",
                {
                    "{{node_id}} {{topic}}": sum_once(
                        "rocketmq_timing_messages", NODE, "node_id, topic"
                    )
                },
                "By the system's topic in which they wait.",
            ),
            curves(
                "Messages in the timer, by time until due",
                "short",
                {
                    "{{node_id}} within {{timer_bound_s}} s": most(
                        "rocketmq_timer_message_snapshot", NODE, "node_id, timer_bound_s"
                    )
                },
            ),
            curves(
                "Lateness of the timer",
                "ms",
                {
                    "into the timer {{node_id}}": most(
                        "rocketmq_timer_enqueue_latency_milliseconds", NODE, "node_id"
                    ),
                    "out of it {{node_id}}": most(
                        "rocketmq_timer_dequeue_latency_milliseconds", NODE, "node_id"
                    ),
                },
            ),
        ],
    },
)

BOARDS: Final = (_CLUSTER, _TOPIC, _GROUP, _STORE)
"""All boards, the widest view first."""
