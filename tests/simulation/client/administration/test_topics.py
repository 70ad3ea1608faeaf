"""Creating topics on every broker of a cluster, in memory on virtual time."""

import pytest

from ternmq_client.admin import AdminClient
from ternmq_client.config import ClientConfig
from ternmq_model.errors import IllegalName, PermissionRefused, TransportError, Unreachable
from ternmq_model.route import TOPICS_AT_ONCE_MAX, TopicConfig
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster
from tests.support.virtual_time import run_in_virtual_time


def admin_of(cluster: SimulatedCluster) -> AdminClient:
    return AdminClient(ClientConfig(nameservers=(NAMESERVER,)), env=cluster.environment("tool"))


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
            assert all(isinstance(each, PermissionRefused) for each in found[0].errors.values())
            assert (found[1].brokers, found[1].errors) == (("a", "b"), {})

    run_in_virtual_time(main())


def test_illegal_name_creates_no_topic() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, admin_of(cluster) as admin:
            with pytest.raises(IllegalName, match="no good"):
                await admin.create_topics([TopicConfig("A", 1, 1), TopicConfig("no good", 1, 1)])
            assert "A" not in await admin.topics()

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
