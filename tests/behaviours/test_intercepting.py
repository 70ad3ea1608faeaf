"""Interceptors of senders and consumers against a cluster."""

from dataclasses import replace

import pytest

from ternmq import (
    ConsumeEvent,
    ConsumeFrom,
    ConsumeOutcome,
    Message,
    Producer,
    PushConsumer,
    PushConsumerConfig,
    SendEvent,
    SendVetoed,
    StoredMessage,
)
from tests.support.sdk_place import Place, eventually

FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


class Marking:
    """Marks messages, and refuses those without a body."""

    def __init__(self) -> None:
        self.told: list[SendEvent] = []

    def before_send(self, message: Message) -> Message:
        if not message.body:
            raise ValueError("no body")
        return replace(message, properties={**message.properties, "mark": "seen"})

    def after_send(self, event: SendEvent) -> None:
        self.told.append(event)


class Watching:
    """Counts calls, and fails itself each time."""

    def __init__(self) -> None:
        self.began = 0
        self.outcomes: list[ConsumeOutcome] = []

    def before_consume(self, event: ConsumeEvent) -> None:
        self.began += len(event.messages)
        raise RuntimeError("of no importance")

    def after_consume(self, event: ConsumeEvent) -> None:
        assert event.outcome is not None
        self.outcomes.append(event.outcome)


def test_interceptors_see_change_or_refuse_every_send_and_call(place: Place) -> None:
    async def main() -> None:
        marking, watching = Marking(), Watching()
        seen: list[StoredMessage] = []

        async def listen(message: StoredMessage) -> None:
            seen.append(message)
            if len(seen) == 1:
                raise ValueError("bad luck")

        async with Producer(
            place.group, nameserver=place.nameserver, interceptors=[marking]
        ) as producer:
            for _ in range(3):
                await producer.send(Message(place.topic, b"body"))
            with pytest.raises(SendVetoed):
                await producer.send(Message(place.topic, b""))
        async with PushConsumer(
            place.group,
            place.topic,
            listener=listen,
            interceptors=[watching],
            nameserver=place.nameserver,
            config=FIRST,
        ):
            await eventually(lambda: len(watching.outcomes) >= 3)
        assert {message.properties["mark"] for message in seen} == {"seen"}
        assert [event.result is not None for event in marking.told] == [True] * 3
        assert watching.began == 3
        assert sorted(outcome.name for outcome in watching.outcomes) == [
            *("EXCEPTION", "SUCCESS", "SUCCESS"),
        ]

    place.run(main)
