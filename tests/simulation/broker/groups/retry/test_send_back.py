import asyncio
from typing import Any

import numpy as np
import pytest

from ternmq_model.errors import InvalidParameter, TopicNotFound
from ternmq_model.message_batch import decode_records
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode as Code
from ternmq_model.stored_message import StoredMessage
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting import service_methods
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import Client, membership, serving, stored, world


def failed(message: StoredMessage, topic: str = "A", **fields: Any) -> groups.FailedMessage:
    told: dict[str, Any] = {
        "physical_offset": message.physical_offset,
        "message_id": message.message_id,
        "topic": topic,
        "queue_id": message.header.queue_id,
        "queue_offset": message.queue_offset,
    }
    return groups.FailedMessage(**(told | fields))


async def send_back(client: Client, *told: groups.FailedMessage, group: str = "G") -> list[int]:
    request = groups.SendBackRequest(group=group, client_id="a@1", messages=told)
    reply: groups.SendBackReply = await client.call(service_methods.SEND_BACK, request)
    return [each.code for each in reply.outcomes]


async def sent(client: Client, *bodies: bytes, topic: str = "A") -> list[StoredMessage]:
    for body in bodies:
        await client.send(topic, body, queue_id=0)
    return stored(await client.pull(topic))


async def waiting(client: Client, key: str) -> list[StoredMessage]:
    """Return the copies of a message that wait for their level, in the log's order."""
    request = messages.QueryMessagesRequest(key=key)
    reply = await client.call(service_methods.QUERY_MESSAGES, request)
    sizes = np.frombuffer(reply.record_sizes, dtype="<i4")
    found = decode_records(reply.records, sizes, MessageQueue("?", "?", 0))
    return [each for each in found if each.properties.get("REAL_TOPIC")]


async def group_settings(client: Client, **fields: Any) -> None:
    told: dict[str, Any] = {
        "group": "G",
        "consume_enabled": True,
        "broadcast_enabled": True,
        "retry_queues": 1,
        "retries_max": 16,
        "broker_id_when_slow": 1,
        "notify_members_changed": True,
    }
    settings = admin.GroupSettings(**(told | fields))
    await client.call(service_methods.PUT_GROUP, admin.PutGroupRequest(settings=settings))


async def topics_of(client: Client) -> set[str]:
    found: set[str] = set()
    for topic in ("%RETRY%G", "%DLQ%G"):
        try:
            await client.call(
                service_methods.DESCRIBE_TOPIC, admin.DescribeTopicRequest(topic=topic)
            )
            found.add(topic)
        except TopicNotFound:
            continue
    return found


def test_failed_message_waits_10_s_and_returns_unchanged() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            (message,) = await sent(client, b"body")
            assert await send_back(client, failed(message)) == [0]
            assert await topics_of(client) == {"%RETRY%G"}
            await asyncio.sleep(0.1)
            (copy,) = await waiting(client, message.message_id)
            assert copy.body == b"body"
            assert copy.reconsume_times == 1
            assert copy.message_id == message.message_id
            assert copy.properties["DELAY"] == "3"
            assert copy.properties["REAL_TOPIC"] == "%RETRY%G"
            assert copy.properties["RETRY_TOPIC"] == "A"
            assert copy.properties["ORIGIN_MESSAGE_ID"] == message.offset_message_id

    run_in_virtual_time(main())


def test_dead_letters_are_readable_at_once() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            first, second = await sent(client, b"1", b"2")
            told = failed(first, delay_level=-1), failed(second, attempts_max=5)
            assert await send_back(client, *told) == [0, 0]
            await asyncio.sleep(0.1)
            (letter,) = stored(await client.pull("%DLQ%G"))
            assert letter.body == b"1"
            assert letter.properties["DLQ_ORIGIN_TOPIC"] == "A"
            assert letter.properties["DLQ_ORIGIN_MESSAGE_ID"] == first.message_id
            assert "DELAY" not in letter.properties
            (waits,) = await waiting(client, second.message_id)
            assert waits.body == b"2"

    run_in_virtual_time(main())


def test_dead_letter_failing_in_its_own_group_becomes_another_there() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            (message,) = await sent(client, b"1")
            await send_back(client, failed(message, delay_level=-1))
            await asyncio.sleep(0.1)
            (letter,) = stored(await client.pull("%DLQ%G"))
            assert await send_back(client, failed(letter, "%DLQ%G", delay_level=-1)) == [0]
            await asyncio.sleep(0.1)
            assert len(stored(await client.pull("%DLQ%G"))) == 2

    run_in_virtual_time(main())


def test_message_that_does_not_match_the_request_stays_where_it_is() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            (message,) = await sent(client, b"body")
            outcomes = await send_back(
                client,
                failed(message, message_id="OTHER"),
                failed(message, topic="B"),
                failed(message, physical_offset=message.physical_offset + 1),
                failed(message, physical_offset=1 << 40),
                failed(message, physical_offset=-1),
                failed(message, delay_level=19),
                failed(message),
            )
            missing, wrong = Code.QUERY_NOT_FOUND, Code.INVALID_PARAMETER
            assert outcomes == [wrong, wrong, missing, missing, missing, wrong, 0]

    run_in_virtual_time(main())


def test_messages_deleted_by_retention_are_reported_as_gone() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (around, client):
            (message, *_) = await sent(client, b"x" * 1000)
            for _ in range(6):
                await client.send("A", b"x" * (1 << 20), queue_id=0)
            around.files.used = 0.91
            await asyncio.sleep(60)
            await client.call(
                service_methods.CLEAN_STORE, admin.CleanStoreRequest(), timeout_s=4000
            )
            request = groups.SendBackRequest(group="G", client_id="a@1", messages=[failed(message)])
            (outcome,) = (await client.call(service_methods.SEND_BACK, request)).outcomes
            assert outcome.code == Code.QUERY_NOT_FOUND
            assert "the log begins at" in outcome.remark
            assert await topics_of(client) == set()

    run_in_virtual_time(main())


def test_stale_lock_sends_nothing_back() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            (message,) = await sent(client, b"body")
            queue = groups.QueueLock(topic="A", queue_id=0)
            request = groups.LockQueuesRequest(group="G", client_id="a@1", queues=[queue])
            token = (await client.call(service_methods.LOCK_QUEUES, request)).locked[0].token
            stale = failed(message, lock_token=token - 1), failed(message)
            assert await send_back(client, *stale) == [Code.NO_PERMISSION] * 2
            gone = failed(message, lock_token=token - 1)
            gone.physical_offset += 1  # else the member would send a copy of what it has in hand
            assert await send_back(client, gone) == [Code.NO_PERMISSION]
            assert await send_back(client, failed(message, lock_token=token)) == [0]

    run_in_virtual_time(main())


def test_group_settings_decide_retries_queues_and_dropping() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            first, second = await sent(client, b"1", b"2")
            await group_settings(client, retries_max=0)
            assert await send_back(client, failed(first)) == [0]
            await asyncio.sleep(0.1)
            assert [each.body for each in stored(await client.pull("%DLQ%G"))] == [b"1"]
            await group_settings(client, retry_queues=0)
            assert await send_back(client, failed(second)) == [0]
            await group_settings(client, retry_queues=4)
            assert await topics_of(client) == {"%DLQ%G"}
            assert await send_back(client, failed(second)) == [0]
            request = admin.DescribeTopicRequest(topic="%RETRY%G")
            described = await client.call(service_methods.DESCRIBE_TOPIC, request)
            assert described.topic.write_queues == 4

    run_in_virtual_time(main())


def test_oversized_or_illegal_request_sends_nothing_back() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            (message,) = await sent(client, b"body")
            with pytest.raises(InvalidParameter, match="at most 1024"):
                await send_back(client, *[failed(message)] * 1025)
            request = groups.SendBackRequest(group="G@x", client_id="a@1")
            with pytest.raises(InvalidParameter):
                await client.call(service_methods.SEND_BACK, request)
            assert await topics_of(client) == set()

    run_in_virtual_time(main())


def test_unstorable_message_does_not_delay_the_others() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await client.send("A", properties={"long": "x" * 32_600}, queue_id=0)
            long, short = await sent(client, b"short")
            assert await send_back(client, failed(long), failed(short)) == [Code.MESSAGE_ILLEGAL, 0]
            (copy,) = await waiting(client, short.message_id)
            assert copy.body == b"short"

    run_in_virtual_time(main())


def test_clustering_member_creates_its_retry_topic_and_broadcasting_one_does_not() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            alone = membership("G", "A")
            alone.model = groups.BROADCASTING
            _, welcome = await client.open_session("a@1", alone)
            assert not welcome.status.code
            assert await topics_of(client) == set()
            await client.open_session("b@1", membership("G", "A"))
            assert await topics_of(client) == {"%RETRY%G"}

    run_in_virtual_time(main())


def test_retries_and_their_topic_survive_the_broker() -> None:
    async def main() -> None:
        async with world() as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                (message,) = await sent(client, b"1")
                assert await send_back(client, failed(message, delay_level=-1)) == [0]
                path = around.config.data / "config" / "topics.json"
                assert b"%DLQ%G" in around.files.nodes[path].data.tobytes()
                await client.connection.close()
            async with around.broker() as broker:
                client = await around.connect(broker)
                assert [each.body for each in stored(await client.pull("%DLQ%G"))] == [b"1"]
                await client.connection.close()

    run_in_virtual_time(main())


@pytest.mark.parametrize("level", [0, -1])
def test_message_sent_back_again_is_stored_once_for_each_group(level: int) -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                one, other = await sent(client, b"one", b"other")
                again = [failed(each, delay_level=level) for each in (one, other)]
                for group in ("H", "G"):
                    assert await send_back(client, again[0], group=group) == [0]
                assert await send_back(client, *again) == [0, 0]
                await client.connection.close()
            async with around.broker() as broker:
                client = await around.connect(broker)
                assert await send_back(client, *again, group="H") == [0, 0]
                await asyncio.sleep(12)
                for group in ("G", "H"):
                    topic = f"%RETRY%{group}" if level == 0 else f"%DLQ%{group}"
                    found = stored(await client.pull(topic))
                    assert [each.body for each in found] == [b"one", b"other"]
                await client.connection.close()

    run_in_virtual_time(main())


def test_messages_of_one_key_are_told_apart_and_each_version_fails_anew() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            for number in range(3):
                properties = {"UNIQ_KEY": "same"}
                await client.send("A", str(number).encode(), queue_id=0, properties=properties)
            told = [failed(each, delay_level=-1) for each in stored(await client.pull("A"))]
            assert await send_back(client, told[1]) == [0]
            assert await send_back(client, *told) == [0, 0, 0]
            assert await send_back(client, *told) == [0, 0, 0]
            letters = stored(await client.pull("%DLQ%G"))
            assert [each.body for each in letters] == [b"1", b"0", b"2"]
            told[2].version = 1
            assert await send_back(client, *told) == [0, 0, Code.PULL_OFFSET_MOVED]
            seek = groups.CommitOffsetsRequest(
                group="G", client_id="a@1", offsets=[groups.QueueOffset(topic="A")], force=True
            )
            await client.call(service_methods.COMMIT_OFFSETS, seek)
            assert await send_back(client, told[2]) == [0]
            assert await send_back(client, told[2]) == [0]
            letters = stored(await client.pull("%DLQ%G"))
            assert [each.body for each in letters] == [b"1", b"0", b"2", b"2"]
            told[2].version = 1 << 62
            assert await send_back(client, told[2]) == [Code.INVALID_PARAMETER]

    run_in_virtual_time(main())
