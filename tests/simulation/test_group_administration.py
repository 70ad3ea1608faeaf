"""Consumer groups over a cluster: settings, resets, clones and deletion on every broker."""

from dataclasses import replace

import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_model.errors import GroupNotFound, TopicNotFound, UsageError
from ternmq_model.group_settings import GroupSettings
from ternmq_model.queue import MessageQueue
from ternmq_model.route import TopicConfig
from ternmq_testing.time.virtual_time import EPOCH_MS, run_in_virtual_time
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster

SETTINGS = GroupSettings("G", retries_max=3, retry_queues=2, consume_from_min_enabled=True)


def admin_of(cluster: SimulatedCluster) -> AdminClient:
    return AdminClient(nameserver=NAMESERVER, env=cluster.environment("tool"))


async def filled(cluster: SimulatedCluster, admin: AdminClient) -> None:
    await admin.create_topic(TopicConfig("orders", 1, 1))
    async with cluster.producer() as producer:
        for _ in range(20):
            await cluster.send(producer, "orders")


def test_settings_are_on_every_broker_until_the_group_is_deleted() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, admin_of(cluster) as admin:
            assert await admin.put_group(SETTINGS) == ["a", "b"]
            changed = replace(SETTINGS, retries_max=5)
            assert await admin.put_group(changed, brokers=["b"]) == ["b"]
            described = await admin.describe_group("G")
            assert described.settings == (("a", SETTINGS), ("b", changed))
            assert await admin.groups() == ["G"]
            assert await admin.delete_group("G") == ["a", "b"]
            with pytest.raises(GroupNotFound):
                await admin.delete_group("G")

    run_in_virtual_time(main())


def test_resets_and_clones_cover_the_cluster() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, admin_of(cluster) as admin:
            await filled(cluster, admin)
            await admin.put_group(SETTINGS)
            done = await admin.reset_offsets("G", "orders", last=True)
            assert [each.queue.broker_name for each in done.changes] == ["a", "b"]
            assert sum(each.after for each in done.changes) == 20
            assert {each.before for each in done.changes} == {-1}
            one = MessageQueue("orders", "b", 0)
            dry = await admin.reset_offsets("G", "orders", first=True, queues=[one], dry_run=True)
            assert [(each.queue, each.after) for each in dry.changes] == [(one, 0)]
            done = await admin.reset_offsets("G", "orders", at_ms=EPOCH_MS)
            assert [each.after for each in done.changes] == [0, 0]
            await admin.reset_offsets("G", "orders", offset=3)
            cloned = await admin.clone_offsets("G", "H")
            assert [(each.before, each.after) for each in cloned] == [(-1, 3), (-1, 3)]
            progress = (await admin.describe_group("G")).progress
            assert [each.version for each in progress] == [3, 3]

    run_in_virtual_time(main())


def test_illegal_resets_and_clones_are_refused() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, admin_of(cluster) as admin:
            await filled(cluster, admin)
            with pytest.raises(GroupNotFound):
                await admin.reset_offsets("G", "orders", first=True)
            await admin.put_group(SETTINGS)
            with pytest.raises(TopicNotFound):
                await admin.reset_offsets("G", "bills", first=True)
            with pytest.raises(UsageError, match="exactly one"):
                await admin.reset_offsets("G", "orders", first=True, at_ms=5)
            with pytest.raises(UsageError, match="exactly one"):
                await admin.reset_offsets("G", "orders")
            with pytest.raises(GroupNotFound):
                await admin.clone_offsets("Unknown", "H")

    run_in_virtual_time(main())
