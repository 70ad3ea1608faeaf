"""Creating topics on every broker of a cluster, in memory on virtual time."""

import re
from collections.abc import Callable, Sequence

import pytest

from ternmq_broker.admin.service import AdminService
from ternmq_client.admin.admin_client import AdminClient
from ternmq_model.errors import (
    IllegalName,
    PermissionRefused,
    TransportError,
    Unreachable,
    UsageError,
)
from ternmq_model.route import TOPICS_AT_ONCE_MAX, Permission, TopicConfig
from ternmq_remoting.rpc import Handler
from ternmq_remoting.service_methods import PUT_TOPICS
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster


def admin_of(cluster: SimulatedCluster) -> AdminClient:
    return AdminClient(nameserver=NAMESERVER, env=cluster.environment("tool"))


def without_lists(
    handlers: Callable[[AdminService], Sequence[Handler]],
) -> Callable[[AdminService], Sequence[Handler]]:
    """Return the handlers of a broker of a version before there were lists."""
    return lambda service: [each for each in handlers(service) if each.rpc != PUT_TOPICS]


def test_topics_of_a_long_list_are_created_on_every_broker() -> None:
    async def main() -> None:
        count = TOPICS_AT_ONCE_MAX + 3
        async with simulated_cluster() as cluster, admin_of(cluster) as admin:
            names = [f"topic-{number}" for number in range(count)]
            found = await admin.create_topics([TopicConfig(name, 1, 1) for name in names])
            assert [each.topic for each in found] == names
            assert {each.brokers for each in found} == {("a", "b")}
            assert not any(each.errors for each in found)
            assert set(await admin.topics()) >= set(names)
            (again,) = await admin.create_topics([TopicConfig(names[0], 2, 2)], brokers=["b"])
            assert again.brokers == ("b",)
            described = await admin.describe_topic(names[0])
            assert [config.read_queues for _, config in described.configs] == [1, 2]
            assert await admin.create_topics([]) == []

    run_in_virtual_time(main())


def test_refused_topic_stops_no_other() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, admin_of(cluster) as admin:
            found = await admin.create_topics([TopicConfig("TBW102", 1, 1), TopicConfig("A", 1, 1)])
            assert found[0].brokers == ()
            assert list(found[0].errors) == ["a", "b"]
            refusals = {name: str(each) for name, each in found[0].errors.items()}
            assert refusals["a"].startswith("a:10911: topic 'TBW102'"), "not its name once more"
            assert all(isinstance(each, PermissionRefused) for each in found[0].errors.values())
            assert (found[1].brokers, found[1].errors) == (("a", "b"), {})

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (TopicConfig("no good", 1, 1), "no good"),
        (TopicConfig("half \ud800", 1, 1), "half"),
        (TopicConfig("B", 1 << 40, 1), "1099511627776 read queues"),
        (TopicConfig("B", 1, -1), "-1 write queues"),
        (TopicConfig("B", 1, 1, retention_ms=1 << 70), "retention"),
        (TopicConfig("B", 1, 1, sys_flag=1 << 40), "topic 'B'"),
        (TopicConfig("B", 1, 1, Permission(1 << 40)), "topic 'B'"),
    ],
)
def test_illegal_topic_of_a_list_is_refused_alone(bad: TopicConfig, reason: str) -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, admin_of(cluster) as admin:
            good = [TopicConfig(f"topic-{each}", 1, 1) for each in range(TOPICS_AT_ONCE_MAX)]
            found = await admin.create_topics([*good, bad, TopicConfig("last", 1, 1)])
            assert [each.topic for each in found] == [
                *(each.topic for each in good),
                bad.topic,
                "last",
            ]
            refused = found.pop(-2)
            assert {each.brokers for each in found} == {("a", "b")}
            assert refused.brokers == ()
            assert list(refused.errors) == ["a", "b"]
            assert {type(each) for each in refused.errors.values()} <= {UsageError, IllegalName}
            assert reason in str(refused.errors["a"])
            with pytest.raises(UsageError, match=re.escape(reason)):
                await admin.create_topic(bad)

    run_in_virtual_time(main())


@pytest.mark.parametrize("dead", [False, True])
def test_broker_that_knows_no_lists_creates_one_topic_a_call(
    monkeypatch: pytest.MonkeyPatch, *, dead: bool
) -> None:
    monkeypatch.setattr(AdminService, "handlers", without_lists(AdminService.handlers))

    async def main() -> None:
        async with simulated_cluster() as cluster, admin_of(cluster) as admin:
            if dead:
                cluster.kill("b")
            names = ("a",) if dead else ("a", "b")
            configs = [TopicConfig(name, 1, 1) for name in ("A", "TBW102", "B")]
            found = await admin.create_topics(configs)
            assert [each.brokers for each in found] == [names, (), names]
            assert isinstance(found[1].errors["a"], PermissionRefused)
            assert set(await admin.topics()) >= {"A", "B"}

    run_in_virtual_time(main())


def test_dead_broker_is_named_for_each_topic_it_lacks() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, admin_of(cluster) as admin:
            cluster.kill("b")
            found = await admin.create_topics([TopicConfig("A", 1, 1), TopicConfig("B", 1, 1)])
            assert [each.brokers for each in found] == [("a",), ("a",)]
            for each in found:
                assert list(each.errors) == ["b"]
                assert isinstance(each.errors["b"], TransportError)
            assert isinstance(found[0].errors["b"], Unreachable)

    run_in_virtual_time(main())
