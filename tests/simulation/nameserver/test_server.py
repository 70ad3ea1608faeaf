"""The service and its server, over the in-memory network on virtual time."""

import asyncio
import json
from pathlib import Path
from random import Random

import pytest

from ternmq_model.errors import (
    BrokerBusy,
    CannotListen,
    ClosedError,
    InvalidParameter,
    MessageNotFound,
    RefusedError,
    StoreLocked,
    TopicNotFound,
)
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import TopicConfig, check_topic_config
from ternmq_nameserver import registration as nameserver_registration
from ternmq_nameserver import service as nameserver_service
from ternmq_nameserver.config import NameServerConfig
from ternmq_nameserver.epoch_store import EpochStore
from ternmq_nameserver.registration import TOPICS_MAX
from ternmq_nameserver.server import NameServer
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import nameserver_pb2 as pb
from ternmq_remoting import service_methods
from ternmq_remoting.converters import topic_config_from_pb
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc_latency import RpcLatencies
from ternmq_runtime.metrics.port import Scrape
from ternmq_runtime.metrics.scrape import SeriesTable
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.memory.memory_network import MemoryNetwork
from ternmq_testing.time.virtual_time import VirtualClock
from tests.support.called_nameserver import json_log, nameserver, registration, run


def test_route_is_returned_as_registered() -> None:
    async def main() -> None:
        async with nameserver() as call:
            await call(service_methods.REGISTER_BROKER, registration("t"))
            reply = await call(service_methods.GET_TOPIC_ROUTE, pb.GetTopicRouteRequest(topic="t"))
            (queues,), (broker,) = reply.route.queues, reply.route.brokers
            assert (queues.broker_name, queues.write_queues, queues.permissions) == ("a", 4, 6)
            assert (broker.cluster, broker.broker_name) == ("c", "a")
            assert broker.members[0].endpoints[0] == common.Endpoint(host="a-0", port=10911)
            clusters = await call(service_methods.GET_CLUSTER, pb.GetClusterRequest())
            assert list(clusters.brokers) == [broker]
            topics = await call(service_methods.LIST_TOPICS, pb.ListTopicsRequest(cluster="c"))
            assert list(topics.topics) == ["t"]

    run(main)


def test_silent_broker_is_forgotten_within_a_scan_of_its_expiry() -> None:
    async def main() -> None:
        async with nameserver() as call:
            route = pb.GetTopicRouteRequest(topic="t")
            await call(service_methods.REGISTER_BROKER, registration("t"))
            await asyncio.sleep(119)
            await call(service_methods.GET_TOPIC_ROUTE, route)
            await asyncio.sleep(7)
            with pytest.raises(TopicNotFound):
                await call(service_methods.GET_TOPIC_ROUTE, route)

    run(main)


def test_default_expiry_applies_to_brokers_without_their_own() -> None:
    async def main() -> None:
        async with nameserver(expiry_ms=300_000) as call:
            route = pb.GetTopicRouteRequest(topic="t")
            await call(service_methods.REGISTER_BROKER, registration("t"))
            await asyncio.sleep(299)
            await call(service_methods.GET_TOPIC_ROUTE, route)
            await asyncio.sleep(7)
            with pytest.raises(TopicNotFound):
                await call(service_methods.GET_TOPIC_ROUTE, route)

    run(main)


def test_departing_broker_is_gone_at_once_and_a_stale_goodbye_is_harmless() -> None:
    async def main() -> None:
        async with nameserver() as call:
            await call(service_methods.REGISTER_BROKER, registration("t"))
            for incarnation, left in (("life-before", ["t"]), ("life-0", [])):
                goodbye = pb.UnregisterBrokerRequest(
                    cluster="c", broker_name="a", broker_id=0, incarnation=incarnation
                )
                await call(service_methods.UNREGISTER_BROKER, goodbye)
                reply = await call(service_methods.LIST_TOPICS, pb.ListTopicsRequest())
                assert list(reply.topics) == left

    run(main)


def test_slave_learns_its_master_and_the_ordered_topics() -> None:
    async def main() -> None:
        async with nameserver() as call:
            order = pb.PutKvRequest(namespace="ORDER_TOPIC_CONFIG", key="t", value="a:4")
            await call(service_methods.PUT_KV, order)
            await call(service_methods.REGISTER_BROKER, registration("t"))
            reply = await call(service_methods.REGISTER_BROKER, registration("t", broker_id=1))
            assert list(reply.master_endpoints) == [common.Endpoint(host="a-0", port=10911)]
            assert dict(reply.order_topic_config) == {"t": "a:4"}
            route = await call(service_methods.GET_TOPIC_ROUTE, pb.GetTopicRouteRequest(topic="t"))
            assert route.route.order_topic_conf == "a:4"

    run(main)


def test_wiping_takes_the_write_permission_and_adding_returns_it() -> None:
    async def main() -> None:
        async with nameserver() as call:
            await call(service_methods.REGISTER_BROKER, registration("t", "u"))
            wipe = pb.WipeWritePermissionRequest(broker_name="a")
            assert (await call(service_methods.WIPE_WRITE_PERMISSION, wipe)).topics_changed == 2
            route = await call(service_methods.GET_TOPIC_ROUTE, pb.GetTopicRouteRequest(topic="t"))
            assert route.route.queues[0].permissions == 4
            add = pb.AddWritePermissionRequest(broker_name="a")
            assert (await call(service_methods.ADD_WRITE_PERMISSION, add)).topics_changed == 2
            route = await call(service_methods.GET_TOPIC_ROUTE, pb.GetTopicRouteRequest(topic="t"))
            assert route.route.queues[0].permissions == 6
            with pytest.raises(RefusedError) as caught:
                await call(
                    service_methods.WIPE_WRITE_PERMISSION,
                    pb.WipeWritePermissionRequest(broker_name="b"),
                )
            assert caught.value.code == ResponseCode.BROKER_NOT_EXIST

    run(main)


def test_settings_outlive_the_nameserver(tmp_path: Path) -> None:
    async def main() -> None:
        async with nameserver(tmp_path) as call:
            for key in "ab":
                await call(
                    service_methods.PUT_KV, pb.PutKvRequest(namespace="n", key=key, value="v")
                )
            await call(service_methods.DELETE_KV, pb.DeleteKvRequest(namespace="n", key="a"))
        async with nameserver(tmp_path) as call:
            one = await call(service_methods.GET_KV, pb.GetKvRequest(namespace="n", key="b"))
            assert dict(one.values) == {"b": "v"}
            whole = await call(service_methods.GET_KV, pb.GetKvRequest(namespace="n"))
            assert dict(whole.values) == {"b": "v"}
            with pytest.raises(MessageNotFound, match="no setting n/a exists"):
                await call(service_methods.GET_KV, pb.GetKvRequest(namespace="n", key="a"))

    run(main)


def test_two_nameservers_never_share_a_data_directory(tmp_path: Path) -> None:
    async def main() -> None:
        async with nameserver(tmp_path):
            with pytest.raises(StoreLocked, match=str(tmp_path)):
                async with nameserver(tmp_path):
                    pass
        async with nameserver(tmp_path):
            pass

    run(main)


def test_oversized_order_configuration_keeps_no_broker_from_registering(
    tmp_path: Path,
) -> None:
    order = {f"t{number}": "a:1;" * 100_000 + "a:1" for number in range(3)}
    text = json.dumps({"configTable": {"ORDER_TOPIC_CONFIG": order}})
    (tmp_path / "kvConfig.json").write_text(text)

    async def main() -> None:
        async with nameserver(tmp_path) as call:
            whole = pb.GetKvRequest(namespace="ORDER_TOPIC_CONFIG")
            with pytest.raises(InvalidParameter, match="namespace ORDER_TOPIC_CONFIG: 1200015"):
                await call(service_methods.GET_KV, whole)
            reply = await call(service_methods.REGISTER_BROKER, registration("t0"))
            assert not reply.order_topic_config
            route = await call(service_methods.GET_TOPIC_ROUTE, pb.GetTopicRouteRequest(topic="t0"))
            assert route.route.order_topic_conf == order["t0"]
            delete = pb.DeleteKvRequest(namespace="ORDER_TOPIC_CONFIG", key="t2")
            await call(service_methods.DELETE_KV, delete)
            assert len((await call(service_methods.GET_KV, whole)).values) == 2
            reply = await call(service_methods.REGISTER_BROKER, registration("t0"))
            assert len(reply.order_topic_config) == 2

    run(main)


def test_illegal_requests_are_refused_by_name_and_service_goes_on() -> None:
    async def main() -> None:
        async with nameserver() as call:
            too_many = registration()
            for number in range(TOPICS_MAX + 1):
                too_many.topics.add(topic=str(number))
            with pytest.raises(InvalidParameter, match="at most 65536"):
                await call(service_methods.REGISTER_BROKER, too_many)
            with pytest.raises(InvalidParameter, match=r"topic '\.\./t'"):
                await call(service_methods.REGISTER_BROKER, registration("../t"))
            with pytest.raises(InvalidParameter, match="topic ''"):
                await call(service_methods.GET_TOPIC_ROUTE, pb.GetTopicRouteRequest())
            with pytest.raises(InvalidParameter, match="cluster 'a/b'"):
                await call(service_methods.LIST_TOPICS, pb.ListTopicsRequest(cluster="a/b"))
            with pytest.raises(InvalidParameter, match="namespace ''"):
                await call(service_methods.PUT_KV, pb.PutKvRequest(key="k", value="v"))
            assert not (await call(service_methods.GET_CLUSTER, pb.GetClusterRequest())).brokers

    run(main)


def test_server_address_exists_only_while_serving_and_a_taken_one_is_refused() -> None:
    async def main() -> None:
        async with MemoryNetwork(Random(1)) as network:
            env = Environment(
                clock=VirtualClock(), network=network, random=Random(1), blocking=InlineBlocking()
            )
            server = NameServer(NameServerConfig(), env)
            with pytest.raises(ClosedError):
                _ = server.address
            async with server:
                assert server.address.port == 9876
                with pytest.raises(CannotListen, match="9876"):
                    await NameServer(NameServerConfig(), env).__aenter__()
            with pytest.raises(ClosedError):
                _ = server.address

    run(main)


def test_sixteen_brokers_coming_and_going_are_all_logged_by_name() -> None:
    names = [f"broker-{number}" for number in range(16)]

    async def main() -> None:
        async with nameserver() as call:
            for name in names:
                request = registration("t")
                request.broker_name = name
                request.endpoints[0].host = name
                await call(service_methods.REGISTER_BROKER, request)
            await asyncio.sleep(130)

    with json_log() as stream:
        run(main)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    lines = [line for line in lines if line["logger"] == "ternmq_nameserver.service"]
    for event in ("broker registered", "topics changed", "broker removed"):
        told = [line for line in lines if line["message"].startswith(event)]
        assert [line["broker"] for line in told] == names, event
    [first] = [line for line in lines if line["message"].startswith("broker registered")][:1]
    assert (first["cluster"], first["broker_id"], first["endpoints"]) == ("c", 0, "broker-0:10911")


def test_topics_and_brokers_come_in_pages_that_nothing_moves() -> None:
    async def main() -> None:
        async with nameserver() as call:
            for name in "abc":
                request = registration(*(f"{name}{number}" for number in range(3)))
                request.broker_name = name
                request.endpoints[0].host = name
                await call(service_methods.REGISTER_BROKER, request)
            first = await call(service_methods.LIST_TOPICS, pb.ListTopicsRequest(page_size=4))
            assert (list(first.topics), first.next_page_token) == (["a0", "a1", "a2", "b0"], "b0")
            gone = pb.UnregisterBrokerRequest(
                cluster="c", broker_name="b", broker_id=0, incarnation="life-0"
            )
            asked = pb.GetClusterRequest(page_size=2)
            page = await call(service_methods.GET_CLUSTER, asked)
            assert [data.broker_name for data in page.brokers] == ["a", "b"]
            await call(service_methods.UNREGISTER_BROKER, gone)
            asked.page_token = page.next_page_token
            page = await call(service_methods.GET_CLUSTER, asked)
            assert ([data.broker_name for data in page.brokers], page.next_page_token) == (
                ["c"],
                "",
            )
            behind = pb.ListTopicsRequest(page_size=4, page_token=first.next_page_token)
            last = await call(service_methods.LIST_TOPICS, behind)
            assert (list(last.topics), last.next_page_token) == (["c0", "c1", "c2"], "")
            whole = await call(service_methods.LIST_TOPICS, pb.ListTopicsRequest())
            assert (len(whole.topics), whole.next_page_token) == (6, "")
            with pytest.raises(InvalidParameter, match="page_size"):
                await call(service_methods.LIST_TOPICS, pb.ListTopicsRequest(page_size=-1))
            with pytest.raises(InvalidParameter, match="page_token"):
                await call(service_methods.GET_CLUSTER, pb.GetClusterRequest(page_token="x"))

    run(main)


def test_hostile_registrations_are_bounded_logged_seldom_and_cost_nobody_a_route() -> None:
    hostile = [
        registration(*(f"{number}-{topic}" for topic in range(1_000))) for number in range(200)
    ]
    for number, request in enumerate(hostile):
        request.broker_name = f"hostile-{number}"

    async def main() -> None:
        async with nameserver(registered_bytes_max=1 << 20) as call:
            await call(service_methods.REGISTER_BROKER, registration("t"))
            for request in hostile[:2]:
                await call(service_methods.REGISTER_BROKER, request)
            for request in hostile[2:]:
                with pytest.raises(BrokerBusy, match="registered_bytes_max"):
                    await call(service_methods.REGISTER_BROKER, request)
            grown = registration("t", *(f"mine-{topic}" for topic in range(1_000)))
            grown.data_version.counter = 1
            for _ in range(4):
                for request in hostile[:2]:
                    await call(service_methods.REGISTER_BROKER, request)
                with pytest.raises(BrokerBusy, match="broker a: "):
                    await call(service_methods.REGISTER_BROKER, grown)
                await asyncio.sleep(60)
            reply = await call(service_methods.LIST_TOPICS, pb.ListTopicsRequest())
            assert (len(reply.topics), reply.topics[-1]) == (2_001, "t")
            await asyncio.sleep(100)
            await call(service_methods.REGISTER_BROKER, grown)
            reply = await call(service_methods.LIST_TOPICS, pb.ListTopicsRequest())
            assert len(reply.topics) == 1_001

    with json_log() as stream:
        run(main)
    told = [line for line in stream.getvalue().splitlines() if "registration refused" in line]
    assert 1 <= len(told) < 100


def test_registration_answers_with_every_member_of_the_name() -> None:
    async def main() -> None:
        async with nameserver() as call:
            await call(service_methods.REGISTER_BROKER, registration("t", epoch=2))
            reply = await call(
                service_methods.REGISTER_BROKER, registration("t", broker_id=1, epoch=1)
            )
            assert [(each.broker_id, each.epoch) for each in reply.members] == [(0, 2), (1, 1)]
            assert reply.highest_epoch == 2
            assert reply.master_endpoints[0].host == "a-0"
            goodbye = pb.UnregisterBrokerRequest(
                cluster="c", broker_name="a", broker_id=0, incarnation="life-0"
            )
            await call(service_methods.UNREGISTER_BROKER, goodbye)
            reply = await call(
                service_methods.REGISTER_BROKER, registration("t", broker_id=1, epoch=1)
            )
            assert not reply.master_endpoints
            route = await call(service_methods.GET_TOPIC_ROUTE, pb.GetTopicRouteRequest(topic="t"))
            assert [each.broker_id for each in route.route.brokers[0].members] == [1]

    run(main)


def test_topics_that_become_news_while_an_epoch_is_saved_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accept = EpochStore.accept

    async def main() -> None:
        async with nameserver() as call:

            async def leave_meanwhile(
                store: EpochStore, cluster: str, broker_name: str, epoch: int
            ) -> None:
                goodbye = pb.UnregisterBrokerRequest(
                    cluster=cluster, broker_name=broker_name, incarnation="life-0"
                )
                await call(service_methods.UNREGISTER_BROKER, goodbye)
                await accept(store, cluster, broker_name, epoch)

            await call(service_methods.REGISTER_BROKER, registration("t", epoch=1))
            monkeypatch.setattr(EpochStore, "accept", leave_meanwhile)
            await call(service_methods.REGISTER_BROKER, registration("t", epoch=2))
            reply = await call(service_methods.GET_TOPIC_ROUTE, pb.GetTopicRouteRequest(topic="t"))
            assert reply.route.queues

    run(main)


def test_topics_that_a_broker_told_before_are_neither_converted_nor_checked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    converted, checked = list[str](), list[str]()

    def count_converted(config: common.TopicConfig) -> TopicConfig:
        converted.append(config.topic)
        return topic_config_from_pb(config)

    def count_checked(config: TopicConfig) -> TopicConfig:
        checked.append(config.topic)
        return check_topic_config(config)

    monkeypatch.setattr(nameserver_service, "topic_config_from_pb", count_converted)
    monkeypatch.setattr(nameserver_registration, "check_topic_config", count_checked)

    async def main() -> None:
        async with nameserver() as call:

            async def tell(*topics: str, counter: int, queues: int = 4) -> set[str]:
                request = registration(*topics)
                request.data_version.counter = counter
                request.topics[0].read_queues = queues
                converted.clear()
                checked.clear()
                await call(service_methods.REGISTER_BROKER, request)
                route = pb.GetTopicRouteRequest(topic=topics[0])
                (told,) = (await call(service_methods.GET_TOPIC_ROUTE, route)).route.queues
                assert told.read_queues == queues
                assert set(converted) == set(checked)
                return set(checked)

            assert await tell("a", "b", "c", counter=1) == {"a", "b", "c"}
            assert await tell("a", "b", "c", counter=2) == set()
            assert await tell("a", "b", "c", counter=3, queues=5) == {"a"}
            assert await tell("b", "c", "d", counter=4) == {"d"}
            assert await tell("a", "b", "c", counter=5) == {"a"}

    run(main)


def test_nameserver_shows_its_metrics_while_it_serves() -> None:
    async def main() -> None:
        clock = VirtualClock()
        async with MemoryNetwork(Random(1)) as network:
            env = Environment(
                clock=clock,
                network=network,
                random=Random(1),
                blocking=InlineBlocking(),
                rpc_latencies=RpcLatencies(clock.monotonic_s),
            )
            names = NameServer(NameServerConfig(), env)
            table = SeriesTable(10)

            async def families() -> list[str]:
                await names.collect(Scrape(table))
                return [family.name for family, *_ in table.end(names.node)]

            for _ in range(2):
                assert names.unready == "the NameServer does not listen"
                assert "ternmq_nameserver_topics" not in await families()
                async with names:
                    assert names.unready == ""
                    assert names.node == ("", "nameserver", str(names.address))
                    connection = await network.connect([names.address])
                    request = registration("t")
                    await connection.call(service_methods.REGISTER_BROKER, request, timeout_s=3)
                    found = await families()
                    assert "ternmq_nameserver_brokers" in found
                    assert "rocketmq_rpc_latency_milliseconds" in found

    run(main)
