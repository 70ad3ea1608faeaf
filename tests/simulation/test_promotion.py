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
from ternmq_producer.transactions import TransactionProducer
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import contracts
from ternmq_store.disk.state_file import replace_file
from tests.support.brokers import Client, bodies
from tests.support.members import Members, members, until
from tests.support.virtual_time import VirtualClock, run_in_virtual_time

PROMOTED = 1_001_000


async def two(group: Members, *, messages: int = 20) -> Client:
    """Start a master `m` and its slave `s` with a topic of one queue; return a client of `m`."""
    await group.start("m")
    await group.start("s", broker_id=1)
    client = await group.client("m")
    await client.put_topic("A", 1)
    for number in range(messages):
        await client.send("A", b"%d" % number)
    await group.followed("m", "s")
    return client


async def log_of(group: Members, host: str) -> bytes:
    """Return the bytes of a member's log."""
    end = (await group.status(host)).log_end
    files = group.disks[host].nodes
    names = sorted(path for path in files if path.parent.name == "commitlog")
    return b"".join(files[path].data.tobytes() for path in names)[:end]


async def read_all(client: Client) -> list[bytes]:
    """Return the bodies of all messages of the topic."""
    found: list[bytes] = []
    while True:
        reply = await client.pull("A", len(found))
        if not reply.records:
            return found
        found += bodies(reply)


def test_a_promoted_slave_has_all_that_it_had_and_its_old_master_follows_it() -> None:
    async def main() -> None:
        async with members() as group:
            client = await two(group)
            group.network.partition("m", "s")
            await client.send("A", b"lost")
            group.kill("m")
            reply = await group.promote("s")
            assert reply.epoch == PROMOTED
            assert (list(reply.asked), list(reply.unreachable)) == (["ns:9876"], ["m:10911"])
            assert reply.log_end == reply.confirm_offset
            await until(lambda: is_master(group, "s"), within_s=3)
            client = await group.client("s")
            await client.send("A", b"new", queue_id=0)
            group.network.heal()
            await group.start("m")
            await group.followed("s", "m")
            assert await group.registered() == {0: ("s", PROMOTED), 100: ("m", PROMOTED)}
            expected = [b"%d" % number for number in range(20)] + [b"new"]
            assert await read_all(client) == expected
            assert await read_all(await group.client("m")) == expected
            assert await log_of(group, "m") == await log_of(group, "s")
            kept = [path.name for path in group.disks["m"].nodes if path.parent.name == "cut"]
            assert len(kept) == 1

    run_in_virtual_time(main())


async def is_master(group: Members, host: str) -> bool:
    """Tell whether a member serves as the master."""
    return (await group.status(host)).broker_id == 0


def test_messages_of_a_topic_that_was_new_when_the_master_died_can_be_read() -> None:
    async def main() -> None:
        async with members(role=BrokerRole.SYNC_MASTER) as group:
            client = await two(group)
            await client.send("New", b"1", queue_id=3)
            group.kill("m")
            await group.promote("s")
            await until(lambda: is_master(group, "s"))
            client = await group.client("s")
            assert bodies(await client.pull("New", queue_id=3)) == [b"1"]

    run_in_virtual_time(main())


@pytest.mark.parametrize("properties", [{"DELAY": "3"}, {"TIMER_DELAY_SEC": "10"}])
def test_what_waits_for_a_topic_that_was_new_when_the_master_died_is_delivered(
    properties: dict[str, str],
) -> None:
    async def main() -> None:
        async with members(role=BrokerRole.SYNC_MASTER) as group:
            client = await two(group)
            await client.send("New", b"waits", queue_id=3, properties=properties)
            group.kill("m")
            await group.promote("s")
            await until(lambda: is_master(group, "s"))
            client = await group.client("s")
            await asyncio.sleep(20)
            assert bodies(await client.pull("New", queue_id=3)) == [b"waits"]

    run_in_virtual_time(main())


def test_another_id_makes_no_master_of_a_slave() -> None:
    async def main() -> None:
        async with members() as group:
            await two(group)
            await group.stop("m")
            await group.stop("s")
            await group.start("s", broker_id=0)
            assert (await group.status("s")).broker_id == 100
            reply = await group.promote("s")
            assert reply.epoch == PROMOTED - 1000
            await until(lambda: is_master(group, "s"))

    run_in_virtual_time(main())


def test_what_is_promoted_stays_the_master_when_both_are_started_again() -> None:
    async def main() -> None:
        async with members() as group:
            await two(group)
            await group.stop("m")
            await group.promote("s")
            await until(lambda: is_master(group, "s"))
            await group.stop("s")
            for first, second in (("m", "s"), ("s", "m")):
                await group.start(first, broker_id=int(first == "s"))
                await group.start(second, broker_id=int(second == "s"))
                await group.followed("s", "m")
                assert {
                    broker_id: host for broker_id, (host, _) in (await group.registered()).items()
                } == {0: "s", 100: "m"}
                await group.stop("m")
                await group.stop("s")

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("host", "reason"), [("m", "is the master already"), ("s", "its master is alive")]
)
def test_a_promotion_that_would_make_a_second_master_is_refused(host: str, reason: str) -> None:
    async def main() -> None:
        async with members() as group:
            client = await two(group)
            with pytest.raises(RefusedError, match=reason):
                await group.promote(host)
            await client.send("A", b"x")
            await group.followed("m", "s")
            assert (await group.status("s")).highest_epoch == 1

    run_in_virtual_time(main())


def test_a_forced_promotion_swaps_the_roles_while_both_are_alive() -> None:
    async def main() -> None:
        async with members() as group:
            client = await two(group)
            await group.promote("s", is_forced=True)
            await until(lambda: is_master(group, "s"), within_s=2)
            await group.followed("s", "m")
            assert (await group.status("m")).broker_id == 100
            with pytest.raises(RefusedError, match="slave"):
                await client.send("A", b"x")
            assert await log_of(group, "m") == await log_of(group, "s")
            await group.promote("m", is_forced=True)
            await until(lambda: is_master(group, "m"), within_s=2)
            await group.followed("m", "s")
            assert set(await group.registered()) == {0, 1}

    run_in_virtual_time(main())


def test_nobody_is_promoted_whom_nobody_can_tell_the_highest_epoch_but_by_force() -> None:
    async def main() -> None:
        async with members() as group:
            await two(group)
            await group.stop("m")
            await group.stop_nameserver("ns")
            with pytest.raises(RefusedError, match="nobody can be asked"):
                await group.promote("s")
            assert (await group.status("s")).role == "slave"
            reply = await group.promote("s", is_forced=True)
            assert (reply.epoch, list(reply.asked)) == (PROMOTED, [])
            await until(lambda: is_master(group, "s"))

    run_in_virtual_time(main())


def test_a_slave_that_has_less_than_another_is_not_promoted() -> None:
    async def main() -> None:
        async with members(role=BrokerRole.SYNC_MASTER) as group:
            client = await two(group)
            await group.start("t", broker_id=2)
            await group.followed("m", "t")
            group.kill("t")
            await client.send("A", b"more")
            await group.followed("m", "s")
            group.kill("s")
            group.kill("m")
            await group.start("t", broker_id=2)
            with pytest.raises(RefusedError, match=r"slaves that may have more .* \(id 1\)"):
                await group.promote("t")
            await group.start("s", broker_id=1)
            with pytest.raises(RefusedError, match="another member has the log up to"):
                await group.promote("t")
            await group.promote("s")
            await until(lambda: is_master(group, "s"))
            await group.followed("s", "t")

    run_in_virtual_time(main())


def test_offsets_beyond_the_end_of_the_promoted_log_are_set_to_it_and_told() -> None:
    async def main() -> None:
        async with members() as group:
            await two(group)
            await group.stop("m")
            await commit(await group.client("s"), "ahead", 20)
            await commit(await group.client("s"), "behind", 7)
            await group.stop("s")
            path = Path("/broker/config/consumerOffset.json")
            kept = json.loads(group.disks["s"].nodes[path].data.tobytes())
            kept["offsetTable"]["A@ahead"]["0"] = 25  # as when the log has lost its end
            replace_file(group.disks["s"], path, json.dumps(kept).encode())
            await group.start("s", broker_id=1)
            client = await group.client("s")
            reply = await group.promote("s")
            (clamped,) = reply.clamped
            assert (clamped.group, clamped.change.topic) == ("ahead", "A")
            assert (clamped.change.before, clamped.change.after) == (25, 20)
            await until(lambda: is_master(group, "s"))
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
    await client.call(contracts.COMMIT_OFFSETS, request)


async def offset_of(client: Client, group: str) -> int:
    """Return how far a group is."""
    request = groups.QueryOffsetRequest(group=group, topic="A")
    reply: groups.QueryOffsetReply = await client.call(contracts.QUERY_OFFSET, request)
    return reply.offset


@pytest.mark.parametrize("after_ms", range(0, 44, 4))
def test_a_loss_of_power_during_a_promotion_leaves_a_slave_or_a_master(after_ms: int) -> None:
    async def main() -> None:
        async with members() as group:
            await two(group)
            await group.stop("m")
            promoting = asyncio.ensure_future(group.promote("s"))
            await asyncio.sleep(1 + after_ms / 1000)  # who does not answer is waited for first
            group.lose_power("s", seed=after_ms)
            reply = (await asyncio.gather(promoting, return_exceptions=True))[0]
            await group.start("s", broker_id=1)
            status = await group.status("s")
            if not isinstance(reply, BaseException):
                assert status.role != "slave"
                assert status.highest_epoch >= PROMOTED
            if status.role == "slave":
                assert status.highest_epoch == 1
                await group.promote("s")
                await until(lambda: is_master(group, "s"))
            client = await group.client("s")
            await client.send("A", b"new", queue_id=0)
            await group.start("m")
            await group.followed("s", "m")
            assert await log_of(group, "m") == await log_of(group, "s")

    run_in_virtual_time(main())


def test_a_producer_goes_on_with_the_promoted_slave_over_its_open_connections() -> None:
    async def main() -> None:
        async with members() as group:
            client = await two(group, messages=0)
            async with Producer(
                "senders", nameserver="ns:9876", env=group.environment("producer")
            ) as producer:
                sent: list[bytes] = []
                failed: list[TernError] = []
                for number in range(60):
                    if number == 20:
                        await group.promote("s", is_forced=True)
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
            await group.followed("s", "m")
            stored = await read_all(await group.client("s"))
            # What the old master acknowledged before it was told is lost with its log.
            lost = [body for body in sent if body not in stored]
            assert all(20 <= int(body) < 40 for body in lost), lost
            assert await log_of(group, "m") == await log_of(group, "s")
            await client.connection.close()

    run_in_virtual_time(main())


def test_what_waits_at_the_master_is_delivered_by_the_promoted_slave() -> None:
    async def main() -> None:
        async with members() as group:
            client = await two(group, messages=0)
            sent_ms = VirtualClock().wall_ms()
            await client.send("A", b"delayed", properties={"DELAY": "5"})  # a minute
            await client.send("A", b"timed", properties={"TIMER_DELAY_SEC": "50"})
            await client.send("A", b"short", properties={"DELAY": "1"})  # a second
            await asyncio.sleep(5)
            assert await read_all(client) == [b"short"]
            await group.followed("m", "s")
            group.kill("m")
            await group.promote("s")
            await until(lambda: is_master(group, "s"))
            client = await group.client("s")
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


def test_a_transaction_that_was_begun_at_the_old_master_ends_at_the_promoted_slave() -> None:
    async def main() -> None:
        async with members() as group:
            await two(group, messages=0)
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
                env=group.environment("producer"),
            ) as producer:
                await producer.send(Message("A", b"half"), None)
                await group.followed("m", "s")
                group.kill("m")
                await group.promote("s")
                await until(lambda: is_master(group, "s"))
                client = await group.client("s")
                await until(lambda: has(client, 1), within_s=120)
                assert decisions == [b"half"]

    run_in_virtual_time(main())
