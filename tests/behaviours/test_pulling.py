"""Pull consumers that are told what to read, against a cluster."""

import asyncio
from collections.abc import Sequence

import pytest

from ternmq import (
    AdminClient,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    SendResult,
    StoredMessage,
    TopicConfig,
    UsageError,
)
from tests.support.sdk_place import Place


async def fill(place: Place, bodies: Sequence[bytes]) -> list[SendResult]:
    """Send messages to the only queue that the topic has on each broker, all to one."""
    async with AdminClient(nameserver=place.nameserver) as admin:
        await admin.create_topic(TopicConfig(place.topic, 1, 1))
    async with Producer(place.group, nameserver=place.nameserver) as producer:
        return [
            await producer.send(Message(place.topic, each, sharding_key="k")) for each in bodies
        ]


async def take(reader: PullConsumer, count: int) -> list[StoredMessage]:
    """Poll until so many messages came."""
    found: list[StoredMessage] = []
    while len(found) < count:
        found += await reader.poll()
    return found


def test_pull_consumer_seeks_where_told(place: Place) -> None:
    async def main() -> None:
        early = await fill(place, [b"0", b"1", b"2"])
        await asyncio.sleep(0.05)  # so that their store times differ
        await fill(place, [b"3", b"4"])
        queue: MessageQueue = early[0].queue
        async with PullConsumer(nameserver=place.nameserver) as reader:
            assert queue in await reader.queues(place.topic)
            reader.assign([queue])
            everything = await take(reader, 5)
            assert [each.body for each in everything] == [b"0", b"1", b"2", b"3", b"4"]
            at_ms = everything[3].stored_at_ms
            assert await reader.poll(timeout_s=0.05) == []
            begins = await reader.begin_offsets([queue])
            ends = await reader.end_offsets([queue])
            assert ends[queue] - begins[queue] == 5
            assert reader.position(queue) == ends[queue]
            reader.seek(queue, early[2].queue_offset)
            assert [each.body for each in await take(reader, 3)] == [b"2", b"3", b"4"]
            await reader.seek_to_begin()
            assert (await take(reader, 5))[0].body == b"0"
            await reader.seek_to_time(at_ms)
            assert [each.body for each in await take(reader, 2)] == [b"3", b"4"]
            times = await reader.offsets_for_times({queue: at_ms})
            assert times == {queue: early[2].queue_offset + 1}
            await reader.seek_to_begin(queue)
            await reader.seek_to_end(queue)
            assert await reader.poll(timeout_s=0.1) == []
            with pytest.raises(UsageError):
                await reader.commit()
            with pytest.raises(UsageError):
                reader.seek(MessageQueue(place.topic, "nobody", 0), 0)

    place.run(main)


def test_committed_offset_is_where_next_reader_begins(place: Place) -> None:
    async def main() -> None:
        sent = await fill(place, [b"%d" % each for each in range(6)])
        queue = sent[0].queue
        async with PullConsumer(place.group, nameserver=place.nameserver) as reader:
            reader.assign([queue])
            assert not await reader.committed(queue)  # none, or the begin of a young queue
            first = await reader.poll(messages_max=2)
            assert await reader.commit()
            assert await reader.committed(queue) == first[-1].queue_offset + 1
            reader.pause(queue)
            assert await reader.poll(timeout_s=0.1) == []
            reader.resume(queue)
            await take(reader, 6 - len(first))  # and commits nothing of it
        async with PullConsumer(place.group, nameserver=place.nameserver) as reader:
            reader.assign([queue])
            assert (await take(reader, 1))[0].queue_offset == first[-1].queue_offset + 1

    place.run(main)


def test_columns_hold_the_messages_of_a_queue(place: Place) -> None:
    pytest.importorskip("pyarrow")

    async def main() -> None:
        bodies = [b"%d" % each for each in range(20)] + [b"long " * 2000]
        sent = await fill(place, bodies)
        async with PullConsumer(place.group, nameserver=place.nameserver) as reader:
            reader.assign([sent[0].queue])
            found: list[bytes | None] = []
            offsets: list[int | None] = []
            while len(found) < len(bodies):
                batch = await reader.poll_columns(columns=["body", "queueOffset"])
                found += batch.column("body").to_pylist()
                offsets += batch.column("queueOffset").to_pylist()
            assert found == bodies
            assert offsets == [each.queue_offset for each in sent]
            assert await reader.commit()
            assert await reader.committed(sent[0].queue) == sent[-1].queue_offset + 1

    place.run(main)
