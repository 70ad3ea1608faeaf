"""Routes, connections and sessions of one client, over a network with faults."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random

import pytest

from ternmq_client.config import ClientConfig
from ternmq_client.instance import ClientInstance
from ternmq_model.address import Address
from ternmq_model.errors import ClosedError, RefusedError, TopicNotFound, Unreachable, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import BrokerMember
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.rpc import Identity
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.toy_broker import ToyBroker
from tests.support.toy_cluster import ToyCluster
from tests.support.toy_log import TOPIC

YOUNG_S = 6
"""After that a route that was told without a change is asked again every 30 s."""


def client_of(cluster: ToyCluster, *more: str, host: str = "client") -> ClientInstance:
    config = ClientConfig(nameservers=(cluster.nameserver, *more), host_name=host)
    return ClientInstance(config, env=cluster.environment(host))


def readers(*topics: str) -> groups.ConsumerGroup:
    subscriptions = [messages.Subscription(topic=topic, expression="*") for topic in topics]
    return groups.ConsumerGroup(
        group="readers", model=groups.CLUSTERING, subscriptions=subscriptions
    )


def test_client_is_used_inside_its_block_only() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster:
            client = client_of(cluster)
            with pytest.raises(ClosedError):
                await client.broker("broker-0")
            async with client:
                with pytest.raises(ClosedError):
                    await client.__aenter__()
                await client.routes.route(TOPIC)
            with pytest.raises(ClosedError):
                _ = client.routes

    run_in_virtual_time(main())


def test_concurrent_questions_are_asked_once() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, client_of(cluster) as client:
            routes = await asyncio.gather(*(client.routes.route(TOPIC) for _ in range(20)))
            assert cluster.questions == [TOPIC]
            assert all(route is routes[0] for route in routes)
            connections = await asyncio.gather(*(client.broker("broker-0") for _ in range(20)))
            assert all(connection is connections[0] for connection in connections)

    run_in_virtual_time(main())


def test_departing_waiter_does_not_cancel_the_question() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, client_of(cluster) as client:
            first = asyncio.ensure_future(client.routes.route(TOPIC))
            second = asyncio.ensure_future(client.routes.route(TOPIC))
            await asyncio.sleep(0)
            first.cancel()
            assert (await second).topic == TOPIC

    run_in_virtual_time(main())


def test_another_nameserver_is_asked_when_one_is_silent() -> None:
    async def main() -> None:
        async with (
            ToyCluster() as cluster,
            cluster.serve_nameserver("other") as other,
            client_of(cluster, str(other.address)) as client,
        ):
            await client.routes.route(TOPIC)
            for cut, left in (("nameserver", "other"), ("other", "nameserver")):
                cluster.network.heal()
                cluster.network.partition("client", cut)
                cluster.put_topic(left, 1)
                found = await client.nameservers.topic_route(left)
                assert found.nameserver_host == left
            cluster.network.partition("client", "nameserver")
            with pytest.raises(Unreachable, match=r"nameserver:.*other:|other:.*nameserver:"):
                await client.nameservers.topic_route("third")

    run_in_virtual_time(main())


def test_topic_is_unknown_only_when_no_nameserver_knows_it() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, ToyCluster(brokers=0) as empty:
            empty.network = cluster.network
            async with empty.serve_nameserver("fresh") as fresh:
                config = ClientConfig(
                    nameservers=(str(fresh.address), cluster.nameserver), host_name="c"
                )
                async with ClientInstance(config, env=cluster.environment()) as client:
                    assert (await client.routes.route(TOPIC)).topic == TOPIC
                    with pytest.raises(TopicNotFound):
                        await client.routes.route("unknown")

    run_in_virtual_time(main())


def test_routes_are_refreshed_and_listeners_notified_of_changes_only() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, client_of(cluster) as client:
            heard: list[str] = []
            client.routes.add_listener(heard.append)
            await client.routes.route(TOPIC)
            await asyncio.sleep(YOUNG_S)
            young = len(cluster.questions)
            assert young <= 1 + YOUNG_S
            await asyncio.sleep(95)
            assert heard == [TOPIC]
            assert len(cluster.questions) == young + 3
            cluster.put_topic(TOPIC, 9)
            await asyncio.sleep(31)
            assert heard == [TOPIC, TOPIC]
            assert len((await client.routes.route(TOPIC)).write_queues()) == 9
            cluster.put_topic(TOPIC, 9, [])
            await asyncio.sleep(39)
            assert client.routes.cached(TOPIC) is None

    run_in_virtual_time(main())


def test_routes_are_kept_while_the_nameserver_cannot_answer() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, client_of(cluster) as client:
            route = await client.routes.route(TOPIC)
            cluster.nameserver_error = refusal(ResponseCode.SYSTEM_ERROR, "out of order")
            await asyncio.sleep(100)
            assert client.routes.cached(TOPIC) == route
            with pytest.raises(RefusedError, match="out of order"):
                await client.routes.route("other")
            cluster.nameserver_error = None
            cluster.put_topic(TOPIC, 9)
            await asyncio.sleep(35)
            assert client.routes.cached(TOPIC) == cluster.route(TOPIC)

    run_in_virtual_time(main())


def test_broker_is_dialled_by_name_and_must_prove_it() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, client_of(cluster) as client:
            with pytest.raises(Unreachable, match="no route has"):
                await client.broker("broker-0")
            await client.routes.route(TOPIC)
            first = await client.broker("broker-0")
            client.forget("broker-0", first)
            client.forget("broker-0", first)
            assert await client.broker("broker-0") is not first
            ours = cluster.members["broker-0"]
            cluster.members["broker-0"] = cluster.members["broker-1"]
            await asyncio.sleep(35)
            client.forget("broker-0", await client.broker("broker-0"))
            with pytest.raises(Unreachable, match="broker broker-0: "):
                await client.broker("broker-0")
            cluster.members["broker-0"] = ours
            await asyncio.sleep(1)  # the failure made it ask again
            assert (await client.broker("broker-0")).address == ours[0].endpoints[0]

    run_in_virtual_time(main())


def test_member_is_announced_everywhere_and_leaves_with_a_goodbye() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster:
            calls: list[str] = []
            async with client_of(cluster) as client:
                await client.join_group(readers(TOPIC), lambda: calls.append("changed"))
                for broker in cluster.brokers.values():
                    (hello,) = broker.sessions.hellos
                    assert hello.client_id == client.client_id
                    assert hello.consumer_groups[0] == readers(TOPIC)
                assert cluster.first.sessions.hellos[0].incarnation
                await asyncio.sleep(1)
                before = len(calls)
                await cluster.first.sessions.tell_members("readers")
                await asyncio.sleep(31)
                assert len(calls) == before + 1
                beats = cluster.brokers["broker-1"].sessions.heartbeats
                assert [len(beat.consumer_groups) for beat in beats] == [1]
                client.leave_group("readers")
                await asyncio.sleep(0.1)
                assert [len(beat.consumer_groups) for beat in beats] == [1, 0]
            assert sum(broker.sessions.goodbyes for broker in cluster.brokers.values()) == 2

    run_in_virtual_time(main())


def test_broken_session_is_reopened_by_the_same_incarnation() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, client_of(cluster) as client:
            changes: list[int] = []
            await client.join_group(readers(TOPIC), lambda: changes.append(1))
            broker = cluster.first
            await asyncio.sleep(1)
            before = len(changes)
            cluster.network.cut("broker-0")
            await asyncio.sleep(2)
            first, second = broker.sessions.hellos
            assert first == second
            assert len(changes) == before + 1  # words may have been missed meanwhile
            await cluster.stop(broker)
            await asyncio.sleep(20)
            assert len(broker.sessions.hellos) == 2
            await cluster.start(broker)
            await asyncio.sleep(10)
            assert broker.sessions.hellos == [first] * 3

    run_in_virtual_time(main())


def test_refused_session_is_raised_to_the_joining_consumer() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, client_of(cluster) as client:
            cluster.first.sessions.refusal = int(ResponseCode.INVALID_PARAMETER)
            with pytest.raises(RefusedError, match="broker-0"):
                await client.join_group(readers(TOPIC), lambda: None)

    run_in_virtual_time(main())


def test_topic_created_later_is_joined_then() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, client_of(cluster) as client:
            await client.join_group(readers("later"), lambda: None)
            assert not cluster.first.sessions.hellos
            cluster.put_topic("later", 1)
            await asyncio.sleep(3)
            assert len(cluster.first.sessions.hellos) == 1

    run_in_virtual_time(main())


def test_sessions_end_where_no_topic_is_served_any_more() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, client_of(cluster) as client:
            await client.join_group(readers(TOPIC), lambda: None)
            cluster.put_topic(TOPIC, 4, ["broker-1"])
            await asyncio.sleep(40)
            assert [broker.sessions.goodbyes for broker in cluster.brokers.values()] == [1, 0]

    run_in_virtual_time(main())


def test_joining_without_any_nameserver_fails() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, client_of(cluster) as client:
            cluster.network.partition("client", "nameserver")
            with pytest.raises(Unreachable, match="nameserver"):
                await client.join_group(readers(TOPIC), lambda: None)

    run_in_virtual_time(main())


def test_joining_succeeds_although_a_broker_is_absent() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, client_of(cluster) as client:
            await cluster.stop(cluster.first)
            await client.join_group(readers(TOPIC), lambda: None)
            assert [len(broker.sessions.hellos) for broker in cluster.brokers.values()] == [0, 1]

    run_in_virtual_time(main())


def test_two_clients_of_one_process_have_two_names() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster:
            env = cluster.environment()
            env = replace(env, random=Random(5))
            async with (
                ClientInstance(ClientConfig(), env=env) as one,
                ClientInstance(ClientConfig(), env=env) as other,
            ):
                assert one.client_id != other.client_id

    run_in_virtual_time(main())


def test_route_is_kept_while_restarted_nameservers_learn_of_brokers() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, client_of(cluster) as client:
            heard: list[str] = []
            await client.join_group(readers(TOPIC), lambda: None)
            client.routes.add_listener(heard.append)
            whole = client.routes.cached(TOPIC)
            await asyncio.sleep(YOUNG_S)
            for names, pause_s in (("0", 29), ("01", 2), ("1", 2), ("01", 60)):
                cluster.untold = {f"broker-{name}" for name in names}
                await asyncio.sleep(pause_s)
            cluster.untold = set()
            await asyncio.sleep(60)
            assert client.routes.cached(TOPIC) == whole
            assert not heard
            assert [broker.sessions.goodbyes for broker in cluster.brokers.values()] == [0, 0]

    run_in_virtual_time(main())


def test_absent_broker_is_read_on_for_thirty_seconds_and_not_written() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, client_of(cluster) as client:
            await client.routes.route(TOPIC)
            await cluster.stop(cluster.first)
            with pytest.raises(Unreachable):
                await client.broker("broker-0")
            cluster.untold = {"broker-0"}
            whole = cluster.queues
            present = [queue for queue in whole if queue.broker_name == "broker-1"]
            await asyncio.sleep(25)
            route = await client.routes.route(TOPIC)
            assert (route.read_queues(), route.write_queues()) == (whole, present)
            await asyncio.sleep(8)
            route = await client.routes.route(TOPIC)
            assert (route.read_queues(), route.write_queues()) == (present, present)

    run_in_virtual_time(main())


def test_brokers_missing_at_one_nameserver_are_asked_of_others() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, ToyCluster(brokers=0) as other:
            other.network, other.members = cluster.network, cluster.members
            other.brokers = dict(cluster.brokers)
            async with (
                other.serve_nameserver("other") as second,
                client_of(cluster, str(second.address)) as client,
            ):
                await client.routes.route(TOPIC)
                first = client.nameservers.current_host
                partial, full = (cluster, other) if first == "nameserver" else (other, cluster)
                del partial.brokers["broker-1"]
                await asyncio.sleep(100)
                assert client.routes.cached(TOPIC) == full.route(TOPIC)
                assert client.nameservers.current_host == first

    run_in_virtual_time(main())


@asynccontextmanager
async def with_slave(cluster: ToyCluster) -> AsyncGenerator[ToyBroker]:
    """Have a slave of broker-0 beside it, in the route."""
    master, slave = cluster.first, ToyBroker("broker-0", 4)
    identity = Identity("toy", master.name, 1, 0)
    async with cluster.network.host("slave").serve(
        slave.handlers(), Address("slave", 0), identity=identity
    ) as server:
        cluster.members["broker-0"] += (BrokerMember(1, (server.address,)),)
        yield slave


def test_consumers_are_members_at_slaves_too_and_producers_are_not() -> None:
    async def main() -> None:
        async with (
            ToyCluster() as cluster,
            with_slave(cluster) as slave,
            client_of(cluster) as client,
        ):
            await client.routes.route(TOPIC)
            client.sessions.put_producer("p")
            client.sessions.attend("broker-0")
            await client.sessions.attempted(timeout_s=1)
            assert (
                len(cluster.first.sessions.hellos),
                len(slave.sessions.hellos),
            ) == (1, 0)
            await client.join_group(readers(TOPIC), lambda: None)
            assert (
                len(cluster.first.sessions.hellos),
                len(slave.sessions.hellos),
            ) == (1, 1)
            assert client.sessions.say("broker-0", groups.SessionRequest())
        assert (cluster.first.sessions.goodbyes, slave.sessions.goodbyes) == (1, 1)

    run_in_virtual_time(main())


def test_readers_switch_to_a_slave_at_once_and_back_within_two_seconds() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, with_slave(cluster), client_of(cluster) as client:
            moves: list[tuple[str, int]] = []
            client.on_reader_moved(lambda name, broker_id: moves.append((name, broker_id)))
            await client.routes.route(TOPIC)
            master = await client.reader("broker-0")
            assert await client.broker("broker-0") is master
            await cluster.stop(cluster.first)
            client.forget("broker-0", master)
            slave = await client.reader("broker-0")
            assert slave.address.host == "slave"
            assert await client.reader("broker-0") is slave
            with pytest.raises(Unreachable):
                await client.broker("broker-0")
            await asyncio.sleep(20)
            await cluster.start(cluster.first)
            await asyncio.sleep(2)
            assert (await client.reader("broker-0")).address.host == "broker-0"
            assert moves == [("broker-0", 1), ("broker-0", 0)]

    run_in_virtual_time(main())


def test_restarted_broker_is_asked_last_for_members() -> None:
    async def main() -> None:
        async with (
            ToyCluster(brokers=2) as cluster,
            with_slave(cluster),
            client_of(cluster) as client,
        ):
            await client.join_group(readers(TOPIC), lambda: None)
            route = await client.routes.route(TOPIC)
            everyone = [("broker-0", 0), ("broker-0", 1), ("broker-1", 0)]
            assert client.members_to_list(route) == everyone
            await asyncio.sleep(11)
            assert client.members_to_list(route) == everyone
            cluster.network.cut("broker-0")
            await asyncio.sleep(5)
            assert client.members_to_list(route) == [*everyone[1:], everyone[0]]
            await asyncio.sleep(11)
            assert client.members_to_list(route) == everyone

    run_in_virtual_time(main())


def test_member_replaced_under_a_newer_epoch_is_left() -> None:
    async def main() -> None:
        async with (
            ToyCluster() as cluster,
            with_slave(cluster) as slave,
            client_of(cluster) as client,
        ):
            await client.routes.route(TOPIC)
            old = await client.broker("broker-0")
            listen = Address("slave", cluster.members["broker-0"][1].endpoints[0].port + 1)
            cluster.members["broker-0"] = (BrokerMember(0, (listen,), 5),)
            async with cluster.network.host("slave").serve(
                slave.handlers(), listen, identity=Identity("toy", "broker-0", 0, 5)
            ):
                await asyncio.sleep(31)
                new = await client.broker("broker-0")
                assert new is not old
                assert new.address == listen
                assert client.epoch("broker-0") == 5

    run_in_virtual_time(main())
