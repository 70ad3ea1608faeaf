"""Questions to a whole cluster in which some registered brokers give no answer."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import pytest

from ternmq_client.admin.admin_calls import gather
from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.descriptions import BrokersUnreachable, UnreachableBroker
from ternmq_client.config import ClientConfig
from ternmq_model.address import Address
from ternmq_model.errors import RefusedError, Unreachable, UsageError, refusal
from ternmq_model.group_settings import GroupSettings
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import TopicConfig
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_remoting import service_methods
from ternmq_remoting.rpc import Call, Connection, Identity, unary
from ternmq_testing.memory.memory_network import MemoryHost
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time
from tests.support.brokers import CONFIG
from tests.support.simulated_cluster import NAMESERVER, PORT, SimulatedCluster, simulated_cluster

ASKED: Final = (
    service_methods.DESCRIBE_GROUP,
    service_methods.DESCRIBE_STATISTICS,
    service_methods.DESCRIBE_TOPIC,
    service_methods.LIST_GROUPS,
    service_methods.LIST_PRODUCERS,
    service_methods.QUERY_MESSAGES,
    service_methods.VIEW_MESSAGE,
)
SILENT: Final = ["closed", "hole", "refusing", "slow"]
PATIENCE_S: Final = 1.0 + 3.0
"""A client's own, to connect and for a request; brokers are asked side by side."""


async def register(cluster: SimulatedCluster, name: str, broker_id: int = 0) -> None:
    """Register a broker that a test plays, or that there is not."""
    connection = await cluster.network.connect([Address("ns", 9876)])
    request = nameserver.RegisterBrokerRequest(
        cluster=CONFIG.cluster,
        broker_name=name,
        broker_id=broker_id,
        endpoints=[common.Endpoint(host=name, port=PORT + broker_id)],
        data_version=common.DataVersion(timestamp_ms=1),
        incarnation="1",
    )
    await connection.call(service_methods.REGISTER_BROKER, request, timeout_s=3.0)
    await connection.close()


@asynccontextmanager
async def silent_brokers(
    cluster: SimulatedCluster, names: Sequence[str] = SILENT
) -> AsyncGenerator[None]:
    """Register brokers that refuse connections, are cut off, answer too late, or refuse to tell."""

    async def answer_late(_request: Any, _call: Call) -> Any:
        await asyncio.sleep(60)

    async def refuse(_request: Any, _call: Call) -> Any:
        raise refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker is leaving")

    answers = {"slow": answer_late, "refusing": refuse, "hole": refuse}
    async with AsyncExitStack() as stack:
        for name in names:
            await register(cluster, name)
            if name in answers:
                serving = cluster.network.host(name).serve(
                    [unary(rpc, answers[name]) for rpc in ASKED],  # type: ignore[misc]
                    Address("0.0.0.0", PORT),
                    identity=Identity(CONFIG.cluster, name, 0, 0),
                )
                await stack.enter_async_context(serving)
        cluster.network.partition("admin", "hole")
        yield


@asynccontextmanager
async def admin_of(cluster: SimulatedCluster) -> AsyncGenerator[AdminClient]:
    config = ClientConfig(nameservers=(NAMESERVER,))
    async with AdminClient(client=config, env=cluster.environment("admin")) as admin:
        await admin.create_topic(TopicConfig("orders", 1, 1))
        async with cluster.producer() as producer:
            await cluster.send(producer, "orders")
        await admin.put_group(GroupSettings("G"))
        await admin.reset_offsets("G", "orders", first=True)
        yield admin


def names(unreachable: Sequence[UnreachableBroker]) -> list[str]:
    return [each.broker_name for each in unreachable]


def test_silent_brokers_cost_every_question_a_line_each_and_bounded_time() -> None:
    async def main() -> None:
        clock = VirtualClock()
        async with (
            simulated_cluster() as cluster,
            admin_of(cluster) as admin,
            silent_brokers(cluster),
        ):
            began_ms = clock.monotonic_ms()
            described = await admin.describe_group("G")
            assert [each.queue.broker_name for each in described.progress] == ["a", "b"]
            assert names(described.unreachable) == SILENT
            assert clock.monotonic_ms() - began_ms <= 1000 * PATIENCE_S + 100
            assert [each.addresses for each in described.unreachable] == [
                (f"{name}:{PORT}",) for name in SILENT
            ]
            assert "the broker is leaving" in str(described.unreachable[2])
            assert all(str(each).count("broker ") == 1 for each in described.unreachable[:2])
            topic = await admin.describe_topic("orders")
            assert [name for name, _ in topic.configs] == ["a", "b"]
            assert names(topic.unreachable) == SILENT
            groups = await admin.groups()
            assert (groups, names(groups.unreachable)) == (["G"], SILENT)
            producers = await admin.producers()
            assert names(producers.unreachable) == SILENT
            offsets = await admin.offsets_at("orders", 0)
            assert [queue for queue, _ in offsets] == [
                MessageQueue("orders", name, 0) for name in ("a", "b")
            ]
            assert names(offsets.unreachable) == SILENT
            counted = await admin.statistics(name="BROKER_PUT_NUMS")
            assert {name for name, _ in counted} == {"a", "b"}
            assert names(counted.unreachable) == SILENT
            (place,) = [each.queue for each in topic.queues if each.max_offset]
            (sent,) = await admin.messages_at(place, 0)
            found = await admin.query_messages("orders", sent.message_id)
            assert ([each.body for each in found], names(found.unreachable)) == (
                [sent.body],
                SILENT,
            )
            assert (await admin.message(sent.offset_message_id)).body == sent.body

    run_in_virtual_time(main())


def test_time_of_a_question_does_not_grow_with_the_groups_it_is_about() -> None:
    async def main() -> None:
        clock = VirtualClock()
        async with (
            simulated_cluster() as cluster,
            admin_of(cluster) as admin,
            silent_brokers(cluster, ["hole"]),
        ):
            began_ms = clock.monotonic_ms()
            found = await admin.describe_groups(["none", *["G"] * 30])
            assert [each.group for each in found] == ["G"] * 30
            assert names(found.unreachable) == ["hole"]
            assert clock.monotonic_ms() - began_ms < 5_000

    run_in_virtual_time(main())


def test_time_of_a_question_does_not_grow_with_silent_members() -> None:
    async def main() -> None:
        clock = VirtualClock()
        async with (
            simulated_cluster() as cluster,
            admin_of(cluster) as admin,
            silent_brokers(cluster, ["hole"]),
        ):
            for broker_id in range(1, 32):
                await register(cluster, "hole", broker_id)
            began_ms = clock.monotonic_ms()
            assert names((await admin.groups()).unreachable) == ["hole"]
            assert clock.monotonic_ms() - began_ms < 4_000

    run_in_virtual_time(main())


def test_absence_is_claimed_only_when_every_broker_answers() -> None:
    async def main() -> None:
        async with (
            simulated_cluster() as cluster,
            admin_of(cluster) as admin,
            silent_brokers(cluster, ["closed"]),
        ):
            for question in (
                admin.describe_group("other"),
                admin.describe_topic("other"),
                admin.offsets_at("other", 0),
                admin.consumer_state("G", "nobody"),
                admin.query_messages("orders", "none"),
            ):
                with pytest.raises(Unreachable, match=r"broker closed \(closed:10911"):
                    await question

    run_in_virtual_time(main())


def test_question_that_no_broker_answers_fails_with_their_reasons() -> None:
    async def main() -> None:
        async with (
            simulated_cluster() as cluster,
            admin_of(cluster) as admin,
            silent_brokers(cluster, ["closed", "hole"]),
        ):
            for name in ("a", "b"):
                cluster.kill(name)
            with pytest.raises(
                Unreachable, match=r"broker a .*; broker b .*; broker closed .*hole"
            ):
                await admin.groups()
        async with simulated_cluster() as cluster, admin_of(cluster) as admin:
            with pytest.raises(RefusedError, match="INVALID_PARAMETER"):
                await admin.statistics(name="NONE_SUCH")

    run_in_virtual_time(main())


def test_changes_of_all_brokers_begin_once_every_master_is_connected() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, admin_of(cluster) as admin:
            topics, groups = await admin.topics(), await admin.groups()
            async with silent_brokers(cluster, ["closed"]):
                for change in (
                    admin.create_topic(TopicConfig("new", 1, 1)),
                    admin.put_group(GroupSettings("H")),
                    admin.delete_group("G"),
                    admin.clone_offsets("G", "H"),
                ):
                    with pytest.raises(Unreachable, match="closed:10911"):
                        await change
                assert await admin.topics() == topics
                assert list(await admin.groups()) == list(groups)

    run_in_virtual_time(main())


def test_changes_of_a_topic_ask_only_brokers_of_its_route() -> None:
    async def main() -> None:
        async with (
            simulated_cluster() as cluster,
            admin_of(cluster) as admin,
            silent_brokers(cluster),
        ):
            outcome = await admin.reset_offsets("G", "orders", last=True)
            assert [each.queue.broker_name for each in outcome.changes] == ["a", "b"]
            assert len(await admin.clone_offsets("G", "H", "orders")) == 2
            assert await admin.delete_topic("orders") == ["a", "b"]
            with pytest.raises(Unreachable):  # it may be on a broker that is not registered with it
                await admin.delete_topic("orders")

    run_in_virtual_time(main())


def test_change_that_fails_at_one_broker_tells_what_is_done_and_what_is_not() -> None:
    async def main() -> None:
        async with (
            simulated_cluster() as cluster,
            admin_of(cluster) as admin,
            silent_brokers(cluster, ["refusing"]),
        ):
            before = await admin.reset_offsets("G", "orders", first=True, dry_run=True)
            assert [each.before for each in before.changes] == [0, 0]
            await register(cluster, "z")
            late = cluster.network.host("z").serve(
                [], Address("0.0.0.0", PORT), identity=Identity(CONFIG.cluster, "z", 0, 0)
            )
            done = r"failed on broker refusing; done on a, b; not asked: z"
            copied = (
                r"failed on broker refusing; done on a \(queues before: orders 0 at -1\),"
                r" b \(queues before: orders 0 at -1\); not asked: z"
            )
            async with late:
                for change, told in (
                    (admin.create_topic(TopicConfig("new", 1, 1)), done),
                    (admin.put_group(GroupSettings("H")), done),
                    (admin.clone_offsets("G", "H"), copied),
                    (admin.delete_group("H"), done),
                ):
                    with pytest.raises(RefusedError, match=told):
                        await change

    run_in_virtual_time(main())


def test_time_of_a_question_is_bounded_however_many_brokers_are_silent() -> None:
    async def main() -> None:
        clock = VirtualClock()
        async with (
            simulated_cluster() as cluster,
            admin_of(cluster) as admin,
            silent_brokers(cluster, ["hole"]),
        ):
            for number in range(2_000):
                await register(cluster, f"hole{number}")
                cluster.network.partition("admin", f"hole{number}")
            began_ms = clock.monotonic_ms()
            described = await admin.describe_group("G")
            assert [each.queue.broker_name for each in described.progress] == ["a", "b"]
            assert len(described.unreachable) == 2_001
            assert clock.monotonic_ms() - began_ms <= 10_100
            with pytest.raises(BrokersUnreachable) as caught:
                await admin.describe_group("other")
            assert len(caught.value.brokers) == 2_001
            assert str(caught.value).endswith("; and 1993 more")
            assert len(str(caught.value)) < 2_000

    run_in_virtual_time(main())


def test_questions_are_asked_128_at_once() -> None:
    async def main() -> None:
        running = [0]

        async def question(number: int) -> int:
            running.append(running[-1] + 1)
            await asyncio.sleep(1)
            running.append(running[-1] - 1)
            return number

        assert await gather(range(300), question) == list(range(300))
        assert max(running) == 128

    run_in_virtual_time(main())


def test_questions_side_by_side_all_end_before_the_first_error_is_raised() -> None:
    ended: list[int] = []

    async def main() -> None:
        async def question(number: int) -> int:
            await asyncio.sleep(number)
            if number == 1:
                raise UsageError("one")
            ended.append(number)
            return number

        with pytest.raises(UsageError, match="one"):
            await gather(range(4), question)
        assert ended == [0, 2, 3]

    run_in_virtual_time(main())


@asynccontextmanager
async def counting_dials(
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncGenerator[tuple[AdminClient, SimulatedCluster, list[str]]]:
    """Give a client of two brokers with the hosts of brokers that are dialled."""
    connect, dials = MemoryHost.connect, list[str]()

    async def count(host: MemoryHost, addresses: Sequence[Address], **settings: Any) -> Connection:
        if host.name == "admin" and "expect" in settings:
            dials.append(addresses[0].host)
            await asyncio.sleep(0.1)
        return await connect(host, addresses, **settings)

    async with simulated_cluster() as cluster, admin_of(cluster) as admin:
        monkeypatch.setattr(MemoryHost, "connect", count)
        yield admin, cluster, dials


def test_calls_of_the_same_time_share_a_connection_to_each_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with counting_dials(monkeypatch) as (admin, _, dials):
            topics = [TopicConfig(f"topic-{each}", 1, 1) for each in range(64)]
            found = await asyncio.gather(*(admin.create_topics([each]) for each in topics))
            assert {one.brokers for (one,) in found} == {("a", "b")}
            assert sorted(dials) == ["a", "b"]
            await admin.describe_topic("orders")
            assert len(dials) == 4, "nobody held the connections any more"

    run_in_virtual_time(main())


def test_cancelled_call_leaves_its_dial_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with counting_dials(monkeypatch) as (admin, _, dials):
            topics = [TopicConfig(f"topic-{each}", 1, 1) for each in range(8)]
            first = asyncio.ensure_future(admin.create_topic(topics.pop(), brokers=["a"]))
            while not dials:
                await asyncio.sleep(0.001)
            others = [
                asyncio.ensure_future(admin.create_topic(each, brokers=["a"])) for each in topics
            ]
            await asyncio.sleep(0.05)
            first.cancel()
            assert await asyncio.gather(*others) == [["a"]] * 7
            assert dials == ["a", "a"]

    run_in_virtual_time(main())


def test_dead_broker_is_dialled_once_for_calls_of_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        clock = VirtualClock()
        async with counting_dials(monkeypatch) as (admin, cluster, dials):
            cluster.kill("b")
            for _ in range(2):
                dials.clear()
                began_ms = clock.monotonic_ms()
                found = await asyncio.gather(*(admin.describe_topic("orders") for _ in range(64)))
                assert {tuple(names(each.unreachable)) for each in found} == {("b",)}
                assert dials.count("b") == 1
                assert clock.monotonic_ms() - began_ms <= 1000 * PATIENCE_S

    run_in_virtual_time(main())


def test_address_of_the_wrong_service_is_named() -> None:
    async def test() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            env = cluster.environment("admin")
            async with AdminClient(nameserver=f"a:{PORT}", env=env) as admin:
                with pytest.raises(RefusedError, match=r"is broker a \(id 0.*, not a NameServer: "):
                    await admin.brokers()
            async with AdminClient(nameserver=NAMESERVER, env=env) as admin:
                with pytest.raises(RefusedError, match="that is the address of a NameServer"):
                    await admin.master_of(NAMESERVER)
                with pytest.raises(UsageError, match=r"must be a list: \['a'\]"):
                    await admin.create_topic(TopicConfig("t"), brokers="a")

    run_in_virtual_time(test())
