"""Dead letters over a cluster: counted, shown, sent again each once, dropped, deleted."""

import asyncio
from collections import Counter

import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_model.errors import (
    MessageNotFound,
    PermissionRefused,
    TopicNotFound,
    Unreachable,
)
from ternmq_model.names import DEAD_LETTER_TOOLS
from ternmq_model.route import Permission, TopicConfig
from ternmq_model.stored_message import StoredMessage
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import service_methods
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster


def admin_of(cluster: SimulatedCluster, host: str = "tool") -> AdminClient:
    return AdminClient(nameserver=NAMESERVER, env=cluster.environment(host))


async def died(cluster: SimulatedCluster, count: int, *, topic: str = "orders") -> None:
    """Let a group give up so many messages of a topic, which comes into being."""
    async with cluster.producer(f"producer-{topic}") as producer, admin_of(cluster) as admin:
        await admin.create_topic(TopicConfig(topic, 1, 1))
        for _ in range(count):
            await cluster.send(producer, topic, key="")
    for queue, message in await cluster.records(topic):
        await send_back(cluster, queue.broker_name, message)


async def send_back(cluster: SimulatedCluster, broker_name: str, message: StoredMessage) -> None:
    network = cluster.network.host("member")
    address = cluster.broker(broker_name).address
    connection = await network.connect([type(address)(broker_name, address.port)])
    failed = groups.FailedMessage(
        physical_offset=message.physical_offset,
        message_id=message.message_id,
        topic=message.topic,
        queue_id=message.header.queue_id,
        queue_offset=message.queue_offset,
        delay_level=-1,
    )
    request = groups.SendBackRequest(group="G", client_id="a@1", messages=[failed])
    reply = await connection.call(service_methods.SEND_BACK, request, timeout_s=5)
    assert [each.code for each in reply.outcomes] == [0]
    await connection.close()


async def bodies_of(cluster: SimulatedCluster, topic: str) -> Counter[bytes]:
    await asyncio.sleep(0.5)
    return Counter(message.body for _, message in await cluster.records(topic))


def test_dead_letters_are_counted_and_shown_with_their_origin() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, admin_of(cluster) as admin:
            assert await admin.dead_letter_counts() == []
            await died(cluster, 5)
            (counts,) = await admin.dead_letter_counts()
            assert (counts.group, counts.waiting, counts.kept) == ("G", 5, 5)
            assert 0 < counts.last_died_at_ms <= cluster.now_ms()
            letters = await admin.dead_letters("G")
            sent = {message.message_id for _, message in await cluster.records("orders")}
            assert {each.origin_message_id for each in letters} == sent
            assert {each.origin_topic for each in letters} == {"orders"}
            assert not any(each.is_handled for each in letters)
            assert len(await admin.dead_letters("G", maximum=2)) == 2

    run_in_virtual_time(main())


def test_group_without_dead_letters_has_an_empty_list_of_them() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, admin_of(cluster) as admin:
            assert await admin.dead_letters("G") == []
            assert await admin.dead_letters("G", with_handled=True) == []
            assert await admin.redrive("G") == []
            assert await admin.drop_dead_letters("G") == 0
            assert await admin.delete_dead_letters("G") == []
            with pytest.raises(MessageNotFound):
                await admin.redrive("G", message_ids=["m1"])
            with pytest.raises(MessageNotFound):
                await admin.drop_dead_letters("G", through="m1")
            cluster.kill("a")
            with pytest.raises(Unreachable):
                await admin.dead_letters("G")

    run_in_virtual_time(main())


def test_all_dead_letters_return_to_their_first_topic_once() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, admin_of(cluster) as admin:
            await died(cluster, 80)
            before = await bodies_of(cluster, "orders")
            planned = await admin.redrive("G", dry_run=True)
            assert {each.outcome for each in planned} == {"would be sent"}
            assert await bodies_of(cluster, "orders") == before
            done = await admin.redrive("G")
            assert {each.outcome for each in done} == {"sent"}
            assert [each.new_message_id for each in planned] == [
                each.new_message_id for each in done
            ]
            assert await bodies_of(cluster, "orders") == before + before
            assert await admin.redrive("G") == []
            assert await admin.dead_letters("G") == []
            shown = await admin.dead_letters("G", with_handled=True)
            assert len(shown) == 80
            assert all(each.is_handled for each in shown)
            (counts,) = await admin.dead_letter_counts()
            assert (counts.waiting, counts.kept) == (0, 80)

    run_in_virtual_time(main())


@pytest.mark.parametrize("seed", range(6))
def test_interrupted_redrive_resumes_and_sends_nothing_twice(seed: int) -> None:
    async def main() -> None:
        async with simulated_cluster(seed) as cluster:
            await died(cluster, 40)
            before = await bodies_of(cluster, "orders")
            runs = 0
            while True:
                runs += 1
                async with admin_of(cluster, f"tool-{runs}") as admin:
                    try:
                        async with asyncio.timeout(0.02 + cluster.random.random() * 0.1 * runs):
                            await admin.redrive("G")
                        break
                    except TimeoutError:
                        pass
                    except PermissionRefused:
                        await asyncio.sleep(31)  # the lock of the run before, which was cut off
                if runs == 3:
                    cluster.kill("a")
                    await cluster.start("a")
                    await asyncio.sleep(5)
                assert runs < 60
            assert runs > 1
            assert await bodies_of(cluster, "orders") == before + before

    run_in_virtual_time(main())


def test_single_dead_letters_are_redriven_by_id_and_not_again() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, admin_of(cluster) as admin:
            await died(cluster, 6)
            before = await bodies_of(cluster, "orders")
            third, *_ = (await admin.dead_letters("G"))[2:]
            wanted = [third.origin_message_id, third.message.offset_message_id]
            (done,) = await admin.redrive("G", message_ids=wanted)
            assert done.outcome == "sent"
            (again,) = await admin.redrive("G", message_ids=wanted)
            assert again.outcome == "sent before"
            outcomes = Counter(each.outcome for each in await admin.redrive("G"))
            assert outcomes == {"sent": 5, "sent before": 1}
            assert await bodies_of(cluster, "orders") == before + before
            with pytest.raises(MessageNotFound, match="no dead letter NOBODY"):
                await admin.redrive("G", message_ids=["NOBODY"])

    run_in_virtual_time(main())


def test_dead_letters_for_the_group_alone_go_to_its_retry_topic() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, admin_of(cluster) as admin:
            await died(cluster, 4)
            before = await bodies_of(cluster, "orders")
            await admin.redrive("G", to_group=True)
            assert await bodies_of(cluster, "orders") == before
            assert await bodies_of(cluster, "%RETRY%G") == before
            for _, message in await cluster.records("%RETRY%G"):
                assert message.properties["RETRY_TOPIC"] == "orders"
                assert message.reconsume_times == 0

    run_in_virtual_time(main())


def test_dead_letter_goes_to_another_broker_when_its_own_lacks_the_topic() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, admin_of(cluster) as admin:
            await died(cluster, 8)
            await admin.delete_topic("orders")
            with pytest.raises(TopicNotFound, match="orders"):
                await admin.redrive("G")
            assert len(await admin.dead_letters("G")) == 8
            await admin.create_topic(TopicConfig("orders", 1, 1), brokers=["b"])
            assert len(await admin.redrive("G")) == 8
            assert sum((await bodies_of(cluster, "orders")).values()) == 8

    run_in_virtual_time(main())


def test_unwritable_topic_keeps_its_dead_letters_waiting() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, admin_of(cluster) as admin:
            await died(cluster, 3)
            await admin.create_topic(TopicConfig("orders", 1, 1, Permission.READ))
            with pytest.raises(PermissionRefused):
                await admin.redrive("G")
            assert len(await admin.dead_letters("G")) == 3

    run_in_virtual_time(main())


def test_two_redrives_never_handle_a_queue_at_once() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, admin_of(cluster) as admin:
            await died(cluster, 3)
            lock = groups.LockQueuesRequest(group=DEAD_LETTER_TOOLS, client_id="other")
            lock.queues.add(topic="%DLQ%G", queue_id=0)
            for name in cluster.running:
                network = cluster.network.host("other")
                address = cluster.broker(name).address
                connection = await network.connect([type(address)(name, address.port)])
                await connection.call(service_methods.LOCK_QUEUES, lock, timeout_s=5)
                await connection.close()
            with pytest.raises(PermissionRefused, match="handled by another command"):
                await admin.redrive("G")
            with pytest.raises(PermissionRefused, match="handled by another command"):
                await admin.drop_dead_letters("G")
            assert len(await admin.redrive("G", dry_run=True)) == 3
            await asyncio.sleep(31)
            assert len(await admin.redrive("G")) == 3

    run_in_virtual_time(main())


def test_dropped_dead_letters_no_longer_wait_and_deleted_ones_are_gone() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, admin_of(cluster) as admin:
            await died(cluster, 9)
            letters = await admin.dead_letters("G")
            first = [each for each in letters if each.message.queue == letters[0].message.queue]
            through = first[1].origin_message_id
            assert await admin.drop_dead_letters("G", through=through) == 2
            assert len(await admin.dead_letters("G")) == 7
            with pytest.raises(MessageNotFound):
                await admin.drop_dead_letters("G", through=through)
            assert await admin.drop_dead_letters("G") == 7
            assert await admin.redrive("G") == []
            assert len(await admin.dead_letters("G", with_handled=True)) == 9
            assert await admin.delete_dead_letters("G") == ["a", "b"]
            assert await admin.dead_letter_counts() == []

    run_in_virtual_time(main())
