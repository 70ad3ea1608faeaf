"""What operators see of groups, topics, clients and single messages, against a cluster."""

import asyncio

from ternmq import (
    AdminClient,
    ClientConfig,
    ConsumeFrom,
    Message,
    Producer,
    PushConsumer,
    PushConsumerConfig,
    StoredMessage,
    TopicConfig,
)
from ternmq_client.tracing.trace_records import ConsumeBegan, ConsumeEnded, MessageSent
from tests.support.sdk_place import Place, eventually

FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


def admin_of(place: Place) -> AdminClient:
    return place.admin()


def test_consumer_lag_is_measured_in_messages_and_time(place: Place) -> None:
    async def main() -> None:
        may_go = asyncio.Event()

        async def listen(_: StoredMessage) -> None:
            await may_go.wait()

        async with (
            admin_of(place) as admin,
            Producer(place.group, nameserver=place.nameserver) as producer,
            PushConsumer(
                place.group,
                place.topic,
                listener=listen,
                nameserver=place.nameserver,
                config=FIRST,
            ) as consumer,
        ):
            await producer.send_many([Message(place.topic, b"%d" % each) for each in range(20)])
            await consumer.assigned()

            async def lag() -> tuple[int, int]:
                mine = [
                    each
                    for each in (await admin.describe_group(place.group)).progress
                    if each.queue.topic == place.topic
                ]
                return sum(each.lag for each in mine), max(
                    (each.lag_ms for each in mine), default=0
                )

            async def is_behind() -> bool:
                messages, ms = await lag()
                return messages == 20 and ms >= 200

            await eventually(is_behind)
            (member,) = (await admin.describe_group(place.group)).members
            assert dict(member.subscriptions)[place.topic] == "*"
            state = await admin.consumer_state(place.group, member.client_id)
            assert {one.topic for one in state.queues} >= {place.topic}
            assert member.client_id
            assert place.group in {each.group for each in await admin.producers(place.group)}
            may_go.set()
            await eventually(lambda: consumer.statistics().messages == 20)

            async def has_caught_up() -> bool:
                await consumer.commit()
                return await lag() == (0, 0)

            await eventually(has_caught_up)

    place.run(main)


def test_puts_and_gets_are_counted(place: Place) -> None:
    async def main() -> None:
        seen: list[StoredMessage] = []
        async with (
            admin_of(place) as admin,
            Producer(place.group, nameserver=place.nameserver) as producer,
            PushConsumer(
                place.group,
                place.topic,
                listener=seen.append,
                nameserver=place.nameserver,
                config=FIRST,
            ),
        ):
            await producer.send_many([Message(place.topic, b"%d" % each) for each in range(20)])
            await eventually(lambda: len(seen) == 20)
            puts = await admin.statistics(name="TOPIC_PUT_NUMS", key=place.topic)
            gets = await admin.statistics(name="GROUP_GET_NUMS", key=f"{place.topic}@{place.group}")
            assert {item.name for _, item in puts} == {"TOPIC_PUT_NUMS"}
            assert {item.name for _, item in gets} == {"GROUP_GET_NUMS"}

    place.run(main)


def test_message_is_traced_from_its_sender_to_its_consumer(place: Place) -> None:
    async def main() -> None:
        traces = f"{place.topic}_traces"
        traced = ClientConfig(nameservers=(place.nameserver,), trace=True, trace_topic=traces)
        seen = asyncio.Event()

        async def listen(_: StoredMessage) -> None:
            seen.set()

        async with admin_of(place) as admin:
            await admin.create_topic(TopicConfig(traces, 1, 1))
            async with (
                Producer(place.group, client=traced) as producer,
                PushConsumer(
                    place.group, place.topic, listener=listen, client=traced, config=FIRST
                ),
            ):
                sent = await producer.send(Message(place.topic, b"body", keys=["order-1"]))
                await seen.wait()

            async def is_told() -> bool:
                found = await admin.trace(sent.message_id, trace_topic=traces)
                return {type(record) for _, record in found} == {
                    MessageSent,
                    ConsumeBegan,
                    ConsumeEnded,
                }

            await eventually(is_told)

    place.run(main)
