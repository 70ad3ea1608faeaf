"""A slave is promoted by hand; the master that it replaces comes back as its slave."""

import asyncio
import json
from pathlib import Path

import pytest

from ternmq_broker.config import BrokerRole
from ternmq_model.errors import RefusedError, TernError
from ternmq_model.message import Message
from ternmq_model.stored_message import StoredMessage
from ternmq_model.transaction import Resolution
from ternmq_producer.producer import Producer
from ternmq_producer.transactions.transaction_producer import TransactionProducer
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import service_methods
from ternmq_store.disk.state_file import replace_file
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time, until
from tests.support.brokers import Client, bodies
from tests.support.simulated_replicas import (
    ask_to_promote,
    compare_logs,
    master_and_slave,
    promote,
    registered,
    replicated,
    status_of,
)

PROMOTED = 1_001_000


async def read_all(client: Client) -> list[bytes]:
    """Return the bodies of all messages of the topic."""
    found: list[bytes] = []
    while True:
        reply = await client.pull("A", len(found))
        if not reply.records:
            return found
        found += bodies(reply)


def test_promoted_slave_keeps_its_log_and_old_master_follows_it() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, client):
            cluster.network.partition("a", "a-1")
            await client.send("A", b"lost")
            cluster.kill("a")
            reply = await promote(cluster, "a-1", within_s=3)
            assert reply.epoch == PROMOTED
            assert (list(reply.asked), list(reply.unreachable)) == (["ns:9876"], ["a:10911"])
            assert reply.log_end == reply.confirm_offset
            client = await cluster.connect("a-1")
            await client.send("A", b"new", queue_id=0)
            cluster.network.heal()
            await cluster.start("a")
            await replicated(cluster)
            assert await registered(cluster) == {0: ("a-1", PROMOTED), 100: ("a", PROMOTED)}
            expected = [b"%d" % number for number in range(20)] + [b"new"]
            assert await read_all(client) == expected
            assert await read_all(await cluster.connect("a")) == expected
            await compare_logs(cluster, "a")
            kept = [path.name for path in cluster.disks["a"].nodes if path.parent.name == "cut"]
            assert len(kept) == 1

    run_in_virtual_time(main())


def test_messages_of_topic_created_just_before_promotion_can_be_read() -> None:
    async def main() -> None:
        async with master_and_slave(role=BrokerRole.SYNC_MASTER) as (cluster, client):
            await client.send("New", b"1", queue_id=3)
            cluster.kill("a")
            await promote(cluster, "a-1")
            client = await cluster.connect("a-1")
            assert bodies(await client.pull("New", queue_id=3)) == [b"1"]

    run_in_virtual_time(main())


@pytest.mark.parametrize("properties", [{"DELAY": "3"}, {"TIMER_DELAY_SEC": "10"}])
def test_delayed_message_of_topic_created_just_before_promotion_is_delivered(
    properties: dict[str, str],
) -> None:
    async def main() -> None:
        async with master_and_slave(role=BrokerRole.SYNC_MASTER) as (cluster, client):
            await client.send("New", b"waits", queue_id=3, properties=properties)
            cluster.kill("a")
            await promote(cluster, "a-1")
            client = await cluster.connect("a-1")
            await asyncio.sleep(20)
            assert bodies(await client.pull("New", queue_id=3)) == [b"waits"]

    run_in_virtual_time(main())


def test_slave_started_with_id_0_stays_slave() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, _):
            await cluster.stop("a")
            await cluster.stop("a-1")
            await cluster.start("a-1", broker_id=0)
            assert (await status_of(cluster, "a-1")).broker_id == 100
            assert (await promote(cluster, "a-1")).epoch == PROMOTED - 1000

    run_in_virtual_time(main())


def test_promoted_slave_stays_master_after_restart_of_both() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, _):
            await cluster.stop("a")
            await promote(cluster, "a-1")
            await cluster.stop("a-1")
            for first, second in (("a", "a-1"), ("a-1", "a")):
                await cluster.start(first)
                await cluster.start(second)
                await replicated(cluster)
                assert {
                    broker_id: host for broker_id, (host, _) in (await registered(cluster)).items()
                } == {0: "a-1", 100: "a"}
                await cluster.stop("a")
                await cluster.stop("a-1")

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("host", "reason"), [("a", "is the master already"), ("a-1", "its master is alive")]
)
def test_promotion_to_second_master_is_refused(host: str, reason: str) -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, client):
            with pytest.raises(RefusedError, match=reason):
                await ask_to_promote(cluster, host)
            await client.send("A", b"x")
            await replicated(cluster)
            assert (await status_of(cluster, "a-1")).highest_epoch == 1

    run_in_virtual_time(main())


def test_forced_promotion_swaps_roles_while_both_are_alive() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, client):
            await promote(cluster, "a-1", is_forced=True, within_s=2)
            await replicated(cluster)
            assert (await status_of(cluster, "a")).broker_id == 100
            with pytest.raises(RefusedError, match="slave"):
                await client.send("A", b"x")
            await compare_logs(cluster, "a")
            await promote(cluster, "a", is_forced=True, within_s=2)
            await replicated(cluster)
            assert set(await registered(cluster)) == {0, 1}

    run_in_virtual_time(main())


def test_promotion_needs_force_when_no_member_knows_highest_epoch() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, _):
            await cluster.stop("a")
            await cluster.nameservers.stop("ns")
            with pytest.raises(RefusedError, match="the highest epoch is unknown"):
                await ask_to_promote(cluster, "a-1")
            assert (await status_of(cluster, "a-1")).role == "slave"
            reply = await promote(cluster, "a-1", is_forced=True)
            assert (reply.epoch, list(reply.asked)) == (PROMOTED, [])

    run_in_virtual_time(main())


def test_promotion_of_slave_with_less_than_another_is_refused() -> None:
    async def main() -> None:
        async with master_and_slave(role=BrokerRole.SYNC_MASTER) as (cluster, client):
            await cluster.start("a-2")
            await replicated(cluster)
            cluster.kill("a-2")
            await client.send("A", b"more")
            await replicated(cluster)
            cluster.kill("a-1")
            cluster.kill("a")
            await cluster.start("a-2")
            with pytest.raises(
                RefusedError,
                match=r"slaves that may have more .* \(id 1\); others may have 0 acknowledged bytes"
                " that this log lacks, and what their master acknowledged since",
            ):
                await ask_to_promote(cluster, "a-2")
            await cluster.start("a-1")
            lacks = (await status_of(cluster, "a-1")).log_end
            lacks -= (await status_of(cluster, "a-2")).log_end
            with pytest.raises(
                RefusedError,
                match=rf"another member has the log up to .*; others may have {lacks} acknowledged",
            ):
                await ask_to_promote(cluster, "a-2")
            await promote(cluster, "a-1")
            await replicated(cluster)

    run_in_virtual_time(main())


def test_promotion_clamps_and_reports_offsets_beyond_end_of_log() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, _):
            await cluster.stop("a")
            await commit(await cluster.connect("a-1"), "ahead", 20)
            await commit(await cluster.connect("a-1"), "behind", 7)
            await cluster.stop("a-1")
            path = Path("/broker/config/consumerOffset.json")
            kept = json.loads(cluster.disks["a-1"].nodes[path].data.tobytes())
            kept["offsetTable"]["A@ahead"]["0"] = 25  # as when the log has lost its end
            replace_file(cluster.disks["a-1"], path, json.dumps(kept).encode())
            await cluster.start("a-1")
            client = await cluster.connect("a-1")
            reply = await promote(cluster, "a-1")
            (clamped,) = reply.clamped
            assert (clamped.group, clamped.change.topic) == ("ahead", "A")
            assert (clamped.change.before, clamped.change.after) == (25, 20)
            assert await offset_of(client, "ahead") == 20
            assert await offset_of(client, "behind") == 7
            await client.send("A", b"new")
            await commit(client, "ahead", 24)
            assert await offset_of(client, "ahead") == 20

    run_in_virtual_time(main())


async def commit(client: Client, group: str, offset: int) -> None:
    """Commit, under the version of before any promotion."""
    each = groups.QueueOffset(topic="A", queue_id=0, offset=offset)
    request = groups.CommitOffsetsRequest(group=group, offsets=[each])
    await client.call(service_methods.COMMIT_OFFSETS, request)


async def offset_of(client: Client, group: str) -> int:
    """Return how far a group is."""
    request = groups.QueryOffsetRequest(group=group, topic="A")
    reply: groups.QueryOffsetReply = await client.call(service_methods.QUERY_OFFSET, request)
    return reply.offset


@pytest.mark.parametrize("after_ms", range(0, 72, 4))
def test_loss_of_power_during_promotion_leaves_slave_or_master(after_ms: int) -> None:
    async def main() -> None:
        async with master_and_slave(seed=after_ms, latency_s=0) as (cluster, _):
            cluster.disk_s["a-1"] = 0.005
            await cluster.stop("a")
            promoting = asyncio.ensure_future(ask_to_promote(cluster, "a-1"))
            await asyncio.sleep(after_ms / 1000)
            cluster.lose_power("a-1")
            reply = (await asyncio.gather(promoting, return_exceptions=True))[0]
            await cluster.start("a-1")
            status = await status_of(cluster, "a-1")
            if not isinstance(reply, BaseException):
                assert status.role != "slave"
                assert status.highest_epoch >= PROMOTED
            if status.role == "slave":
                assert status.highest_epoch == 1
                await promote(cluster, "a-1")
            client = await cluster.connect("a-1")
            await client.send("A", b"new", queue_id=0)
            await cluster.start("a")
            await replicated(cluster)
            await compare_logs(cluster, "a")

    run_in_virtual_time(main())


def test_producer_goes_on_with_promoted_slave_over_open_connections() -> None:
    async def main() -> None:
        async with master_and_slave(messages=0) as (cluster, _):
            async with Producer(
                "senders", nameserver="ns:9876", env=cluster.environment("producer")
            ) as producer:
                sent: list[bytes] = []
                failed: list[TernError] = []
                for number in range(60):
                    if number == 20:
                        await ask_to_promote(cluster, "a-1", is_forced=True)
                    body = b"%d" % number
                    try:
                        await producer.send(Message("A", body))
                    except TernError as error:
                        failed.append(error)
                    else:
                        sent.append(body)
                    await asyncio.sleep(0.2)
            assert all(error.retryable or error.may_have_happened for error in failed)
            assert len(sent) > 40
            assert sent[-1] == b"59"
            await replicated(cluster)
            stored = await read_all(await cluster.connect("a-1"))
            # What the old master acknowledged before it was told is lost with its log.
            lost = [body for body in sent if body not in stored]
            assert all(20 <= int(body) < 40 for body in lost), lost
            await compare_logs(cluster, "a")

    run_in_virtual_time(main())


def test_delayed_messages_are_delivered_by_promoted_slave() -> None:
    async def main() -> None:
        async with master_and_slave(messages=0) as (cluster, client):
            sent_ms = VirtualClock().wall_ms()
            await client.send("A", b"delayed", properties={"DELAY": "5"})  # a minute
            await client.send("A", b"timed", properties={"TIMER_DELAY_SEC": "50"})
            await client.send("A", b"short", properties={"DELAY": "1"})  # a second
            await asyncio.sleep(5)
            assert await read_all(client) == [b"short"]
            await replicated(cluster)
            cluster.kill("a")
            await promote(cluster, "a-1")
            client = await cluster.connect("a-1")
            assert await read_all(client) == [b"short"]
            await until(lambda: has(client, 2), within_s=60)
            assert VirtualClock().wall_ms() - sent_ms == pytest.approx(50_000, abs=1500)
            await until(lambda: has(client, 3), within_s=60)
            assert VirtualClock().wall_ms() - sent_ms == pytest.approx(60_000, abs=1500)
            assert await read_all(client) == [b"short", b"timed", b"delayed"]
            await asyncio.sleep(120)
            assert await has(client, 3)

    run_in_virtual_time(main())


async def has(client: Client, messages: int) -> bool:
    """Tell whether the topic has so many messages."""
    return len(await read_all(client)) == messages


def test_transaction_of_old_master_ends_at_promoted_slave() -> None:
    async def main() -> None:
        async with master_and_slave(messages=0) as (cluster, _):
            decisions: list[bytes] = []

            async def execute(_message: Message, _argument: object) -> Resolution:
                return Resolution.UNKNOWN

            async def check(message: StoredMessage) -> Resolution:
                decisions.append(message.body)
                return Resolution.COMMIT

            async with TransactionProducer(
                "senders",
                execute=execute,
                check=check,
                nameserver="ns:9876",
                env=cluster.environment("producer"),
            ) as producer:
                await producer.send(Message("A", b"half"), None)
                await replicated(cluster)
                cluster.kill("a")
                await promote(cluster, "a-1")
                client = await cluster.connect("a-1")
                await until(lambda: has(client, 1), within_s=120)
                assert decisions == [b"half"]

    run_in_virtual_time(main())
