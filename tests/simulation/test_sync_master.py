"""What a send is answered when a master waits for its slave, or has none to wait for."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ternmq_broker.config import BrokerRole
from ternmq_model.errors import RefusedError
from ternmq_model.message import Message, SendResult, SendStatus
from ternmq_model.response_code import ResponseCode as Code
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting import service_methods
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import Client, Sender, bodies, membership, stored
from tests.support.numbered import TOPIC, numbered
from tests.support.simulated_cluster import SimulatedCluster, simulated_cluster
from tests.support.simulated_replicas import register_stranger, status_of


async def in_sync(cluster: SimulatedCluster, members: int = 2) -> None:
    """Wait until so many members count."""
    async with asyncio.timeout(30):
        while (await status_of(cluster, "a")).in_sync_now != members:
            await asyncio.sleep(0.05)


@asynccontextmanager
async def synchronous(**settings: Any) -> AsyncGenerator[tuple[SimulatedCluster, Client, Sender]]:
    """Give a SYNC_MASTER with a slave that counts, a client of the master, and its stream."""
    async with numbered(role=BrokerRole.SYNC_MASTER, **settings) as (cluster, _):
        await cluster.start("a-1")
        await in_sync(cluster)
        client = await cluster.connect("a")
        yield cluster, client, await client.open_sender()
        cluster.disk_s.clear()
        await client.connection.close()


def elapsed_s(since_s: float) -> float:
    return asyncio.get_running_loop().time() - since_s


def test_send_is_answered_and_visible_once_slave_has_it() -> None:
    async def main() -> None:
        async with synchronous() as (cluster, client, sender):
            cluster.disk_s["a-1"] = 0.5
            began_s = asyncio.get_running_loop().time()
            sending = asyncio.ensure_future(client.send(TOPIC, b"unary", queue_id=0))
            await asyncio.sleep(0.1)
            assert (await client.pull(TOPIC)).status.code == Code.PULL_NOT_FOUND
            assert (await sending).status.code == Code.SUCCESS
            assert elapsed_s(began_s) >= 0.4
            assert bodies(await client.pull(TOPIC, wait_ms=500)) == [b"unary"]
            cluster.disk_s["a-1"] = 0.0
            assert (await sender.send(sender.record(TOPIC))).status.code == Code.SUCCESS

    run_in_virtual_time(main())


def test_sends_go_on_without_slave_and_say_so() -> None:
    async def main() -> None:
        async with synchronous() as (cluster, client, sender):
            cluster.network.partition("a", "a-1")
            for _ in range(3):
                assert (await client.send(TOPIC)).status.code == Code.SLAVE_NOT_AVAILABLE
                reply = await sender.send(sender.record(TOPIC))
                assert reply.status.code == Code.SLAVE_NOT_AVAILABLE
            status = await status_of(cluster, "a")
            assert (status.in_sync_now, status.in_sync_replicas) == (1, 2)
            assert status.confirm_offset == status.log_end
            cluster.network.heal()
            await in_sync(cluster)
            assert (await client.send(TOPIC)).status.code == Code.SUCCESS

    run_in_virtual_time(main())


def test_slave_whose_disk_hangs_is_waited_for_two_seconds() -> None:
    async def main() -> None:
        async with synchronous() as (cluster, client, sender):
            cluster.disk_s["a-1"] = 20.0
            began_s = asyncio.get_running_loop().time()
            first = asyncio.ensure_future(client.send(TOPIC, b"first", queue_id=0))
            await asyncio.sleep(1)
            reply = await sender.send(sender.record(TOPIC))
            # The slave ceases to count 2 s after it fell silent, not 2 s after each send.
            assert reply.status.code == Code.SLAVE_NOT_AVAILABLE
            assert 1.9 <= elapsed_s(began_s) < 2.6
            answer = (await first).status.code
            assert answer in {Code.FLUSH_SLAVE_TIMEOUT, Code.SLAVE_NOT_AVAILABLE}
            began_s = asyncio.get_running_loop().time()
            assert (await client.send(TOPIC)).status.code == Code.SLAVE_NOT_AVAILABLE
            assert elapsed_s(began_s) < 0.1
            cluster.disk_s["a-1"] = 0.0
            await asyncio.sleep(20)
            await in_sync(cluster)
            assert (await client.send(TOPIC)).status.code == Code.SUCCESS
            assert bodies(await client.pull(TOPIC))[0] == b"first"

    run_in_virtual_time(main())


def test_slow_slave_stays_in_sync_while_sends_time_out() -> None:
    async def main() -> None:
        async with synchronous(slave_timeout_ms=1000) as (cluster, client, sender):
            cluster.disk_s["a-1"] = 0.7
            # One after the other the slave makes them safe, each in time for it to count.
            loads = [asyncio.ensure_future(client.send(TOPIC)) for _ in range(2)]
            await asyncio.sleep(0.3)
            loads.append(asyncio.ensure_future(client.send(TOPIC)))
            await asyncio.sleep(0.1)
            began_s = asyncio.get_running_loop().time()
            reply = await sender.send(sender.record(TOPIC, b"late"))
            assert reply.status.code in {Code.SUCCESS, Code.FLUSH_SLAVE_TIMEOUT}
            assert elapsed_s(began_s) <= 1.01
            await asyncio.gather(*loads)
            assert (await status_of(cluster, "a")).in_sync_now == 2

    run_in_virtual_time(main())


def test_three_in_sync_replicas_need_all_three_members() -> None:
    async def main() -> None:
        async with synchronous(in_sync_replicas=3) as (cluster, client, sender):
            assert (await client.send(TOPIC)).status.code == Code.SLAVE_NOT_AVAILABLE
            await cluster.start("a-2")
            await in_sync(cluster, 3)
            assert (await client.send(TOPIC)).status.code == Code.SUCCESS
            cluster.disk_s["a-2"] = 0.3
            began_s = asyncio.get_running_loop().time()
            assert (await sender.send(sender.record(TOPIC))).status.code == Code.SUCCESS
            assert elapsed_s(began_s) >= 0.25
            assert [each.broker_id for each in (await status_of(cluster, "a")).followers] == [1, 2]
            cluster.network.partition("a", "a-2")
            assert (await client.send(TOPIC)).status.code == Code.SLAVE_NOT_AVAILABLE

    run_in_virtual_time(main())


def test_late_disk_of_master_is_blamed() -> None:
    async def main() -> None:
        async with synchronous() as (cluster, client, sender):
            cluster.disk_s["a"] = 8.0
            began_s = asyncio.get_running_loop().time()
            reply = await sender.send(sender.record(TOPIC))
            assert reply.status.code == Code.FLUSH_DISK_TIMEOUT
            assert 4.9 <= elapsed_s(began_s) < 5.2
            answer = await client.send(TOPIC)
            assert answer.status.code in {Code.FLUSH_DISK_TIMEOUT, Code.SUCCESS}

    run_in_virtual_time(main())


def test_sends_without_slaves_can_be_refused() -> None:
    async def main() -> None:
        async with synchronous(refuse_without_replicas=True) as (cluster, client, sender):
            assert (await client.send(TOPIC, b"kept", queue_id=0)).status.code == Code.SUCCESS
            await cluster.stop("a-1")
            await in_sync(cluster, 1)
            before = (await status_of(cluster, "a")).log_end
            with pytest.raises(RefusedError, match="too few slaves") as caught:
                await client.send(TOPIC)
            assert caught.value.code == Code.SERVICE_NOT_AVAILABLE
            assert caught.value.retryable
            assert not caught.value.may_have_happened
            reply = await sender.send(sender.record(TOPIC))
            assert reply.status.code == Code.SERVICE_NOT_AVAILABLE
            assert not reply.status.may_have_happened
            assert (await status_of(cluster, "a")).log_end == before
            # What consumers send back goes on: the message is stored here alone already.
            await send_back(client)
            assert (await status_of(cluster, "a")).log_end > before
            await cluster.start("a-1")
            await in_sync(cluster)
            assert (await client.send(TOPIC)).status.code == Code.SUCCESS

    run_in_virtual_time(main())


async def send_back(client: Client) -> None:
    """Let a consumer give back the first message of queue 0."""
    stream, welcome = await client.open_session("c@1", membership("G", TOPIC))
    assert not welcome.status.code
    (first,) = stored(await client.pull(TOPIC))
    request = groups.SendBackRequest(group="G", client_id="c@1")
    request.messages.add(topic=TOPIC, queue_id=0, queue_offset=0, message_id=first.message_id)
    reply = await client.call(service_methods.SEND_BACK, request)
    assert [outcome.code for outcome in reply.outcomes] == [0], reply
    stream.cancel()


def test_messages_written_by_broker_itself_count_without_slave() -> None:
    async def main() -> None:
        async with synchronous() as (cluster, client, _):
            await client.send(TOPIC, b"again", queue_id=0)
            await cluster.stop("a-1")
            await in_sync(cluster, 1)
            await send_back(client)
            delayed = await client.send(TOPIC, b"later", queue_id=1, properties={"DELAY": "1"})
            assert delayed.status.code == Code.SLAVE_NOT_AVAILABLE
            assert bodies(await client.pull(TOPIC, queue_id=1, wait_ms=10_000)) == [b"later"]

    run_in_virtual_time(main())


def test_retried_batch_is_found_and_answered_with_its_true_status() -> None:
    async def main() -> None:
        async with synchronous() as (cluster, _, sender):
            record = sender.record(TOPIC, b"once")
            cluster.network.partition("a", "a-1")
            alone = await sender.send(record)
            assert alone.status.code == Code.SLAVE_NOT_AVAILABLE
            retry = messages.SendBatch(
                records=record, record_sizes=len(record).to_bytes(4, "little"), is_retry=True
            )
            await sender.stream.write(messages.SendStreamRequest(batch=retry))
            again = await sender.read()
            assert again.physical_offsets == alone.physical_offsets
            assert again.status.code == Code.SLAVE_NOT_AVAILABLE
            cluster.network.heal()
            await in_sync(cluster)
            await sender.stream.write(messages.SendStreamRequest(batch=retry))
            again = await sender.read()
            assert again.physical_offsets == alone.physical_offsets
            assert again.status.code == Code.SUCCESS

    run_in_virtual_time(main())


def test_deposed_master_acknowledges_nothing() -> None:
    async def main() -> None:
        async with synchronous() as (cluster, client, sender):
            cluster.disk_s["a-1"] = 30.0
            await sender.write(sender.record(TOPIC, b"in doubt"))
            unary = asyncio.ensure_future(client.send(TOPIC))
            await asyncio.sleep(0.5)
            await register_stranger(cluster, epoch=5_000_000)
            stranger = await cluster.connect("a", "stranger")
            stream = stranger.connection.open(service_methods.FOLLOW)
            hello = replication.FollowHello(
                cluster="DefaultCluster",
                broker_name="a",
                broker_id=2,
                incarnation="promoted elsewhere",
                store_id=(await status_of(cluster, "a")).store_id,
                highest_epoch=5_000_000,
            )
            await stream.write(replication.FollowRequest(hello=hello))
            reply = await sender.read()
            assert reply.status.code == Code.SERVICE_NOT_AVAILABLE
            assert reply.status.may_have_happened
            assert "epoch 5000000" in reply.status.remark
            with pytest.raises(RefusedError, match="epoch 5000000") as caught:
                await unary
            assert caught.value.may_have_happened
            await stranger.connection.close()
            cluster.disk_s.clear()
            await asyncio.sleep(40)
            assert (await status_of(cluster, "a")).role == "slave"

    run_in_virtual_time(main())


def test_master_that_stops_in_order_leaves_slave_with_everything() -> None:
    async def main() -> None:
        async with numbered() as (cluster, messages):
            await cluster.start("a-1")
            await in_sync(cluster)
            cluster.disk_s["a-1"] = 0.5
            await messages.send(20)
            end = (await status_of(cluster, "a")).log_end
            assert (await status_of(cluster, "a-1")).safe_offset < end
            await cluster.stop("a")
            slave = await status_of(cluster, "a-1")
            assert slave.safe_offset == slave.confirm_offset == end
            cluster.disk_s.clear()

    run_in_virtual_time(main())


@pytest.mark.parametrize("silent_s", [3, 8])
def test_silent_slave_costs_no_send_its_answer_with_default_timeouts(silent_s: int) -> None:
    async def main() -> None:
        async with (
            simulated_cluster(brokers=("a", "a-1"), role=BrokerRole.SYNC_MASTER) as cluster,
            cluster.producer() as producer,
        ):
            await cluster.put_topic("A")
            await producer.send(Message("A", b"before"))
            cluster.network.partition("a-1", "a", one_way=True)
            async with asyncio.TaskGroup() as tasks:
                sends: list[asyncio.Task[SendResult]] = []
                for number in range(10 * silent_s):
                    sends.append(tasks.create_task(producer.send(Message("A", b"%d" % number))))
                    await asyncio.sleep(0.1)
                cluster.network.heal()
            # Every sender was answered; the first ones that too few members have their messages.
            assert sends[0].result().status is not SendStatus.SEND_OK

    run_in_virtual_time(main())
