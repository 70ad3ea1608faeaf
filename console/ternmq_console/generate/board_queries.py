"""Expressions of Prometheus for boards and rules. Pure.

A selector is what stands between braces: `topic="orders"`. A master and its slave have the same
labels but for the target's, so the gauges of both become one by `max by`.
"""

from typing import Final

NO_SYSTEM: Final = 'is_system="false"'
"""Selector without topics and groups of the system, of metrics with this label."""


def rate(counter: str, where: str, by: str) -> str:
    """Return the increase of a counter a second.

    Args:
        counter: Name of the metric.
        where: Selector of its series.
        by: Labels that stay, separated by `, `.
    """
    return f"sum by ({by}) (rate({counter}{{{where}}}[$__rate_interval]))"


def sum_once(gauge: str, where: str, by: str, series: str = "") -> str:
    """Return a sum of series that master and slave both show: each counts once.

    Args:
        gauge: Name of the metric.
        where: Selector of its series.
        by: Labels that stay, separated by `, `.
        series: Further labels by which series of one node differ.
    """
    labels = ", ".join(dict.fromkeys(f"cluster, node_id, {by}, {series}".strip(", ").split(", ")))
    return f"sum by ({by}) (max by ({labels}) ({gauge}{{{where}}}))"


def most(gauge: str, where: str, by: str) -> str:
    """Return the largest value of a gauge. The arguments are those of `rate`."""
    return f"max by ({by}) ({gauge}{{{where}}})"


def longest_lag(where: str, by: str) -> str:
    """Return the largest lag of a queue in seconds, as masters show it.

    A slave that is cut off keeps old offsets, whose lag grows while no group is behind.

    Args:
        where: Selector of its series.
        by: Labels that stay, separated by `, `.
    """
    lags = f"ternmq_consumer_queue_lag_seconds{{{where}}}"
    return f"max by ({by}) ({lags} and on (job, instance, node_id) ternmq_broker_is_master == 1)"


def quantile(share: float, histogram: str, where: str, by: str) -> str:
    """Return the value below which a share of the observations is, between two bounds."""
    return f"histogram_quantile({share}, {rate(f'{histogram}_bucket', where, f'{by}, le')})"


def mean(histogram: str, where: str, by: str) -> str:
    """Return the mean of the observations of a histogram; without any there is none."""
    total, count = (rate(f"{histogram}_{part}", where, by) for part in ("sum", "count"))
    return f"{total} / {count}"


def of_process(expression: str) -> str:
    """Return metrics of a process, which have the target's labels alone, with those of its node."""
    names = 'max by (job, instance, node_type, node_id) (ternmq_build_info{node_id=~"$node"})'
    return f"{expression} * on (job, instance) group_left (node_type, node_id) {names}"
