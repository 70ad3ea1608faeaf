"""Messages found again by id, key, time and place, against a cluster."""

import pytest

from ternmq import (
    AdminClient,
    Message,
    MessageNotFound,
    Producer,
    TopicConfig,
    TopicNotFound,
    UsageError,
)
from tests.support.sdk_place import Place, eventually


def test_message_is_found_by_every_kind_of_id_and_key(place: Place) -> None:
    async def main() -> None:
        async with (
            AdminClient(nameserver=place.nameserver) as admin,
            Producer(place.group, nameserver=place.nameserver) as producer,
        ):
            await admin.create_topic(TopicConfig(place.topic, 1, 1))
            first = await producer.send(Message(place.topic, b"1", keys=["order-1", "both"]))
            last = await producer.send(
                Message(place.topic, b"2", keys=["order-2", "both"]), queue=first.queue
            )

            async def is_indexed() -> bool:
                try:
                    return len(await admin.query_messages(place.topic, "both")) == 2
                except MessageNotFound:
                    return False

            await eventually(is_indexed)
            by_place = await admin.message(first.offset_message_id)
            (by_id,) = await admin.query_messages(place.topic, first.message_id, is_unique_key=True)
            (by_key,) = await admin.query_messages(place.topic, "order-1")
            (by_offset,) = await admin.messages_at(first.queue, first.queue_offset)
            for found in (by_place, by_id, by_key, by_offset):
                assert (found.body, found.message_id) == (b"1", first.message_id)
            second = (await admin.messages_at(last.queue, last.queue_offset))[0]
            found_later = await admin.query_messages(
                place.topic, "both", begin_ms=second.stored_at_ms
            )
            assert b"2" in {message.body for message in found_later}
            with pytest.raises(MessageNotFound):
                await admin.query_messages(
                    place.topic, "both", end_ms=by_place.stored_at_ms - 60_000
                )
            starts = dict(await admin.offsets_at(place.topic, by_place.stored_at_ms))
            assert starts[first.queue] == first.queue_offset
            ends = dict(await admin.offsets_at(place.topic, second.stored_at_ms + 60_000))
            assert ends[first.queue] == last.queue_offset + 1

    place.run(main)


def test_query_for_missing_message_fails_with_not_found(place: Place) -> None:
    async def main() -> None:
        async with (
            AdminClient(nameserver=place.nameserver) as admin,
            Producer(place.group, nameserver=place.nameserver) as producer,
        ):
            sent = await producer.send(Message(place.topic, b"1"))
            for data in await admin.brokers():
                alone = f"{place.topic}_{data.broker_name}"
                await admin.create_topic(TopicConfig(alone, 1, 1), brokers=[data.broker_name])
                with pytest.raises(MessageNotFound):
                    await admin.query_messages(alone, "nobody's key")
            with pytest.raises(TopicNotFound):
                await admin.query_messages(f"{place.topic}_nowhere", "nobody's key")
            with pytest.raises(UsageError):
                await admin.message("no id")
            beside = f"{sent.offset_message_id[:-1]}{int(sent.offset_message_id[-1], 16) ^ 1:X}"
            with pytest.raises(MessageNotFound):
                await admin.message(beside)
            with pytest.raises(MessageNotFound):
                await admin.query_messages(place.topic, "nobody's key")

    place.run(main)
