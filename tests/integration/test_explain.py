"""`ternmq explain` against `ternmq dev`: lives of messages, as people and programs see them."""

import asyncio
from collections.abc import Generator
from typing import Final

import pytest

from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.message import Message
from ternmq_model.stored_message import StoredMessage
from ternmq_producer.producer import Producer
from tests.support.console import invoke, json_of, text_of
from tests.support.processes import ServiceProcess, running_dev

TOPIC: Final = "orders"
FIRST: Final = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    with running_dev(tmp_path_factory.mktemp("dev")) as running:
        text_of("topic", "create", TOPIC, "--queues", "1", "--nameserver", running.nameserver)
        yield running


async def send(dev: ServiceProcess, *messages: Message) -> list[str]:
    """Send messages and return their ids."""
    async with Producer("shop", nameserver=dev.nameserver) as producer:
        return [(await producer.send(one)).message_id for one in messages]


async def consume(dev: ServiceProcess, group: str, message_id: str, *, succeeds: bool) -> None:
    """Let a group have a message once."""
    got = asyncio.Event()

    async def take(message: StoredMessage) -> bool:
        if message.message_id == message_id:
            got.set()
            return succeeds
        return True

    async with PushConsumer(group, TOPIC, listener=take, config=FIRST, nameserver=dev.nameserver):
        await asyncio.wait_for(got.wait(), 60)


def test_life_of_a_message_names_each_group(dev: ServiceProcess) -> None:
    (message_id,) = asyncio.run(send(dev, Message(TOPIC, b"x", keys=("only",))))
    asyncio.run(consume(dev, "billing", message_id, succeeds=True))
    asyncio.run(consume(dev, "mail", message_id, succeeds=False))
    asked = ("--nameserver", dev.nameserver)
    told = json_of("explain", message_id, *asked)
    assert told["topics"] == [TOPIC]
    assert {one["group"]: one["state"] for one in told["groups"]} == {
        "billing": "done",
        "mail": "retrying",
    }
    assert json_of("explain", "--topic", TOPIC, "--key", "only", *asked)["events"] == told["events"]
    text = text_of("explain", message_id, "--group", "billing", "--group", "audit", *asked)
    assert f"message {message_id} of {TOPIC}" in text
    assert "group audit: not subscribed" in text
    assert "group billing: done" in text
    assert "group mail:" not in text


def test_delayed_message_is_told_before_its_time(dev: ServiceProcess) -> None:
    (message_id,) = asyncio.run(send(dev, Message(TOPIC, b"x", delay_level=18)))
    told = json_of("explain", message_id, "--nameserver", dev.nameserver)
    assert any(line.startswith(f"waits for {TOPIC} until") for line in told["storage"])


def test_key_of_several_messages_is_a_usage_error_with_their_ids(dev: ServiceProcess) -> None:
    ids = asyncio.run(send(dev, *(Message(TOPIC, b"x", keys=("same",)) for _ in range(2))))
    done = invoke("explain", "--topic", TOPIC, "--key", "same", "--nameserver", dev.nameserver)
    assert done.exit_code == 2
    assert all(each in done.stderr for each in ids)
