"""Topics and groups, set up, changed and deleted, against a cluster."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from ternmq import (
    AdminClient,
    ConsumeFrom,
    GroupNotFound,
    Message,
    Permission,
    PermissionRefused,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    PushConsumerConfig,
    RefusedError,
    StoredMessage,
    TernError,
    TopicConfig,
    TopicNotFound,
)
from ternmq_model.group_settings import GroupSettings
from tests.support.sdk_place import Place, eventually

FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
STRICT = ProducerConfig(creates_topics=False, attempts_max=1)


def admin_of(place: Place) -> AdminClient:
    return AdminClient(nameserver=place.nameserver)


def test_topic_is_created_closed_to_senders_and_deleted(place: Place) -> None:
    async def main() -> None:
        config = TopicConfig(place.topic, read_queues=3, write_queues=3)

        async def send() -> None:
            # Each a producer of its own: none has an old route.
            async with Producer(
                place.group, nameserver=place.nameserver, config=STRICT
            ) as producer:
                await producer.send(Message(place.topic, b"1"))

        async with admin_of(place) as admin:
            brokers = await admin.create_topic(config)
            await send()
            described = await admin.describe_topic(place.topic)
            assert len(described.queues) == 3 * len(brokers)
            assert sum(each.max_offset - each.min_offset for each in described.queues) == 1
            await admin.create_topic(replace(config, permissions=Permission.READ))
            with pytest.raises(TernError) as refused:
                await send()
            assert not refused.value.may_have_happened
            await admin.create_topic(config)
            await send()
            assert place.topic in await admin.topics()
            assert sorted(await admin.delete_topic(place.topic)) == sorted(brokers)
            with pytest.raises(TopicNotFound):
                await admin.describe_topic(place.topic)
            with pytest.raises(TopicNotFound):
                await send()

    place.run(main)


def test_system_topics_are_closed_to_senders(place: Place) -> None:
    async def main() -> None:
        async with Producer(place.group, nameserver=place.nameserver, config=STRICT) as producer:
            for topic in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer"):
                with pytest.raises(TernError) as refused:
                    await producer.send(Message(topic, b""))
                assert not refused.value.may_have_happened

    place.run(main)


def test_disabled_group_gets_nothing_until_enabled(place: Place) -> None:
    async def main() -> None:
        seen: list[StoredMessage] = []
        async with (
            admin_of(place) as admin,
            Producer(place.group, nameserver=place.nameserver) as producer,
        ):
            await producer.send(Message(place.topic, b"1"))
            await admin.put_group(GroupSettings(place.group, consume_enabled=False))
            async with PushConsumer(
                place.group,
                place.topic,
                listener=seen.append,
                nameserver=place.nameserver,
                config=FIRST,
            ):
                await asyncio.sleep(0.5)  # nothing comes: there is nothing to wait for
                assert not seen
                await admin.put_group(GroupSettings(place.group, retries_max=3))
                await eventually(lambda: len(seen) == 1)
            described = await admin.describe_group(place.group)
            assert {settings.retries_max for _, settings in described.settings} == {3}

    place.run(main)


def test_group_is_cloned_protected_while_in_use_and_deleted(place: Place) -> None:
    async def main() -> None:
        other = f"{place.group}_clone"
        async with (
            admin_of(place) as admin,
            Producer(place.group, nameserver=place.nameserver) as producer,
            PullConsumer(place.group, nameserver=place.nameserver) as reader,
        ):
            sent = await producer.send(Message(place.topic, b"1"))
            await reader.subscribe(place.topic)
            taken: list[StoredMessage] = []
            while not taken:
                taken += await reader.poll()
            assert await reader.commit()
            changes = await admin.clone_offsets(place.group, other, place.topic)
            assert (sent.queue, 1) in {(each.queue, each.after) for each in changes}
            with pytest.raises(RefusedError):
                await admin.delete_group(place.group)
            assert other in await admin.groups()
            await admin.delete_group(other)
            with pytest.raises(GroupNotFound):
                await admin.delete_group(other)
            with pytest.raises(GroupNotFound):
                await admin.describe_group(other)

    place.run(main)


def test_pull_consumer_of_disabled_group_is_refused_until_enabled(place: Place) -> None:
    async def main() -> None:
        async with (
            admin_of(place) as admin,
            Producer(place.group, nameserver=place.nameserver) as producer,
        ):
            sent = await producer.send(Message(place.topic, b"1"))
            await admin.put_group(GroupSettings(place.group, consume_enabled=False))
            async with PullConsumer(place.group, nameserver=place.nameserver) as reader:
                reader.assign([sent.queue])
                with pytest.raises(PermissionRefused):
                    assert await reader.poll(timeout_s=5.0) == []
                await admin.put_group(GroupSettings(place.group))
                taken: list[StoredMessage] = []
                while not taken:
                    with suppress(PermissionRefused):  # of before
                        taken += await reader.poll()

    place.run(main)
