"""Send-backs and resets while the broker dies and loses power: what was answered holds."""

import asyncio

import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.config import ClientConfig
from ternmq_model.errors import TernError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.route import TopicConfig
from ternmq_model.stored_message import StoredMessage
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import service_methods
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster

TOPIC = "orders"


def failed(message: StoredMessage, *, is_dead: bool) -> groups.FailedMessage:
    return groups.FailedMessage(
        physical_offset=message.physical_offset,
        message_id=message.message_id,
        topic=TOPIC,
        queue_id=message.header.queue_id,
        queue_offset=message.queue_offset,
        delay_level=-1 if is_dead else 1,
    )


async def send_back(cluster: SimulatedCluster, *told: groups.FailedMessage) -> groups.SendBackReply:
    address = cluster.broker("a").address
    network = cluster.network.host("member")
    connection = await network.connect([type(address)("a", address.port)])
    try:
        request = groups.SendBackRequest(group="G", client_id="a@1", messages=told)
        return await connection.call(service_methods.SEND_BACK, request, timeout_s=5)
    finally:
        await connection.close()


@pytest.mark.parametrize("seed", range(8))
def test_sent_back_message_comes_again_or_becomes_dead_letter(seed: int) -> None:
    async def main() -> None:
        async with simulated_cluster(seed, brokers=("a",)) as cluster:
            random = cluster.random
            config = ClientConfig(nameservers=(NAMESERVER,))
            async with AdminClient(client=config, env=cluster.environment("tool")) as admin:
                await admin.create_topic(TopicConfig(TOPIC, 2, 2))
            async with cluster.producer() as producer:
                for _ in range(40):
                    await cluster.send(producer, TOPIC)
            waiting = [message for _, message in await cluster.records(TOPIC)]
            again: set[bytes] = set()
            dead: set[bytes] = set()
            while waiting:
                while "a" not in cluster.running:
                    await cluster.start("a")
                    await asyncio.sleep(1)
                some, is_dead = waiting[: random.randint(1, 8)], random.random() < 0.5
                if random.random() < 0.3:
                    asyncio.get_running_loop().call_later(random.random() * 0.02, end, cluster)
                try:
                    reply = await send_back(
                        cluster, *[failed(each, is_dead=is_dead) for each in some]
                    )
                    for each, outcome in zip(some, reply.outcomes, strict=True):
                        if not outcome.code:
                            (dead if is_dead else again).add(each.body)
                            waiting.remove(each)
                except TernError:
                    continue
            await asyncio.sleep(1)
            if "a" not in cluster.running:
                await cluster.start("a")
            await asyncio.sleep(60)
            for topic, expected in (("%RETRY%G", again), ("%DLQ%G", dead)):
                found = {message.body for _, message in await cluster.records(topic)}
                assert expected <= found, f"lost in {topic}"

    def end(cluster: SimulatedCluster) -> None:
        if "a" in cluster.running:
            (cluster.kill if cluster.random.random() < 0.5 else cluster.lose_power)("a")

    run_in_virtual_time(main())


@pytest.mark.parametrize("is_dead", [True, False])
def test_failure_that_is_told_twice_at_once_is_stored_once(is_dead: bool) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await cluster.put_topic(TOPIC, 1)
            async with cluster.producer() as producer:
                for _ in range(5):
                    await cluster.send(producer, TOPIC)
            told = [failed(each, is_dead=is_dead) for _, each in await cluster.records(TOPIC)]
            cluster.disk_s["a"] = 0.5
            first = asyncio.ensure_future(send_back(cluster, *told[:4]))
            await asyncio.sleep(0.1)
            second = asyncio.ensure_future(send_back(cluster, *told[1:]))
            for reply in await asyncio.gather(first, second):
                assert [each.code for each in reply.outcomes] == [0] * 4
            cluster.disk_s["a"] = 0.0
            await asyncio.sleep(20)
            topic = "%DLQ%G" if is_dead else "%RETRY%G"
            bodies = [message.body for _, message in await cluster.records(topic)]
            assert len(bodies) == len(set(bodies)) == 5

    run_in_virtual_time(main())


@pytest.mark.parametrize("seed", range(4))
def test_commits_older_than_a_reset_stay_refused_after_power_loss(seed: int) -> None:
    async def main() -> None:
        async with simulated_cluster(seed, brokers=("a",)) as cluster:
            config = ClientConfig(nameservers=(NAMESERVER,))
            async with AdminClient(client=config, env=cluster.environment("tool")) as admin:
                await admin.create_topic(TopicConfig(TOPIC, 1, 1))
                async with cluster.producer() as producer:
                    for _ in range(10):
                        await cluster.send(producer, TOPIC)
                assert not await refused(cluster, 7, 0)
                outcome = await admin.reset_offsets("G", TOPIC, offset=2)
                assert [each.after for each in outcome.changes] == [2]
                cluster.lose_power("a")
                await cluster.start("a")
                assert await refused(cluster, 9, 0)
                (progress,) = (await admin.describe_group("G")).progress
                assert progress.queue == MessageQueue(TOPIC, "a", 0)
                assert (progress.committed_offset, progress.version) == (QueueOffset(2), 1)
                assert not await refused(cluster, 3, 1)

    async def refused(cluster: SimulatedCluster, offset: int, version: int) -> bool:
        address = cluster.broker("a").address
        network = cluster.network.host("member")
        connection = await network.connect([type(address)("a", address.port)])
        told = groups.QueueOffset(topic=TOPIC, queue_id=0, offset=offset, version=version)
        request = groups.CommitOffsetsRequest(group="G", client_id="a@1", offsets=[told])
        reply = await connection.call(service_methods.COMMIT_OFFSETS, request, timeout_s=5)
        await connection.close()
        return bool(reply.refused)

    run_in_virtual_time(main())
