from types import SimpleNamespace
from typing import Any

from ternmq_model.version import __version__
from ternmq_remoting.connection_limits import PortLimit
from ternmq_remoting.rpc_latency import RpcLatencies
from ternmq_remoting.service_metrics import add_service
from tests.support.metrics_text import samples_of

NODE = ("c", "broker", "b")


def test_service_shows_its_version_and_each_limit_of_its_port() -> None:
    listener: Any = SimpleNamespace(counts={PortLimit.STREAMS: 3})
    latencies = RpcLatencies(lambda: 0)
    found = samples_of(lambda scrape: add_service(scrape, NODE, latencies, listener))
    build, *limits = found
    assert (build.name, build.labels["version"], build.value) == (
        "ternmq_build_info",
        __version__,
        1,
    )
    assert {each.name for each in limits} == {"ternmq_port_limits_total"}
    assert {each.labels["limit"]: each.value for each in limits} == {
        each.value: 3 if each is PortLimit.STREAMS else 0 for each in PortLimit
    }


def test_service_without_a_port_shows_its_version() -> None:
    (build,) = samples_of(lambda scrape: add_service(scrape, NODE, None, None))
    assert [build.labels[name] for name in ("cluster", "node_type", "node_id")] == [*NODE]
