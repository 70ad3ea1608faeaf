"""What Spark's driver learns of a cluster whose services come and go."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ternmq_client.config import ClientConfig
from ternmq_consumer.offsets.offset_lookup import QueueRange
from ternmq_model.errors import PermissionRefused, TransportError, Unreachable, refusal
from ternmq_model.message import Message
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import READ_WRITE, Permission
from ternmq_pipeline.cluster.group_commits import GroupCommits
from ternmq_pipeline.cluster.reader import ClusterReader
from ternmq_pipeline.options.topics import Assign, Subscribe, SubscribePattern, TopicChoice
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.environment import Environment
from ternmq_remoting.service_methods import QUERY_OFFSET
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.numbered import TOPIC, numbered
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster
from tests.support.simulated_replicas import start_slave

QUEUES = {MessageQueue("TopicA", name, 0) for name in "ab"}
CHOICES = [Subscribe(("TopicA",)), SubscribePattern("TopicA"), Assign(tuple(sorted(QUEUES)))]
HALF = QueueRange(QueueOffset(0), QueueOffset(100))


def reader_at(env: Environment, retry_timeout_s: float = 10.0) -> ClusterReader:
    config = ClientConfig(nameservers=(NAMESERVER,))
    return ClusterReader(config, retry_timeout_s=retry_timeout_s, env=env)


def test_snapshot_reads_slave_while_master_is_away() -> None:
    async def main() -> None:
        async with numbered() as (cluster, messages):
            await messages.send(200)
            await start_slave(cluster)
            async with reader_at(cluster.environment("driver")) as reader:
                before = await reader.snapshot(Subscribe((TOPIC,)))
                assert before.answered_by_slave == frozenset()
                assert before.created.keys() == {(TOPIC, "a")}
                await cluster.stop("a")
                found = await reader.snapshot(Subscribe((TOPIC,)))
                assert found.answered_by_slave == {"a"}
                assert found.created == before.created
                assert set(found.ranges.values()) == {HALF}
                assert found.brokers == {"a"}
            async with reader_at(cluster.environment("driver2")) as fresh:
                assert (await fresh.snapshot(Subscribe((TOPIC,)))).ranges == found.ranges

    run_in_virtual_time(main())


def test_silent_broker_is_an_error_and_asked_again() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a", "b")) as cluster:
            await cluster.put_topic("TopicA", queues=1)
            choice = Subscribe(("TopicA",))
            async with reader_at(cluster.environment("driver")) as reader:
                assert len((await reader.snapshot(choice)).ranges) == 2
                cluster.network.partition("driver", "b")
                with pytest.raises(TransportError):
                    await reader.snapshot(choice)
                asking = asyncio.create_task(reader.snapshot(choice))
                await asyncio.sleep(0.5)
                cluster.network.heal()
                assert len((await asking).ranges) == 2

    run_in_virtual_time(main())


def test_question_is_repeated_when_others_drop_its_connection() -> None:
    async def main() -> None:
        async with simulated_cluster(latency_s=0.2) as cluster:
            await cluster.put_topic("TopicA", queues=1)
            queue = MessageQueue("TopicA", "a", 0)
            async with reader_at(cluster.environment("driver")) as reader:
                await reader.find_brokers(["TopicA"])
                connection = await reader.client.reader("a")
                asking = asyncio.create_task(reader.offsets_at({queue: 5}))
                await asyncio.sleep(0.1)
                reader.client.forget("a", connection)
                assert await asking == {queue: 0}

    run_in_virtual_time(main())


def test_broker_that_has_left_is_reported_as_not_registered() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a", "b")) as cluster:
            await cluster.put_topic("TopicA", queues=1)
            choice = Subscribe(("TopicA",))
            async with reader_at(cluster.environment("driver")) as reader:
                before = await reader.snapshot(choice)
                assert before.brokers == {"a", "b"}
                await cluster.stop("b")
                found = await reader.snapshot(choice, expected=before.ranges, brokers=())
                assert found.brokers == {"a"}
                assert list(found.ranges) == [MessageQueue("TopicA", "a", 0)]
                assert found.missing == frozenset()

    run_in_virtual_time(main())


def test_queue_its_broker_no_longer_has_is_absent_whatever_the_route() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await cluster.put_topic("TopicA", queues=2)
            choice = Subscribe(("TopicA",))
            async with reader_at(cluster.environment("driver")) as reader:
                before = await reader.snapshot(choice)
                assert len(before.ranges) == 2
                cluster.network.partition("a", "ns")
                await cluster.put_topic("TopicA", queues=1)
                found = await reader.snapshot(choice, expected=before.ranges, brokers=())
                assert list(found.ranges) == [MessageQueue("TopicA", "a", 0)]

    run_in_virtual_time(main())


def test_topic_that_may_not_be_read_is_refused_and_not_lost() -> None:
    async def allow(cluster: SimulatedCluster, name: str, permissions: Permission) -> None:
        client = await cluster.connect(name)
        await client.put_topic("TopicA", 2, permissions)
        await client.connection.close()
        await asyncio.sleep(1)

    async def main() -> None:
        async with simulated_cluster(brokers=("a", "b")) as cluster:
            for name in ("a", "b"):
                await allow(cluster, name, READ_WRITE)
            choice, by_pattern = Subscribe(("TopicA",)), SubscribePattern("TopicA")
            one = Assign((MessageQueue("TopicA", "a", 0),))
            async with reader_at(cluster.environment("driver")) as reader:
                before = await reader.snapshot(choice)
                assert len(before.ranges) == 4
                await allow(cluster, "a", Permission.WRITE)
                for what in (choice, by_pattern):
                    with pytest.raises(PermissionRefused, match="'TopicA' may not be read at a"):
                        await reader.snapshot(what, expected=before.ranges)
                with pytest.raises(PermissionRefused):
                    await reader.snapshot(one)
                assert len((await reader.snapshot(choice)).ranges) == 2, "what a new read can have"
                await allow(cluster, "b", Permission.WRITE)
                with pytest.raises(PermissionRefused, match="at a, b"):
                    await reader.snapshot(choice)
                assert not (await reader.snapshot(by_pattern)).ranges
                for name in ("a", "b"):
                    await allow(cluster, name, READ_WRITE)
                assert await reader.snapshot(choice, expected=before.ranges) == before

    run_in_virtual_time(main())


def test_newly_started_nameserver_is_given_time_to_learn() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a", "b")) as cluster:
            await cluster.put_topic("TopicA", queues=1)
            choice = SubscribePattern("TopicA")
            async with reader_at(cluster.environment("driver")) as reader:
                before = await reader.snapshot(choice)
            await cluster.nameservers.stop("ns")
            await cluster.nameservers.start("ns")
            async with reader_at(cluster.environment("driver2")) as fresh:
                # It knows nothing at first, then one broker, then both.
                assert (await fresh.snapshot(choice)).ranges == before.ranges
                found = await fresh.snapshot(choice, expected=before.ranges)
                assert found.ranges == before.ranges

    run_in_virtual_time(main())


def test_plan_outlasts_a_nameserver_that_is_away_and_sees_all_brokers_again() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a", "b")) as cluster:
            await cluster.put_topic("TopicA", queues=1)
            queues = {MessageQueue("TopicA", name, 0) for name in "ab"}
            await cluster.nameservers.stop("ns")
            async with reader_at(cluster.environment("driver"), 60) as fresh:
                asked = asyncio.create_task(fresh.snapshot(Subscribe(("TopicA",))))
                await asyncio.sleep(15)
                await cluster.nameservers.start("ns")
                found = await asked
                assert found.ranges.keys() == queues
                assert await fresh.offsets_at(dict.fromkeys(queues, 5)) == dict.fromkeys(queues, 0)
                nowhere = await fresh.snapshot(Subscribe(("Nowhere",)))
                assert nowhere.missing == {"topic Nowhere"}

    run_in_virtual_time(main())


def test_plan_outlasts_a_broker_that_is_killed_and_a_cluster_that_is_stopped() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await cluster.put_topic("TopicA", queues=1)
            queue = MessageQueue("TopicA", "a", 0)
            async with reader_at(cluster.environment("driver"), 60) as fresh:
                for leave in (cluster.kill, cluster.stop):
                    if (left := leave("a")) is not None:
                        await left
                    asked = asyncio.create_task(fresh.snapshot(Subscribe(("TopicA",))))
                    await asyncio.sleep(15)
                    await cluster.start("a")
                    assert list((await asked).ranges) == [queue]

    run_in_virtual_time(main())


async def leave_in_order(cluster: SimulatedCluster) -> None:
    await cluster.stop("b")


async def die(cluster: SimulatedCluster) -> None:
    cluster.kill("b")


@pytest.mark.parametrize("leave", [leave_in_order, die])
@pytest.mark.parametrize("choice", CHOICES)
def test_read_never_goes_without_a_broker_that_is_away(
    leave: Callable[[SimulatedCluster], Awaitable[None]], choice: TopicChoice
) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a", "b")) as cluster:
            await cluster.put_topic("TopicA", queues=1)
            await leave(cluster)
            async with reader_at(cluster.environment("driver"), 60) as fresh:
                asked = asyncio.create_task(fresh.snapshot(choice))
                await asyncio.sleep(15)
                await cluster.start("b")
                assert (await asked).ranges.keys() == QUEUES
            await leave(cluster)
            async with reader_at(cluster.environment("driver2"), 150) as fresh:
                # NameServers forget the broker after 120 s.
                with pytest.raises(Unreachable, match=r"broker b: is reg.*; for 15\d s \(retryTim"):
                    await fresh.snapshot(choice)

    run_in_virtual_time(main())


def test_read_remembers_a_dead_broker_that_a_new_nameserver_never_knew() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a", "b")) as cluster:
            await cluster.put_topic("TopicA", queues=1)
            cluster.kill("b")
            async with reader_at(cluster.environment("driver"), 60) as fresh:
                asked = asyncio.create_task(fresh.snapshot(Subscribe(("TopicA",))))
                await asyncio.sleep(15)
                await cluster.nameservers.stop("ns")
                await cluster.nameservers.start("ns")
                await asyncio.sleep(20)
                assert not asked.done()
                await cluster.start("b")
                assert (await asked).ranges.keys() == QUEUES

    run_in_virtual_time(main())


def test_read_waits_for_a_topic_whose_only_broker_restarts_and_not_for_others() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a", "b")) as cluster:
            client = await cluster.connect("b")
            await client.put_topic("TopicB", 1)
            await client.connection.close()
            await cluster.put_topic("TopicA", queues=1)
            await cluster.stop("b")
            async with reader_at(cluster.environment("driver"), 60) as fresh:
                asked = asyncio.create_task(fresh.snapshot(Subscribe(("TopicB",))))
                begun_ms = cluster.now_ms()
                of_a = Assign((MessageQueue("TopicA", "a", 0),))
                assert len((await fresh.snapshot(of_a)).ranges) == 1
                assert cluster.now_ms() - begun_ms < 500
                await asyncio.sleep(15)
                await cluster.start("b")
                assert list((await asked).ranges) == [MessageQueue("TopicB", "b", 0)]

    run_in_virtual_time(main())


def test_read_goes_without_a_broker_that_left_for_good_unless_it_is_named() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a", "b")) as cluster:
            await cluster.put_topic("TopicA", queues=1)
            await cluster.stop("b")
            await asyncio.sleep(150)
            async with reader_at(cluster.environment("driver"), 60) as fresh:
                found = await fresh.snapshot(Subscribe(("TopicA",)))
                assert list(found.ranges) == [MessageQueue("TopicA", "a", 0)]
                with pytest.raises(Unreachable, match=r"broker b: is registered at no Name.* 60 s"):
                    await fresh.snapshot(Assign(tuple(QUEUES)))

    run_in_virtual_time(main())


def test_stream_that_puts_up_with_loss_waits_for_a_nameserver_that_knows_nobody() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await cluster.put_topic("TopicA", queues=1)
            choice = Subscribe(("TopicA",))
            async with reader_at(cluster.environment("driver"), 20) as reader:
                expected = (await reader.snapshot(choice)).ranges
                await cluster.stop("a")
                asked = asyncio.create_task(reader.snapshot(choice, expected=expected, brokers=()))
                await asyncio.sleep(15)
                await cluster.start("a")
                assert (await asked).ranges == expected
                await cluster.stop("a")
                for lasts_s in (20, 0):  # known to be gone, it is not waited for again
                    begun_ms = cluster.now_ms()
                    gone = await reader.snapshot(choice, expected=expected, brokers=())
                    assert not gone.ranges
                    assert lasts_s <= (cluster.now_ms() - begun_ms) / 1000 < lasts_s + 2

    run_in_virtual_time(main())


def test_question_is_repeated_while_a_disk_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await cluster.put_topic("TopicA", queues=1)
            async with reader_at(cluster.environment("driver")) as reader:
                broken = [refusal(ResponseCode.SYSTEM_ERROR, "cannot read")] * 3
                ask = reader.ask

                async def ask_broken(*asked: Any) -> Any:
                    if broken:
                        raise broken.pop()
                    return await ask(*asked)

                monkeypatch.setattr(reader, "ask", ask_broken)
                assert len((await reader.snapshot(Subscribe(("TopicA",)))).ranges) == 1
                broken.append(refusal(ResponseCode.SYSTEM_ERROR, "cannot read"))
                queue = MessageQueue("TopicA", "a", 0)
                assert await reader.offsets_at({queue: 5}) == {queue: 0}

    run_in_virtual_time(main())


def test_topic_that_a_nameserver_denies_is_missing_at_once() -> None:
    async def main() -> None:
        async with (
            simulated_cluster(brokers=("a",)) as cluster,
            reader_at(cluster.environment("driver"), 60) as reader,
        ):
            begun_ms = cluster.now_ms()
            found = await reader.snapshot(Subscribe(("Nowhere",)))
            assert found.missing == {"topic Nowhere"}
            assert cluster.now_ms() - begun_ms < 500

    run_in_virtual_time(main())


def test_long_absence_ends_in_an_error_that_names_who_and_how_long() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await cluster.put_topic("TopicA", queues=1)
            choice = Subscribe(("TopicA",))
            async with reader_at(cluster.environment("driver"), 20) as reader:
                expected = (await reader.snapshot(choice)).ranges
                await cluster.stop("a")
                with pytest.raises(
                    Unreachable, match=r"no broker is registered at ns:9876; for 20"
                ):
                    await reader.snapshot(choice)
                begun_ms = cluster.now_ms()
                found = await reader.snapshot(choice, expected=expected, brokers=["a"])
                assert 20_000 <= cluster.now_ms() - begun_ms < 22_000
                assert not found.ranges, "the plan says what of it is lost"
                await cluster.nameservers.stop("ns")
                with pytest.raises(Unreachable, match=r"ns:9876.*; for 20 s \(retryTimeout\)"):
                    await reader.snapshot(choice)

    run_in_virtual_time(main())


def test_offsets_are_committed_at_every_answering_broker() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a", "b")) as cluster:
            await cluster.put_topic("TopicA", queues=1)
            queues = [MessageQueue("TopicA", name, 0) for name in "ab"]
            async with cluster.producer() as producer:
                for queue in queues:
                    await producer.send(Message("TopicA", b"x"), queue=queue)
            async with reader_at(cluster.environment("driver")) as reader:
                commits = GroupCommits(reader, "group")
                await reader.snapshot(Subscribe(("TopicA",)))
                cluster.network.partition("driver", "a")
                with pytest.raises(TransportError):
                    await commits.commit(dict.fromkeys(queues, QueueOffset(1)))
                cluster.network.heal()
            request = groups.QueryOffsetRequest(group="group", topic="TopicA")
            told = [await cluster.ask(name, QUERY_OFFSET, request) for name in "ab"]
            assert [each.offset for each in told] == [0, 1]

    run_in_virtual_time(main())


def test_missing_queue_does_not_block_commits_of_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "ternmq_pipeline")

    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await cluster.put_topic("TopicA", queues=1)
            queue = MessageQueue("TopicA", "a", 0)
            async with cluster.producer() as producer:
                await producer.send(Message("TopicA", b"x"), queue=queue)
            gone = [MessageQueue("TopicA", "a", 1), MessageQueue("TopicB", "a", 0)]
            async with reader_at(cluster.environment("driver")) as reader:
                commits = GroupCommits(reader, "group")
                await commits.commit(dict.fromkeys([*gone, queue], QueueOffset(1)))
            request = groups.QueryOffsetRequest(group="group", topic="TopicA")
            assert (await cluster.ask("a", QUERY_OFFSET, request)).offset == 1
        for one in gone:
            assert f"offset refused group=group queue={one} " in caplog.text

    run_in_virtual_time(main())
