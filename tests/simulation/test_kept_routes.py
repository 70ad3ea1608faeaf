"""Routes that no NameServer tells any more, and how often they are asked for."""

import asyncio

import pytest

from ternmq_client.config import ClientConfig
from ternmq_client.instance import ClientInstance
from ternmq_model.errors import TopicNotFound, Unreachable
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.toy_cluster import ToyCluster
from tests.support.toy_log import TOPIC

YOUNG_S = 6
"""After that a route that was told without a change is asked again every 30 s."""


def client_of(cluster: ToyCluster) -> ClientInstance:
    config = ClientConfig(nameservers=(cluster.nameserver,), host_name="client")
    return ClientInstance(config, env=cluster.environment("client"))


def test_absent_broker_is_written_again_before_nameservers_tell_it() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, client_of(cluster) as client:
            whole = (await client.routes.route(TOPIC)).write_queues()
            cluster.untold = {"broker-0"}
            await cluster.stop(cluster.first)
            with pytest.raises(Unreachable):
                await client.broker("broker-0")
            await asyncio.sleep(2)
            assert (await client.routes.route(TOPIC)).write_queues() != whole
            await cluster.start(cluster.first)
            await client.broker("broker-0")
            await asyncio.sleep(1)
            assert (await client.routes.route(TOPIC)).write_queues() == whole

    run_in_virtual_time(main())


def test_topic_unknown_to_nameservers_is_kept_until_its_brokers_deny_it() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, client_of(cluster) as client:
            whole = await client.routes.route(TOPIC)
            cluster.untold = {"broker-0", "broker-1"}
            for broker in cluster.brokers.values():
                await cluster.stop(broker)
            await asyncio.sleep(300)
            assert await client.routes.route(TOPIC) == whole
            for broker in cluster.brokers.values():
                await cluster.start(broker)
                await client.broker(broker.name)
            await asyncio.sleep(2)
            assert await client.routes.route(TOPIC) == whole
            cluster.first.delete_topic()
            await asyncio.sleep(2)
            assert {each.broker_name for each in (await client.routes.route(TOPIC)).queues} == {
                "broker-1"
            }
            cluster.brokers["broker-1"].delete_topic()
            await asyncio.sleep(2)
            with pytest.raises(TopicNotFound):
                await client.routes.route(TOPIC)

    run_in_virtual_time(main())


async def names_of(client: ClientInstance) -> list[str]:
    return [data.broker_name for data in (await client.routes.route(TOPIC)).queues]


@pytest.mark.parametrize("brokers", [1, 2])
def test_untold_broker_that_answers_is_kept_until_it_is_silent(brokers: int) -> None:
    async def main() -> None:
        async with ToyCluster(brokers=brokers) as cluster, client_of(cluster) as client:
            whole = await names_of(client)
            await client.broker("broker-0")
            await asyncio.sleep(YOUNG_S)
            cluster.untold = {"broker-0"}
            client.look_for("broker-0")
            await asyncio.sleep(900)
            assert await names_of(client) == whole
            await cluster.stop(cluster.first)
            await asyncio.sleep(25)
            assert await names_of(client) == whole
            await asyncio.sleep(10 if brokers > 1 else 600)
            if brokers > 1:
                assert await names_of(client) == ["broker-1"]
            else:
                with pytest.raises(TopicNotFound):
                    await names_of(client)

    run_in_virtual_time(main())


def test_each_of_two_lost_brokers_has_its_own_time() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=3) as cluster, client_of(cluster) as client:
            whole = await names_of(client)
            await asyncio.sleep(YOUNG_S)
            for name in whole[:2]:
                await cluster.stop(cluster.brokers[name])
                cluster.untold |= {name}
                client.look_for(name)
                await asyncio.sleep(25)
            assert await names_of(client) == whole[1:]
            await asyncio.sleep(10)
            assert await names_of(client) == whole[2:]

    run_in_virtual_time(main())


def test_topic_without_a_broker_for_ten_minutes_is_forgotten() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, client_of(cluster) as client:
            await client.routes.route(TOPIC)
            await cluster.stop(cluster.first)
            cluster.untold = {"broker-0"}
            await asyncio.sleep(640)
            with pytest.raises(TopicNotFound):
                await client.routes.route(TOPIC)

    run_in_virtual_time(main())


def test_route_is_asked_at_most_twice_a_second_whatever_happens() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, client_of(cluster) as client:
            await client.routes.route(TOPIC)
            await asyncio.sleep(YOUNG_S)
            before = len(cluster.questions)
            for _ in range(1000):
                client.look_for("broker-0")
                client.ask_route_again(TOPIC)
                await asyncio.sleep(0.01)
            assert 15 <= len(cluster.questions) - before <= 21

    run_in_virtual_time(main())


def test_change_during_a_question_is_asked_for_again() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, client_of(cluster) as client:
            await client.routes.route(TOPIC)
            await asyncio.sleep(YOUNG_S)
            before = len(cluster.questions)
            asking = asyncio.ensure_future(client.routes.route_now(TOPIC))
            while len(cluster.questions) == before:
                await asyncio.sleep(0.0001)
            client.ask_route_again(TOPIC)
            assert not asking.done()
            await asking
            await asyncio.sleep(1)
            assert len(cluster.questions) == before + 2

    run_in_virtual_time(main())


def test_routes_are_asked_for_when_a_member_says_that_it_is_registered() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, client_of(cluster) as client:
            group = groups.ConsumerGroup(
                group="g", subscriptions=[messages.Subscription(topic=TOPIC, expression="*")]
            )
            await client.join_group(group, lambda: None)
            await asyncio.sleep(YOUNG_S)
            before = len(cluster.questions)
            # What a later version may say is passed over.
            newer = groups.SessionReply.FromString(b"\xba\x3e\x00")
            await cluster.first.sessions.tell("g", newer)
            await asyncio.sleep(1)
            assert len(cluster.questions) == before
            told = groups.PlaceRegistered(broker_id=0, epoch=1)
            await cluster.first.sessions.tell("g", groups.SessionReply(place_registered=told))
            await asyncio.sleep(0.25)
            assert len(cluster.questions) == before + 1

    run_in_virtual_time(main())
