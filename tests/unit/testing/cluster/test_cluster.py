"""Names of a cluster, and their reference page."""

import inspect
import re

import ternmq.testing as testing
from tools.project import ROOT

PAGE = (ROOT / "docs/reference/testing.md").read_text()


def is_described(name: str) -> bool:
    return re.search(rf"[`. ]{name}\b[(`]", PAGE) is not None


def test_every_name_is_described() -> None:
    names = [name for name in vars(testing) if not name.startswith("_")]
    assert {"Cluster", "explore"} <= set(names)
    assert [name for name in names if not is_described(name)] == []


def test_every_method_and_argument_of_a_cluster_is_described() -> None:
    names = {*inspect.signature(testing.Cluster).parameters} - {"settings"}
    for kind in (
        testing.Cluster,
        testing.BlockingCluster,
        testing.BrokerHandle,
        testing.ClusterTestCase,
    ):
        names |= {name for name in vars(kind) if name[0].islower()}
    assert [name for name in sorted(names) if not is_described(name)] == []


def test_blocking_clusters_have_the_names_of_the_others_but_those_told() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if name[0].islower()}

    told = {name for name in ("run", "asynchronous") if f"`{name}" in PAGE}
    assert public(testing.BlockingCluster) - public(testing.Cluster) == told | {"close"}
    missing = public(testing.Cluster) - public(testing.BlockingCluster)
    assert missing == set(re.findall(r"^\| `(\w+)\S* \| of `Cluster`:", PAGE, re.MULTILINE))
