"""What operators can see and change while the master of a broker name is away."""

import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.config import ClientConfig
from ternmq_model.errors import RefusedError, Unreachable
from ternmq_model.queue import MessageQueue
from ternmq_model.route import TopicConfig
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.numbered import TOPIC, numbered
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster
from tests.support.simulated_replicas import start_slave


def admin_of(cluster: SimulatedCluster) -> AdminClient:
    config = ClientConfig(nameservers=(NAMESERVER,))
    return AdminClient(client=config, env=cluster.environment("admin"))


@pytest.mark.parametrize("is_known_to_be_away", [True, False])
def test_slave_answers_operators_while_master_is_away(
    is_known_to_be_away: bool,
) -> None:
    async def main() -> None:
        async with numbered() as (cluster, messages), admin_of(cluster) as admin:
            await messages.send(10)
            await start_slave(cluster)
            if is_known_to_be_away:
                await cluster.stop("a")
            else:
                cluster.network.partition("admin", "a")
            described = await admin.describe_topic(TOPIC)
            assert [each.max_offset for each in described.queues] == [5, 5]
            assert [name for name, _ in await admin.offsets_at(TOPIC, 0)] == [
                MessageQueue(TOPIC, "a", 0),
                MessageQueue(TOPIC, "a", 1),
            ]
            found = await admin.messages_at(MessageQueue(TOPIC, "a", 0), 3)
            assert found[0].body == b"6"
            by_key = await admin.query_messages(TOPIC, found[0].message_id)
            assert [each.body for each in by_key] == [b"6"]
            assert await admin.groups() is not None
            (data,) = await admin.brokers()
            assert (await admin.broker_status(data)).broker_name == "a"
            assert await admin.settings("a")

    run_in_virtual_time(main())


def test_changes_without_master_fail_and_say_why() -> None:
    async def main() -> None:
        async with numbered() as (cluster, _), admin_of(cluster) as admin:
            await start_slave(cluster)
            await cluster.stop("a")
            why = r"broker a has no master at present \(slaves: 1 at a-1:10911"
            with pytest.raises(Unreachable, match=why):
                await admin.create_topic(TopicConfig("B"))
            with pytest.raises(Unreachable, match=why):
                await admin.delete_topic(TOPIC)
            with pytest.raises(Unreachable, match="until it returns or a slave is promoted"):
                await admin.update_settings("a", {"broker.pull_wait_ms": "1000"})
            with pytest.raises(RefusedError, match="b: no such broker is registered"):
                await admin.settings("b")
            await cluster.start("a")
            await admin.create_topic(TopicConfig("B"))

    run_in_virtual_time(main())
