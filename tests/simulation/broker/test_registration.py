import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ternmq_client.config import ClientConfig
from ternmq_model.address import Address
from ternmq_model.epochs import EPOCH_MAX
from ternmq_model.errors import BrokerBusy, RefusedError
from ternmq_nameserver.config import NameServerConfig
from ternmq_nameserver.server import NameServer
from ternmq_nameserver.service import NameServerService
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_remoting import service_methods
from ternmq_remoting.rpc import Call, Connection
from ternmq_testing.memory.memory_files import MemoryFileSystem
from ternmq_testing.memory.memory_network import Loss
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import World, world

PORT = 9876


@asynccontextmanager
async def nameserver_of(around: World, host: str = "ns", **settings: Any) -> AsyncGenerator[None]:
    """Run a NameServer on `host`."""
    config = NameServerConfig(listen="0.0.0.0", port=PORT, **settings)
    async with NameServer(config, around.environment(host)):
        yield


async def route(around: World, topic: str, host: str = "ns") -> common.TopicRoute:
    connection = await around.network.connect([Address(host, PORT)])
    reply = await connection.call(
        service_methods.GET_TOPIC_ROUTE, nameserver.GetTopicRouteRequest(topic=topic), timeout_s=1
    )
    return reply.route


async def brokers(around: World, host: str = "ns", name: str = "") -> list[str]:
    connection = await around.network.connect([Address(host, PORT)])
    request = nameserver.GetClusterRequest(broker_name=name)
    reply = await connection.call(service_methods.GET_CLUSTER, request, timeout_s=1)
    return [data.broker_name for data in reply.brokers]


def test_broker_is_registered_while_it_serves_and_forgotten_when_it_leaves() -> None:
    async def main() -> None:
        async with world(nameservers=("ns:9876",)) as around, nameserver_of(around):
            async with around.broker() as broker:
                assert await brokers(around) == ["broker-a"]
                data = await route(around, "TBW102")
                endpoint = data.brokers[0].members[0].endpoints[0]
                assert (endpoint.host, endpoint.port) == ("127.0.0.1", broker.address.port)
                assert data.brokers[0].members[0].epoch == 1
            assert await brokers(around) == []

    run_in_virtual_time(main())


def test_topic_has_its_route_once_created_and_none_once_deleted() -> None:
    async def main() -> None:
        async with (
            world(nameservers=("ns:9876", "ns2:9876")) as around,
            nameserver_of(around),
            nameserver_of(around, "ns2"),
            around.broker() as broker,
        ):
            client = await around.connect(broker)
            await client.put_topic("A", 3)
            for host in ("ns", "ns2"):
                assert (await route(around, "A", host)).queues[0].read_queues == 3
            await client.call(
                service_methods.DELETE_TOPIC, service_methods.DELETE_TOPIC.request(topic="A")
            )
            with pytest.raises(RefusedError, match="A"):
                await route(around, "A")

    run_in_virtual_time(main())


def test_topic_created_by_a_send_soon_has_its_route() -> None:
    async def main() -> None:
        async with (
            world(nameservers=("ns:9876",)) as around,
            nameserver_of(around),
            around.broker() as broker,
        ):
            client = await around.connect(broker)
            await client.send("New", queue_id=0)
            await asyncio.sleep(0.1)
            assert (await route(around, "New")).queues[0].write_queues == 4

    run_in_virtual_time(main())


@pytest.mark.parametrize(("away_s", "within_s"), [(20.0, 0.3), (0.1, 1.3)])
def test_starting_nameserver_knows_the_broker_within_about_a_second(
    away_s: float, within_s: float
) -> None:
    async def main() -> None:
        async with world(nameservers=("ns:9876",)) as around, around.broker():
            for _ in range(3):
                await asyncio.sleep(away_s)
                async with nameserver_of(around):
                    await asyncio.sleep(within_s)
                    assert await brokers(around) == ["broker-a"]

    run_in_virtual_time(main())


def test_absent_nameserver_delays_nothing() -> None:
    async def main() -> None:
        async with (
            world(nameservers=("ns:9876", "away:9876")) as around,
            nameserver_of(around),
        ):
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                assert (await route(around, "A")).queues
            assert loop.time() - began_s < 1
            assert await brokers(around) == []

    run_in_virtual_time(main())


def test_lost_registration_does_not_outlive_a_partition() -> None:
    async def main() -> None:
        async with (
            world(nameservers=("ns:9876",)) as around,
            nameserver_of(around),
            around.broker(),
        ):
            around.network.partition("localhost", "ns")
            await asyncio.sleep(150)
            around.network.heal()
            await asyncio.sleep(1.5)
            assert await brokers(around) == ["broker-a"]

    run_in_virtual_time(main())


def test_broker_registers_every_30_s_and_checks_its_own_name_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names: list[str] = []
    answer = NameServerService.get_cluster

    async def note(
        service: NameServerService, request: nameserver.GetClusterRequest, call: Call
    ) -> nameserver.GetClusterReply:
        names.append(request.broker_name)
        return await answer(service, request, call)

    monkeypatch.setattr(NameServerService, "get_cluster", note)

    async def main() -> None:
        async with world(nameservers=("ns:9876",)) as around, nameserver_of(around):
            calls: list[str] = []

            def count(path: str) -> Loss:
                calls.append(path)
                return Loss.NONE

            async with around.broker():
                around.network.loss = count
                await asyncio.sleep(95)
                assert calls.count(service_methods.REGISTER_BROKER.path) == 3
                assert 80 < calls.count(service_methods.GET_CLUSTER.path) <= 95
                assert set(names) == {"broker-a"}

    run_in_virtual_time(main())


def test_epoch_that_cannot_be_keeps_no_forgotten_broker_from_registering(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registered = NameServerService.register_broker
    times = 0

    async def register(
        service: NameServerService, request: nameserver.RegisterBrokerRequest, call: Call
    ) -> nameserver.RegisterBrokerReply:
        nonlocal times
        times += 1
        return await registered(service, request, call)

    async def tell(
        _service: NameServerService, _request: nameserver.GetClusterRequest, _call: Call
    ) -> nameserver.GetClusterReply:
        """Answer as an older version that has forgotten the broker, and took a stranger's epoch."""
        stranger = common.BrokerMember(broker_id=9, epoch=EPOCH_MAX + 1)
        data = common.BrokerData(
            cluster="DefaultCluster", broker_name="broker-a", members=[stranger]
        )
        return nameserver.GetClusterReply(brokers=[data])

    async def main() -> None:
        monkeypatch.setattr(NameServerService, "register_broker", register)
        monkeypatch.setattr(NameServerService, "get_cluster", tell)
        async with (
            world(nameservers=("ns:9876",)) as around,
            nameserver_of(around),
            around.broker(),
        ):
            await asyncio.sleep(5)
            assert 4 <= times <= 6  # once when it starts, and each time that it looks

    run_in_virtual_time(main())


def test_nameserver_returns_one_broker_name_when_asked_for_one() -> None:
    async def main() -> None:
        async with (
            world(nameservers=("ns:9876",)) as around,
            nameserver_of(around),
            around.broker(),
        ):
            around.files = MemoryFileSystem()
            async with around.broker(name="broker-b"):
                assert await brokers(around) == ["broker-a", "broker-b"]
                assert await brokers(around, name="broker-b") == ["broker-b"]
                assert await brokers(around, name="broker-c") == []

    run_in_virtual_time(main())


class Hog:
    """A registration that takes the NameServer's memory."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @classmethod
    async def at(cls, around: World) -> "Hog":
        return cls(await around.network.connect([Address("ns", PORT)]))

    async def take(self, topics: int) -> None:
        request = nameserver.RegisterBrokerRequest(
            cluster="c",
            broker_name="hog",
            endpoints=[common.Endpoint(host="hog", port=1)],
            data_version=common.DataVersion(counter=topics),
            topics=[
                common.TopicConfig(topic=f"{n:04}", read_queues=1, write_queues=1, permissions=6)
                for n in range(topics)
            ],
            incarnation="1",
        )
        await self._connection.call(service_methods.REGISTER_BROKER, request, timeout_s=1)


def test_change_of_a_topic_that_a_nameserver_refuses_is_no_success() -> None:
    async def main() -> None:
        async with (
            world(nameservers=("ns:9876", "ns2:9876")) as around,
            nameserver_of(around, registered_bytes_max=1 << 20),
            nameserver_of(around, "ns2"),
            around.broker() as broker,
        ):
            client = await around.connect(broker)
            await client.put_topic("A", 1)
            hog = await Hog.at(around)
            await hog.take(2_025)
            refused = (
                r"topic {}: this broker has saved the change, but NameServer ns:9876 .*bytes_max"
            )
            delete = service_methods.DELETE_TOPIC.request
            many = admin.PutTopicsRequest()
            for topic in "AP":
                many.topics.add(topic=topic, read_queues=3, write_queues=3, permissions=6)
            async with asyncio.timeout(2):  # each is answered by an attempt of its own
                with pytest.raises(BrokerBusy, match=refused.format("B")):
                    await client.put_topic("B", 1)
                with pytest.raises(BrokerBusy, match=refused.format("A")):
                    await client.put_topic("A", 2)
                with pytest.raises(BrokerBusy, match=refused.format("A P")):
                    await client.call(service_methods.PUT_TOPICS, many)
                assert (await route(around, "A")).queues[0].read_queues == 1
                assert (await route(around, "P", "ns2")).queues[0].read_queues == 3
                with pytest.raises(BrokerBusy, match=refused.format("P")):
                    await client.call(service_methods.DELETE_TOPIC, delete(topic="P"))
                with pytest.raises(RefusedError, match="no broker has topic P"):
                    await route(around, "P", "ns2")
                await client.call(service_methods.DELETE_TOPIC, delete(topic="A"))  # it fits again
            assert (await route(around, "B")).queues

    run_in_virtual_time(main())


def test_broker_that_is_refused_says_why_once_and_registers_when_there_is_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with (
            world(nameservers=("ns:9876",)) as around,
            nameserver_of(around, registered_bytes_max=1 << 20),
        ):
            hog = await Hog.at(around)
            await hog.take(2_029)
            calls: list[str] = []

            def count(path: str) -> Loss:
                calls.append(path)
                return Loss.NONE

            around.network.loss = count
            async with around.broker() as broker:
                client = await around.connect(broker)
                await asyncio.sleep(60)
                assert await brokers(around) == ["hog"]
                assert calls.count(service_methods.REGISTER_BROKER.path) <= 13
                with pytest.raises(BrokerBusy, match="topic A: this broker has saved the change"):
                    await client.put_topic("A", 1)
                await hog.take(0)
                await asyncio.sleep(5.5)
                assert await brokers(around) == ["broker-a", "hog"]
                assert (await route(around, "A")).queues

    with caplog.at_level(logging.INFO):
        run_in_virtual_time(main())
    said = [record.getMessage() for record in caplog.records]
    (refused,) = (line for line in said if line.startswith("not registered"))
    assert "broker broker-a: " in refused
    assert "nameserver.registered_bytes_max" in refused
    assert "registered again nameserver=ns:9876" in said


def test_broker_that_is_refused_says_goodbye() -> None:
    async def main() -> None:
        async with (
            world(nameservers=("ns:9876",)) as around,
            nameserver_of(around, registered_bytes_max=1 << 20),
        ):
            hog = await Hog.at(around)
            async with around.broker() as broker:
                client = await around.connect(broker)
                await hog.take(2_026)
                with pytest.raises(BrokerBusy, match="this broker has saved the change"):
                    await client.put_topic("A", 1)
                assert await brokers(around) == ["broker-a", "hog"]
            assert await brokers(around) == ["hog"]

    run_in_virtual_time(main())


def test_two_brokers_of_one_name_are_each_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> tuple[Address, Address]:
        async with (
            world(nameservers=("ns:9876",)) as around,
            nameserver_of(around),
            around.broker() as one,
        ):
            await asyncio.sleep(7.5)  # else they register at the same moments, in either order
            around.files = MemoryFileSystem()
            async with around.broker() as other:
                await asyncio.sleep(100)
                assert await brokers(around) == ["broker-a"]
                return one.address, other.address

    with caplog.at_level(logging.WARNING):
        one, other = run_in_virtual_time(main())
    said = [record.getMessage() for record in caplog.records if "another" in record.getMessage()]
    assert len(said) == 2
    for line, own, rival in ((said[0], one, other), (said[1], other, one)):
        assert line.startswith(
            "another process is registered as broker broker=broker-a broker_id=0"
        )
        assert f" address=127.0.0.1:{rival.port} own_address=127.0.0.1:{own.port} " in line


@pytest.mark.parametrize(
    "waits_for", [service_methods.REGISTER_BROKER, service_methods.GET_CLUSTER]
)
def test_hanging_nameserver_delays_neither_stop_nor_other_goodbyes(
    waits_for: Any,
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with (
            world(nameservers=("ns:9876", "hung:9876")) as around,
            nameserver_of(around),
            nameserver_of(around, "hung"),
        ):
            goodbyes_s: list[float] = []

            def hang(path: str) -> Loss:
                if path == service_methods.UNREGISTER_BROKER.path:
                    goodbyes_s.append(loop.time())
                elif path == waits_for.path and not hung.is_set():
                    hung.set()
                    return Loss.REQUEST
                return Loss.NONE if path != service_methods.UNREGISTER_BROKER.path else lost.pop(0)

            hung = asyncio.Event()
            lost = [Loss.NONE, Loss.REQUEST]
            async with around.broker():
                around.network.loss = hang
                await hung.wait()
                began_s = loop.time()
            assert loop.time() - began_s < 2.5
            assert goodbyes_s[0] - began_s < 0.1
            assert len(goodbyes_s) == 2

    run_in_virtual_time(main())


def test_creation_of_a_topic_outlasts_no_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    register = NameServerService.register_broker
    registrations = 0

    async def slowly(
        service: NameServerService, request: nameserver.RegisterBrokerRequest, call: Call
    ) -> nameserver.RegisterBrokerReply:
        nonlocal registrations
        registrations += 1
        await asyncio.sleep(0.1)
        return await register(service, request, call)

    async def main() -> None:
        async with (
            world(nameservers=("ns:9876",)) as around,
            nameserver_of(around),
            around.broker() as broker,
        ):
            client = await around.connect(broker)
            loop = asyncio.get_running_loop()

            async def create(number: int) -> float:
                await asyncio.sleep(number * 0.01)
                began_s = loop.time()
                await client.put_topic(f"topic-{number}", 1)
                await route(around, f"topic-{number}")
                return loop.time() - began_s

            assert max(await asyncio.gather(*map(create, range(200)))) < 0.3

    monkeypatch.setattr(NameServerService, "register_broker", slowly)
    run_in_virtual_time(main())
    assert registrations < 30, "those that come meanwhile share the next one"


def test_list_of_topics_is_answered_in_time_while_a_nameserver_hangs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registrations: list[Loss] = []

    def hang(path: str) -> Loss:
        if path != service_methods.REGISTER_BROKER.path:
            return Loss.NONE
        registrations.append(Loss.NONE if registrations else Loss.REQUEST)
        return registrations[-1]

    async def main() -> None:
        async with (
            world(nameservers=("ns:9876", "hung:9876")) as around,
            nameserver_of(around),
            nameserver_of(around, "hung"),
            around.broker() as broker,
        ):
            client = await around.connect(broker)
            around.network.loss = hang
            topics = [
                common.TopicConfig(topic=f"T-{each}", read_queues=1, write_queues=1, permissions=6)
                for each in range(1000)
            ]
            request = admin.PutTopicsRequest(topics=topics)
            timeout_s = ClientConfig().request_timeout_s * 0.9
            await client.call(service_methods.PUT_TOPICS, request, timeout_s)
            assert len(registrations) == 2

    run_in_virtual_time(main())
    assert "continues after the reply topics=['T-0', 'T-1', 'T-2'] count=1000" in caplog.text
