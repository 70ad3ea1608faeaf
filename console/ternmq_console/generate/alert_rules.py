"""Alert rules for Prometheus, and their thresholds. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ternmq_console.generate.board_queries import NO_SYSTEM, longest_lag
from ternmq_model.arguments import check_range
from ternmq_model.printable_text import printable_json

RUNBOOKS: Final = "docs/howto/observe.md"
"""Page with a heading for each alert."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertThresholds:
    """Values above or below which the rules fire.

    Raises:
        ConfigError: A value is negative; names it.
    """

    lag_s: float = 300.0
    """Age of the oldest message that waits for a group."""

    flush_behind_bytes: int = 64 << 20
    """Bytes of a commit log that are not synced."""

    slave_behind_bytes: int = 64 << 20
    """Bytes that a slave lacks."""

    disk_full_s: float = 14_400.0
    """Time until a disk is full, at the rate of the last ten minutes."""

    disk_free_bytes: int = 10 << 30
    """Free bytes of a disk, without those that the store leaves free."""

    check_backs: int = 100
    """Check-backs for one topic in ten minutes."""

    loop_pause_s: float = 0.2
    """Pause of an event loop that one call of a hundred meets."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            check_range(name, getattr(self, name), 0, float("inf"))


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """Rule of Prometheus that fires while `value` meets `condition`."""

    name: str
    value: str
    """Expression of the watched value."""

    condition: str
    """Comparison behind the value; empty = the value exists only in trouble."""

    hold: str
    """Time for which it must be true: `for` of Prometheus."""

    severity: str
    """`critical` = wake somebody, `warning` = look at it by day."""

    summary: str
    description: str

    @property
    def expression(self) -> str:
        """Expression of the rule."""
        return f"{self.value} {self.condition}".strip()


def alert_rules(thresholds: AlertThresholds, job: str) -> list[AlertRule]:
    """Return all rules, what wakes somebody first.

    Args:
        thresholds: Values at which the rules fire.
        job: Name of the scrape job of all brokers and NameServers.
    """
    return [*_outages(job), *_consumption(thresholds), *_stores(thresholds), *_limits(thresholds)]


def _outages(job: str) -> list[AlertRule]:
    name = printable_json(job)
    return [
        AlertRule(
            name="TernMQProcessDown",
            value=f"up{{job={name}}}",
            condition="== 0",
            hold="1m",
            severity="critical",
            summary="{{ $labels.instance }} does not answer",
            description="Prometheus has not reached the metrics port of a broker or NameServer.",
        ),
        AlertRule(
            name="TernMQNotScraped",
            value=f"absent(up{{job={name}}})",
            condition="",
            hold="5m",
            severity="critical",
            summary="Prometheus has no target of TernMQ",
            description=f"No target has the job {job}, so no other alert can fire.",
        ),
        AlertRule(
            name="TernMQNoMaster",
            value="max by (cluster, broker) (ternmq_nameserver_without_master)",
            condition="> 0",
            hold="1m",
            severity="critical",
            summary="{{ $labels.broker }} has no master",
            description="The members of this name accept no messages until one is the master.",
        ),
    ]


def _consumption(thresholds: AlertThresholds) -> list[AlertRule]:
    dead = "rocketmq_send_to_dlq_messages_total"
    by = "cluster, consumer_group, topic"
    checks = "increase(ternmq_transaction_checks_total[10m])"
    return [
        AlertRule(
            name="TernMQConsumerLag",
            value=longest_lag(NO_SYSTEM, by),
            condition=f"> {thresholds.lag_s:g}",
            hold="5m",
            severity="critical",
            summary="{{ $labels.consumer_group }} is behind on {{ $labels.topic }}",
            description="The oldest waiting message is {{ $value | humanizeDuration }} old.",
        ),
        AlertRule(
            name="TernMQDeadLetters",
            # The first dead letter makes the series, which has no increase then. A broker that was
            # not scraped ten minutes ago is another reason for a new series.
            value=f"sum by ({by}) (increase({dead}[10m]) > 0 or ({dead} unless {dead} offset 10m)"
            " and on (job, instance) ternmq_build_info offset 10m)",
            condition="> 0",
            hold="1m",
            severity="warning",
            summary="{{ $labels.consumer_group }} has new dead letters of {{ $labels.topic }}",
            description="About {{ $value | humanize }} messages failed in each of their attempts"
            " in the last ten minutes.",
        ),
        AlertRule(
            name="TernMQCheckBacks",
            value=f"sum by (cluster, topic) ({checks})",
            condition=f"> {thresholds.check_backs}",
            hold="10m",
            severity="warning",
            summary="Producers of {{ $labels.topic }} lose their decisions",
            description="{{ $value | humanize }} times in ten minutes a broker had to ask for the"
            " decision of a transaction.",
        ),
    ]


def _stores(thresholds: AlertThresholds) -> list[AlertRule]:
    who = "{{ $labels.node_id }} ({{ $labels.instance }})"
    return [
        AlertRule(
            name="TernMQDiskFullSoon",
            value="ternmq_storage_time_to_full_seconds",
            condition=f"< {thresholds.disk_full_s:g}",
            hold="10m",
            severity="critical",
            summary=f"The disk of {who} will be full soon",
            description="At the rate of the last ten minutes it is full in"
            " {{ $value | humanizeDuration }}.",
        ),
        AlertRule(
            name="TernMQDiskLow",
            value="ternmq_storage_free_bytes",
            condition=f"< {thresholds.disk_free_bytes}",
            hold="5m",
            severity="critical",
            summary=f"The disk of {who} is nearly full",
            description="It refuses messages after {{ $value | humanize1024 }}B more.",
        ),
        AlertRule(
            name="TernMQFlushBehind",
            value="rocketmq_storage_flush_behind_bytes",
            condition=f"> {thresholds.flush_behind_bytes}",
            hold="2m",
            severity="critical",
            summary=f"The disk of {who} does not keep up",
            description="{{ $value | humanize1024 }}B of acknowledged or waiting messages are"
            " only in memory.",
        ),
        AlertRule(
            name="TernMQSlaveBehind",
            value="max by (cluster, node_id, replica) (ternmq_replica_behind_bytes)",
            condition=f"> {thresholds.slave_behind_bytes}",
            hold="5m",
            severity="warning",
            summary="A slave of {{ $labels.node_id }} is behind",
            description="Replica {{ $labels.replica }} lacks {{ $value | humanize1024 }}B.",
        ),
    ]


def _limits(thresholds: AlertThresholds) -> list[AlertRule]:
    buckets = "rate(ternmq_loop_pause_seconds_bucket[5m])"
    who = "{{ $labels.node_type }} {{ $labels.node_id }} ({{ $labels.instance }})"
    return [
        AlertRule(
            name="TernMQLoopPause",
            value="histogram_quantile(0.99, sum by (cluster, node_type, node_id, instance, le)"
            f" ({buckets}))",
            condition=f"> {thresholds.loop_pause_s:g}",
            hold="10m",
            severity="warning",
            summary=f"{who} is overloaded",
            description="One call of a hundred waits {{ $value | humanizeDuration }} for its turn.",
        ),
        AlertRule(
            name="TernMQHiddenSeries",
            value="ternmq_metrics_hidden_series",
            condition="> 0",
            hold="10m",
            severity="warning",
            summary=f"{who} hides series of {{{{ $labels.family }}}}",
            description="{{ $value }} series above metrics.series_max are summed under other, so"
            " alerts by topic and group miss them.",
        ),
    ]


def rules_text(rules: Sequence[AlertRule], runbooks: str) -> str:
    """Return a file of rules, in YAML with texts in the quotes of JSON.

    Args:
        rules: Rules.
        runbooks: Address of the page with a heading for each alert.
    """
    lines = ["groups:", "  - name: ternmq", "    rules:"]
    for rule in rules:
        link = f"{runbooks}#{rule.name.lower()}"
        lines += [
            f"      - alert: {rule.name}",
            f"        expr: {printable_json(rule.expression)}",
            f"        for: {rule.hold}",
            f"        labels: {{severity: {rule.severity}}}",
            "        annotations:",
            f"          summary: {printable_json(rule.summary)}",
            f"          description: {printable_json(rule.description)}",
            f"          runbook_url: {printable_json(link)}",
        ]
    return "\n".join(lines) + "\n"
