"""Delayed and timed messages against a cluster."""

import asyncio
import time

import pytest

from ternmq import (
    ConsumeFrom,
    IllegalMessage,
    Message,
    Producer,
    PushConsumer,
    PushConsumerConfig,
    StoredMessage,
    TernError,
)
from tests.support.sdk_place import Place, eventually

FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
DAY_MS = 86_400_000


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def test_delayed_messages_come_on_time_and_never_early(place: Place) -> None:
    async def main() -> None:
        came_ms: dict[bytes, int] = {}

        def listen(message: StoredMessage) -> None:
            came_ms[message.body] = wall_ms()
            assert message.topic == place.topic

        async with (
            PushConsumer(
                place.group,
                place.topic,
                listener=listen,
                nameserver=place.nameserver,
                config=FIRST,
            ),
            Producer(place.group, nameserver=place.nameserver) as producer,
        ):
            await producer.send(Message(place.topic, b"at once"))
            began_ms = wall_ms()
            due_ms = {
                b"level": began_ms + 1000,
                b"after": began_ms + 700,
                b"at": began_ms + 900,
            }
            await asyncio.gather(
                producer.send(Message(place.topic, b"level", delay_level=1)),
                producer.send(Message(place.topic, b"after", deliver_after_ms=700)),
                producer.send(Message(place.topic, b"at", deliver_at_ms=due_ms[b"at"])),
            )
            await eventually(lambda: len(came_ms) == 4)
        for body, at_ms in due_ms.items():
            # Clocks of several machines may differ a little.
            assert came_ms[body] >= at_ms - 50, body

    place.run(main)


@pytest.mark.parametrize("field", ["deliver_at_ms", "deliver_after_ms"])
def test_delivery_time_too_far_ahead_is_refused(place: Place, field: str) -> None:
    async def main() -> None:
        value = 4 * DAY_MS + (wall_ms() if field == "deliver_at_ms" else 0)
        message = Message(place.topic, b"")
        setattr(message, field, value)
        async with Producer(place.group, nameserver=place.nameserver) as producer:
            with pytest.raises(TernError) as raised:
                await producer.send(message)
            assert not raised.value.may_have_happened
            with pytest.raises(IllegalMessage, match="exclude"):
                await producer.send(Message(place.topic, b"", delay_level=1, deliver_after_ms=1000))

    place.run(main)
