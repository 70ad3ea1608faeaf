"""Staging producers against a cluster."""

import asyncio

import pytest

from ternmq import Message, Resolution
from ternmq_model.transaction import TransactionState
from ternmq_producer.staging import (
    BlockingStagingProducer,
    EndFailed,
    StagedMessages,
    StagingProducer,
    decode_staged,
    encode_staged,
)
from tests.behaviours.test_transactions import received
from tests.support.sdk_place import Place


def test_messages_staged_by_one_producer_are_committed_by_another(place: Place) -> None:
    messages = [
        Message(place.topic, b"%d" % number, sharding_key=f"k{number % 3}" if number % 2 else "")
        for number in range(400)
    ]
    with BlockingStagingProducer(place.group, nameserver=place.nameserver) as producer:
        staged = producer.stage(messages[:300], staged_for="q/1")
        dropped = producer.stage(messages[300:], staged_for="q/2")
        carried = encode_staged(staged)
    with BlockingStagingProducer(place.group, nameserver=place.nameserver) as producer:
        told = decode_staged(carried)
        assert told == staged
        assert producer.states(told + dropped) == [TransactionState.OPEN] * 400
        producer.end(dropped, Resolution.ROLLBACK)
        producer.end(told, Resolution.COMMIT)
        producer.end(told, Resolution.COMMIT)
        with pytest.raises(EndFailed, match="rolled back already"):
            producer.end(dropped, Resolution.COMMIT)
        states = [TransactionState.COMMITTED] * 300 + [TransactionState.ROLLED_BACK] * 100
        assert producer.states(told + dropped) == states
        assert producer.states(StagedMessages()) == []

    async def main() -> None:
        seen = await received(place, 300)
        assert sorted(message.body for message in seen) == sorted(
            one.body for one in messages[:300]
        )

    asyncio.run(main())


def test_staged_messages_roll_back_after_immunity_without_check(place: Place) -> None:
    async def main() -> None:
        async with StagingProducer(place.group, nameserver=place.nameserver) as producer:
            messages = [Message(place.topic, b"x")] * 20
            staged = await producer.stage(messages, staged_for="q/1", immunity_s=1)
            states = {TransactionState.OPEN}
            for _ in range(200):
                states = set(await producer.states(staged))
                if TransactionState.OPEN not in states:
                    break
                await asyncio.sleep(0.1)
            assert states == {TransactionState.ROLLED_BACK}

    asyncio.run(main())
