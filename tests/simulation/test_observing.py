"""What operators see of a cluster: how members stand, orders of queues, lag, rates, settings."""

import asyncio

import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_consumer.config import ConsumeFrom, PullConsumerConfig, PushConsumerConfig
from ternmq_consumer.pull.pull_consumer import PullConsumer
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import RefusedError, TransportError
from ternmq_model.message import Message
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.stored_message import StoredMessage
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster


def admin_of(cluster: SimulatedCluster) -> AdminClient:
    return AdminClient(nameserver=NAMESERVER, env=cluster.environment("tool"))


@pytest.mark.parametrize("in_order", [False, True])
def test_consumer_reports_its_position_in_each_queue(in_order: bool) -> None:
    async def main() -> None:
        go_on = asyncio.Event()

        async def take(_: StoredMessage) -> None:
            await go_on.wait()

        async with (
            simulated_cluster() as cluster,
            admin_of(cluster) as admin,
            cluster.producer() as producer,
        ):
            await cluster.put_topic("orders", 2)
            config = PushConsumerConfig(
                consume_from=ConsumeFrom.FIRST_OFFSET, order_per_queue=in_order
            )
            async with PushConsumer(
                "G",
                "orders",
                listener=take,
                nameserver=NAMESERVER,
                config=config,
                env=cluster.environment("consumer"),
            ) as consumer:
                await consumer.assigned()
                for number in range(40):
                    await producer.send(Message("orders", b"%d" % number))
                await asyncio.sleep(1)
                (member,) = (await admin.describe_group("G")).members
                state = await admin.consumer_state("G", member.client_id)
                mine = [one for one in state.queues if one.topic == "orders"]
                assert [(one.broker_name, one.queue_id) for one in mine] == [
                    ("a", 0),
                    ("b", 0),
                    ("a", 1),
                    ("b", 1),
                ]
                assert sum(one.messages for one in mine) == 40
                assert all(one.locked is in_order for one in mine)
                assert all(one.pulled_at_ms and not one.consumed_at_ms for one in mine)
                assert state.facts["in_hand_messages"] == "40"
                go_on.set()
                await asyncio.sleep(1)
                state = await admin.consumer_state("G", member.client_id)
                mine = [one for one in state.queues if one.topic == "orders"]
                assert all(one.consumed_at_ms for one in mine)
                assert all(one.commit_offset == one.read_offset for one in mine)
            with pytest.raises(RefusedError) as caught:
                await admin.consumer_state("G", member.client_id)
            assert caught.value.code == ResponseCode.CONSUMER_NOT_ONLINE

    run_in_virtual_time(main())


@pytest.mark.parametrize("commits_itself", [False, True])
def test_member_that_polls_reports_what_it_has_not_answered(commits_itself: bool) -> None:
    async def main() -> None:
        async with (
            simulated_cluster() as cluster,
            admin_of(cluster) as admin,
            cluster.producer() as producer,
        ):
            await cluster.put_topic("orders", 1)
            config = PullConsumerConfig(
                consume_from=ConsumeFrom.FIRST_OFFSET, auto_commit=commits_itself
            )
            async with PullConsumer(
                "G", nameserver=NAMESERVER, config=config, env=cluster.environment("consumer")
            ) as consumer:
                await consumer.subscribe("orders")
                await consumer.assigned()
                for number in range(6):
                    await producer.send(Message("orders", b"%d" % number))
                await asyncio.sleep(1)
                (member,) = (await admin.describe_group("G")).members

                async def unanswered() -> int:
                    state = await admin.consumer_state("G", member.client_id)
                    assert state.facts["auto_commit"] == str(commits_itself)
                    assert sum(each.read_offset for each in state.queues) == 6
                    counts = [(one.messages, one.commit_offset) for one in state.queues]
                    assert sum(map(sum, counts)) == 6
                    return sum(messages for messages, _ in counts)

                assert await unanswered() == 6
                polled = len(await consumer.poll(messages_max=2))
                assert await unanswered() == 6
                if commits_itself:
                    assert await consumer.poll(messages_max=1)
                else:
                    await consumer.commit()
                assert await unanswered() == 6 - polled

    run_in_virtual_time(main())


def test_senders_keep_a_topics_order_configuration_whoever_is_up() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, admin_of(cluster) as admin:
            await cluster.put_topic("orders", 4)
            await admin.set_topic_order("orders", "a:1;b:2")
            async with cluster.producer() as producer:
                queues: dict[str, MessageQueue] = {}
                for key in map(str, range(12)):
                    result = await producer.send(Message("orders", b"x", sharding_key=key))
                    queues[key] = result.queue
                assert {*queues.values()} == {
                    MessageQueue("orders", "a", 0),
                    MessageQueue("orders", "b", 0),
                    MessageQueue("orders", "b", 1),
                }
                await cluster.stop("b")
                await asyncio.sleep(300)  # nobody remembers b but the configuration
                for key, queue in queues.items():
                    sending = producer.send(Message("orders", b"x", sharding_key=key))
                    if queue.broker_name == "a":
                        assert (await sending).queue == queue
                    else:
                        with pytest.raises(TransportError, match="broker b"):
                            await sending

    run_in_virtual_time(main())


def test_wiped_broker_gets_no_messages_until_permitted_again() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, admin_of(cluster) as admin:
            await cluster.put_topic("orders", 2)
            for permission, brokers in (("r", {"b"}), ("rw", {"a", "b"})):
                change = admin.wipe_write_permission if permission == "r" else None
                await (change or admin.add_write_permission)("a")
                async with cluster.producer() as producer:
                    sent = [await producer.send(Message("orders", b"x")) for _ in range(8)]
                assert {result.queue.broker_name for result in sent} == brokers

    run_in_virtual_time(main())


def test_rates_lag_and_settings_of_every_broker_are_available() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, admin_of(cluster) as admin:
            await cluster.put_topic("orders", 1)
            async with cluster.producer() as producer:
                for _ in range(10):
                    await producer.send(Message("orders", b"x"))
            found = await admin.statistics(name="TOPIC_PUT_NUMS", key="orders")
            assert {broker: item.total for broker, item in found} == {"a": 5, "b": 5}
            assert len(await admin.statistics(name="BROKER_PUT_NUMS", broker_name="b")) == 1
            await admin.update_settings("a", {"broker.unread_max_ms": "321"})
            values = {one.name: one.value for one in await admin.settings("a")}
            assert values["broker.unread_max_ms"] == "321"
            (read,) = await admin.messages_at(MessageQueue("orders", "a", 0), 2)
            assert (read.queue_offset, read.body) == (2, b"x")
            assert await admin.messages_at(MessageQueue("orders", "a", 0), 5) == []

    run_in_virtual_time(main())
