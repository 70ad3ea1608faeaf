"""Members of one group that subscribe differently: who is told, and who is refused."""

import asyncio
from collections.abc import Mapping

import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.config import ClientConfig
from ternmq_consumer.config import MessageModel, PushConsumerConfig
from ternmq_consumer.pull.pull_consumer import PullConsumer
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import RefusedError
from ternmq_model.response_code import ResponseCode
from ternmq_model.stored_message import StoredMessage
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster

DIFFER = "members of a group subscribe differently"
ALIKE = "members of a group subscribe alike again"


async def ignore(_message: StoredMessage) -> None:
    pass


def member(
    cluster: SimulatedCluster,
    host: str,
    topics: str | Mapping[str, str],
    config: PushConsumerConfig | None = None,
) -> PushConsumer:
    return PushConsumer(
        "g",
        topics,
        listener=ignore,
        nameserver=NAMESERVER,
        config=config,
        client=ClientConfig(host_name=host),
        env=cluster.environment(host),
    )


async def described(cluster: SimulatedCluster) -> tuple[str, ...]:
    config = ClientConfig(nameservers=(NAMESERVER,))
    async with AdminClient(client=config, env=cluster.environment("tool")) as admin:
        return (await admin.describe_group("g")).differences


def test_members_that_differ_are_each_told_once_a_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    def lines(start: str) -> list[str]:
        return [
            each.getMessage().partition("differences=")[2]
            for each in caplog.records
            if each.name == "ternmq_client.broker_session" and each.getMessage().startswith(start)
        ]

    async def main() -> None:
        async with simulated_cluster() as cluster:
            await cluster.put_topic("orders", 2)
            async with member(cluster, "x", {"orders": "eu || jp"}):
                async with member(cluster, "y", {"orders": "jp||eu"}):
                    await asyncio.sleep(60)
                assert not lines(DIFFER)
                async with member(cluster, "z", {"orders": "eu"}):
                    await asyncio.sleep(300)
                    told = lines(DIFFER)
                    assert len(told) == 2, "the first member and the second, whatever brokers say"
                    assert len(set(told)) == 1
                    assert "topic orders: 'eu || jp' (x@" in told[0]
                    assert "'eu' (z@" in told[0]
                    assert await described(cluster) == (told[0],)
                    await cluster.stop("a")
                    await cluster.start("a")
                    await asyncio.sleep(60)
                    assert len(lines(DIFFER)) == 2, "the same is no news"
                await asyncio.sleep(60)
                assert await described(cluster) == ()
                assert len(lines(ALIKE)) == 1
                config = PushConsumerConfig(message_model=MessageModel.BROADCASTING)
                async with member(cluster, "w", {"orders": "eu||jp"}, config):
                    await asyncio.sleep(60)
                    assert "message model: " in lines(DIFFER)[-1]

    run_in_virtual_time(main())


def test_member_that_differs_is_refused_where_brokers_require_it() -> None:
    async def main() -> None:
        async with simulated_cluster(same_subscriptions_required=True) as cluster:
            await cluster.put_topic("orders", 2)
            async with member(cluster, "x", {"orders": "eu || jp"}):
                with pytest.raises(
                    RefusedError, match=r"same_subscriptions_required.*'eu'"
                ) as told:
                    async with member(cluster, "z", {"orders": "eu"}):
                        raise AssertionError("is refused")
                assert told.value.code == ResponseCode.ILLEGAL_OPERATION
                env = cluster.environment("p")
                async with PullConsumer("g", nameserver=NAMESERVER, env=env) as puller:
                    with pytest.raises(RefusedError, match="must subscribe alike"):
                        await puller.subscribe("orders")
                env = cluster.environment("p2")
                async with PullConsumer("g", nameserver=NAMESERVER, env=env) as puller:
                    await puller.subscribe({"orders": "jp || eu"})
                    await puller.assigned()
                async with member(cluster, "y", {"orders": "jp||eu"}) as other:
                    await other.assigned()
                    for name in ("a", "b"):
                        cluster.kill(name)
                        await cluster.start(name)
                    await asyncio.sleep(60)
                    assert len(other.assignment()) > 0
                assert await described(cluster) == ()
            async with member(cluster, "z", {"orders": "eu"}) as alone:
                await alone.assigned()

    run_in_virtual_time(main())


def test_place_of_a_member_that_died_is_kept_for_ten_seconds() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",), same_subscriptions_required=True) as cluster:
            await cluster.put_topic("orders", 2)
            async with member(cluster, "x", "orders") as first:
                await first.assigned()
                cluster.network.cut("x")
                with pytest.raises(RefusedError, match="must subscribe alike"):
                    async with member(cluster, "y", {"orders": "eu"}):
                        raise AssertionError("is refused")
                await asyncio.sleep(60)
                assert len(first.assignment()) == 3
                cluster.network.kill("x")
                await asyncio.sleep(11)
                async with member(cluster, "y", {"orders": "eu"}) as other:
                    await other.assigned()

    run_in_virtual_time(main())
