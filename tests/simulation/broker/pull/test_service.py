import asyncio
from typing import Any

import pytest

from ternmq_model.errors import InvalidParameter, MessageNotFound, RefusedError, TopicNotFound
from ternmq_model.record.format import decode_record
from ternmq_model.response_code import ResponseCode as Code
from ternmq_model.route import Permission
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting import service_methods
from ternmq_runtime.service import OwnedTasks
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import Client, bodies, serving, world


async def fill(client: Client, topic: str, *tagged: str, queue_id: int = 0) -> None:
    """Send one message for each "tag:body" or "body"."""
    for text in tagged:
        tag, _, body = text.rpartition(":")
        properties = {"TAGS": tag} if tag else {}
        await client.send(topic, body.encode(), queue_id=queue_id, properties=properties)


def only(expression: str) -> messages.Subscription:
    return messages.Subscription(expression=expression)


def test_messages_come_in_order_up_to_32_at_once() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await fill(client, "A", *map(str, range(40)))
            reply = await client.pull("A")
            assert bodies(reply) == [b"%d" % number for number in range(32)]
            assert (reply.next_offset, reply.min_offset, reply.max_offset) == (32, 0, 40)
            assert reply.suggested_broker_id == 0
            reply = await client.pull("A", 38, messages_max=100, bytes_max=1)
            assert bodies(reply) == [b"38"]

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("offset", "code", "next_offset"),
    [
        (2, Code.PULL_NOT_FOUND, 2),
        (99, Code.PULL_OFFSET_MOVED, 0),
        (-5, Code.PULL_OFFSET_MOVED, 0),
        (2**63 - 1, Code.PULL_OFFSET_MOVED, 0),
    ],
)
def test_offset_without_a_message_has_its_code(offset: int, code: Code, next_offset: int) -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await fill(client, "A", "0", "1")
            reply = await client.pull("A", offset)
            assert (reply.status.code, reply.next_offset) == (code, next_offset)

    run_in_virtual_time(main())


def test_queue_without_messages_has_its_codes() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            assert (await client.pull("A")).status.code == Code.PULL_NOT_FOUND
            moved = await client.pull("A", 3)
            assert (moved.status.code, moved.next_offset) == (Code.PULL_OFFSET_MOVED, 0)

    run_in_virtual_time(main())


def test_other_tags_are_skipped() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await fill(client, "A", "x:1", "y:2", "z:3", "4", "x:5")
            reply = await client.pull("A", subscription=only("x || z"))
            assert bodies(reply) == [b"1", b"3", b"5"]
            assert reply.next_offset == 5
            reply = await client.pull("A", subscription=only("none"))
            assert (reply.status.code, reply.next_offset) == (Code.PULL_RETRY_IMMEDIATELY, 5)

    run_in_virtual_time(main())


def test_waiting_pull_is_answered_when_a_message_arrives() -> None:
    async def main() -> None:
        async with serving(topics={"A": 2}) as (_, client), OwnedTasks() as tasks:
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            waiting = tasks.spawn(client.pull("A", wait_ms=20_000), "pull")
            await asyncio.sleep(5)
            await fill(client, "A", "elsewhere", queue_id=1)
            await asyncio.sleep(1)
            assert not waiting.done()
            await fill(client, "A", "here")
            assert bodies(await waiting) == [b"here"]
            assert 6 <= loop.time() - began_s < 6.1

    run_in_virtual_time(main())


def test_waiting_pull_is_woken_only_by_its_tags() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client), OwnedTasks() as tasks:
            waiting = tasks.spawn(client.pull("A", wait_ms=20_000, subscription=only("x")), "pull")
            await asyncio.sleep(1)
            await fill(client, "A", "y:1", "y:2")
            await asyncio.sleep(1)
            assert not waiting.done()
            await fill(client, "A", "x:3")
            reply = await waiting
            assert bodies(reply) == [b"3"]
            assert reply.next_offset == 3

    run_in_virtual_time(main())


def test_pull_waits_no_longer_than_asked_and_30_s_at_most() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client), OwnedTasks() as tasks:
            loop = asyncio.get_running_loop()
            for asked_ms, waited_s in ((2_000, 2), (600_000, 30)):
                began_s = loop.time()
                reply = await client.pull("A", wait_ms=asked_ms)
                assert reply.status.code == Code.PULL_NOT_FOUND
                assert waited_s <= loop.time() - began_s < waited_s + 0.1
            waiting = tasks.spawn(client.pull("A", wait_ms=2_000, subscription=only("x")), "pull")
            await asyncio.sleep(1)
            await fill(client, "A", "y:1")
            reply = await waiting
            assert (reply.status.code, reply.next_offset) == (Code.PULL_RETRY_IMMEDIATELY, 1)

    run_in_virtual_time(main())


def test_waiting_pull_fails_when_its_topic_is_deleted() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):

            async def delete() -> None:
                await asyncio.sleep(1)
                await client.call(service_methods.DELETE_TOPIC, admin.DeleteTopicRequest(topic="A"))

            pulling = client.pull("A", wait_ms=20_000)
            error, _ = await asyncio.gather(pulling, delete(), return_exceptions=True)
            assert isinstance(error, TopicNotFound)
            assert "'A'" in str(error)

    run_in_virtual_time(main())


def test_closing_broker_releases_waiting_pulls() -> None:
    async def main() -> None:
        async with world() as around, OwnedTasks() as tasks:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                waiting = tasks.spawn(client.pull("A", wait_ms=20_000), "pull")
                await asyncio.sleep(1)
            assert (await waiting).status.code == Code.PULL_NOT_FOUND

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("fields", "code", "says"),
    [
        ({"topic": "Unknown"}, Code.TOPIC_NOT_EXIST, "'Unknown'"),
        ({"topic": "../A"}, Code.INVALID_PARAMETER, "'../A'"),
        ({"group": "no good"}, Code.INVALID_PARAMETER, "'no good'"),
        ({"queue_id": 1}, Code.INVALID_PARAMETER, "queues 0 to 0, not 1"),
        ({"queue_id": -1}, Code.INVALID_PARAMETER, "not -1"),
        ({"topic": "WriteOnly"}, Code.NO_PERMISSION, "'WriteOnly'"),
        ({"messages_max": -1}, Code.INVALID_PARAMETER, "messages_max"),
        ({"bytes_max": -1}, Code.INVALID_PARAMETER, "bytes_max"),
        ({"wait_ms": -1}, Code.INVALID_PARAMETER, "wait_ms"),
        ({"subscription": only("||")}, Code.SUBSCRIPTION_PARSE_FAILED, "no tag"),
        ({"subscription": None, "group": "G"}, Code.SUBSCRIPTION_NOT_EXIST, "'G'"),
    ],
)
def test_bad_pull_is_refused_with_its_fault(fields: dict[str, Any], code: Code, says: str) -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await client.put_topic("WriteOnly", 1, Permission.WRITE)
            asked: dict[str, Any] = {"topic": "A"} | fields
            with pytest.raises(RefusedError, match=says) as caught:
                await client.pull(**asked)
            assert caught.value.code == code
            assert (await client.pull("A")).status.code == Code.PULL_NOT_FOUND

    run_in_virtual_time(main())


def test_held_pull_of_a_recreated_topic_ends() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client), OwnedTasks() as tasks:
            await fill(client, "A", "old")

            async def hold() -> None:
                with pytest.raises(TopicNotFound):
                    await client.pull("A", 1, wait_ms=15_000)

            held = tasks.spawn(hold(), "pull")
            await asyncio.sleep(1)
            request = admin.DeleteTopicRequest(topic="A")
            deleting = tasks.spawn(client.call(service_methods.DELETE_TOPIC, request), "delete")
            await client.put_topic("A", 1)
            await deleting
            await held

    run_in_virtual_time(main())


def view(message_id: str) -> messages.ViewMessageRequest:
    return messages.ViewMessageRequest(offset_message_id=message_id)


def test_message_is_found_by_its_offset_id() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await fill(client, "A", "first")
            sent = await client.send("A", b"second")
            reply = await client.call(service_methods.VIEW_MESSAGE, view(sent.offset_message_id))
            record = decode_record(reply.record)
            assert record is not None
            assert record.body == b"second"

    run_in_virtual_time(main())


def test_message_id_is_answered_only_by_the_broker_it_names() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            good = (await client.send("A", b"second")).offset_message_id
            for other in ("0A000001" + good[8:], good[:-1] + "1", good[:-4] + "FFFF"):
                with pytest.raises(MessageNotFound, match=other):
                    await client.call(service_methods.VIEW_MESSAGE, view(other))
            for bad in ("", "xyz", good[:-2], "F" * 32):
                with pytest.raises(InvalidParameter, match="message id"):
                    await client.call(service_methods.VIEW_MESSAGE, view(bad))

    run_in_virtual_time(main())
