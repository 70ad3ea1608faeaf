"""Metrics that every service has: its version, its RPCs, and the limits of its port."""

from typing import Final

from ternmq_model.version import __version__
from ternmq_remoting.connection_limits import PortLimit
from ternmq_remoting.rpc import Listener
from ternmq_remoting.rpc_latency import RpcLatencies
from ternmq_runtime.metrics.families import MetricFamily, MetricKind
from ternmq_runtime.metrics.port import Scrape
from ternmq_runtime.metrics.scrape import LabelValues

BUILD_INFO: Final = MetricFamily(
    name="ternmq_build_info",
    kind=MetricKind.GAUGE,
    help="1, with the version of the service.",
    labels=("version",),
)

PORT_LIMITS: Final = MetricFamily(
    name="ternmq_port_limits",
    kind=MetricKind.COUNTER,
    help="Closed connections and refused calls of the port, by the exceeded limit.",
    labels=("limit",),
)


def add_service(
    scrape: Scrape,
    node: LabelValues,
    latencies: RpcLatencies | None,
    listener: Listener | None,
) -> None:
    """Add the metrics of one service.

    Args:
        scrape: Present scrape.
        node: Labels of the service.
        latencies: Times of its RPCs; None = they are not measured.
        listener: Port of the service; None = it has none yet.
    """
    scrape.add(BUILD_INFO, (*node, __version__), 1)
    if listener is not None:
        for limit in PortLimit:
            scrape.add(PORT_LIMITS, (*node, limit.value), listener.counts.get(limit, 0))
    if latencies is not None:
        latencies.collect(scrape, node)
