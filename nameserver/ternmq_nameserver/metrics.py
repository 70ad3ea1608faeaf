"""Metrics of the routes of a NameServer."""

from collections import Counter
from typing import Final

from ternmq_model.route import MASTER_ID
from ternmq_nameserver.route_table import RouteTable
from ternmq_runtime.metrics.families import MetricFamily, MetricKind
from ternmq_runtime.metrics.port import Scrape
from ternmq_runtime.metrics.scrape import LabelValues

BROKERS: Final = MetricFamily(
    name="ternmq_nameserver_brokers",
    kind=MetricKind.GAUGE,
    help="Registered brokers of the cluster, masters and slaves.",
)
TOPICS: Final = MetricFamily(
    name="ternmq_nameserver_topics",
    kind=MetricKind.GAUGE,
    help="Topics of the registered brokers of all clusters.",
)
WITHOUT_MASTER: Final = MetricFamily(
    name="ternmq_nameserver_without_master",
    kind=MetricKind.GAUGE,
    help="1 for a broker name of which slaves are registered, and no master.",
    labels=("broker",),
)


def add_routes(scrape: Scrape, node: LabelValues, routes: RouteTable) -> None:
    """Add the metrics of a route table, without a rest: its brokers may change meanwhile.

    Args:
        scrape: Present scrape.
        node: Labels of the NameServer; series of brokers have the cluster of these.
        routes: Table of routes.
    """
    brokers: Counter[str] = Counter()
    _, *place = node
    for cluster, name, members in routes.members():
        brokers[cluster] += len(members)
        if MASTER_ID not in members:
            scrape.add(WITHOUT_MASTER, (cluster, *place, name), 1)
    for cluster, count in brokers.items():
        scrape.add(BROKERS, (cluster, *place), count)
    scrape.add(TOPICS, node, routes.topic_count)
