import asyncio
from typing import Any

import pytest

from ternmq_model.errors import (
    GroupNotFound,
    InvalidParameter,
    MessageNotFound,
    PermissionRefused,
    RefusedError,
    TopicNotFound,
)
from ternmq_model.response_code import ResponseCode as Code
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting import service_methods
from ternmq_testing.time.virtual_time import EPOCH_MS, run_in_virtual_time
from tests.support.brokers import Client, SessionStream, membership, serving, stored, world


def settings(group: str = "G", **fields: Any) -> admin.GroupSettings:
    told: dict[str, Any] = {
        "group": group,
        "consume_enabled": True,
        "broadcast_enabled": True,
        "retry_queues": 1,
        "retries_max": 16,
        "broker_id_when_slow": 1,
        "notify_members_changed": True,
    }
    return admin.GroupSettings(**(told | fields))


async def put(client: Client, group: str = "G", **fields: Any) -> bool:
    request = admin.PutGroupRequest(settings=settings(group, **fields))
    reply: admin.PutGroupReply = await client.call(service_methods.PUT_GROUP, request)
    return reply.created


async def describe(client: Client, group: str = "G") -> admin.DescribeGroupReply:
    request = admin.DescribeGroupRequest(group=group)
    reply: admin.DescribeGroupReply = await client.call(service_methods.DESCRIBE_GROUP, request)
    return reply


async def delete(client: Client, group: str = "G", *, with_dead_letters: bool = False) -> None:
    request = admin.DeleteGroupRequest(group=group, with_dead_letters=with_dead_letters)
    await client.call(service_methods.DELETE_GROUP, request)


async def reset(client: Client, topic: str = "A", **fields: Any) -> list[tuple[int, int, int]]:
    told: dict[str, Any] = {"group": "G", "topic": topic}
    request = admin.ResetOffsetsRequest(**(told | fields))
    reply = await client.call(service_methods.RESET_OFFSETS, request)
    return [(each.queue_id, each.before, each.after) for each in reply.changes]


async def clone(client: Client, to: str, topic: str = "", source: str = "G") -> list[str]:
    request = admin.CloneOffsetsRequest(from_group=source, to_group=to, topic=topic)
    reply = await client.call(service_methods.CLONE_OFFSETS, request)
    return [f"{each.topic}/{each.queue_id}: {each.before} {each.after}" for each in reply.changes]


async def commit(
    client: Client, offset: int, *, topic: str = "A", version: int = 0, group: str = "G"
) -> bool:
    told = groups.QueueOffset(topic=topic, queue_id=0, offset=offset, version=version)
    request = groups.CommitOffsetsRequest(group=group, offsets=[told])
    return not (await client.call(service_methods.COMMIT_OFFSETS, request)).refused


async def query(client: Client, group: str = "G", topic: str = "A") -> tuple[int, int]:
    request = groups.QueryOffsetRequest(group=group, topic=topic)
    reply = await client.call(service_methods.QUERY_OFFSET, request)
    return reply.offset, reply.version


async def fill(client: Client, count: int, *, topic: str = "A", queue_id: int = 0) -> None:
    for _ in range(count):
        await client.send(topic, queue_id=queue_id)


async def told(session: SessionStream) -> groups.SessionReply:
    reply = await session.read()
    assert reply is not None
    return reply


def test_settings_are_kept_shown_and_survive_the_broker() -> None:
    async def main() -> None:
        async with world() as around:
            fields: dict[str, Any] = {
                "consume_enabled": False,
                "broadcast_enabled": False,
                "consume_from_min_enabled": True,
                "retry_queues": 3,
                "retries_max": 5,
                "broker_id": 1,
                "broker_id_when_slow": 2,
                "notify_members_changed": False,
            }
            async with around.broker() as broker:
                client = await around.connect(broker)
                assert await put(client)
                assert not await put(client, **fields)
                path = around.config.data / "config" / "subscriptionGroup.json"
                assert b'"retryMaxTimes": 5' in around.files.nodes[path].data.tobytes()
                await client.connection.close()
            async with around.broker() as broker:
                client = await around.connect(broker)
                assert (await describe(client)).settings == settings(**fields)
                await client.connection.close()

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    "fields",
    [
        {"retry_queues": -1},
        {"retry_queues": 65},
        {"retries_max": -1},
        {"broker_id": -1},
        {"broker_id_when_slow": 1 << 40},
        {"group": "T@G"},
        {"group": ""},
    ],
)
def test_impossible_settings_are_refused(fields: dict[str, Any]) -> None:
    async def main() -> None:
        async with serving() as (_, client):
            request = admin.PutGroupRequest(settings=settings(**fields))
            with pytest.raises(InvalidParameter):
                await client.call(service_methods.PUT_GROUP, request)
            reply = await client.call(service_methods.LIST_GROUPS, admin.ListGroupsRequest())
            assert list(reply.groups) == []

    run_in_virtual_time(main())


@pytest.mark.parametrize("group", ["TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS", "TOOLS_DEAD_LETTERS"])
def test_system_groups_are_closed(group: str) -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await commit(client, 0, group=group)
            assert await commit(client, 0, group=group) != group.startswith("CID_RMQ_SYS_")
            with pytest.raises(PermissionRefused, match=group):
                await put(client, group)
            with pytest.raises(PermissionRefused):
                await delete(client, group)
            with pytest.raises(PermissionRefused):
                await reset(client, group=group, first=True)
            with pytest.raises(PermissionRefused):
                await clone(client, group)

    run_in_virtual_time(main())


def test_disabled_group_reads_nothing_even_on_open_streams() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await fill(client, 1)
            puller = await client.open_puller("G")
            await puller.subscribe(1, "A")
            assert len(stored(await puller.read_one())) == 1
            await put(client, consume_enabled=False)
            await fill(client, 1)
            ended = await puller.read_one()
            assert ended.status.code == Code.NO_PERMISSION
            with pytest.raises(PermissionRefused):
                await client.pull("A", group="G")
            queue = groups.QueueLock(topic="A", queue_id=0)
            request = groups.LockQueuesRequest(group="G", client_id="a@1", queues=[queue])
            with pytest.raises(PermissionRefused):
                await client.call(service_methods.LOCK_QUEUES, request)

    run_in_virtual_time(main())


def test_broadcasting_members_of_a_forbidding_group_read_nothing() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await fill(client, 1)
            await put(client, broadcast_enabled=False)
            alone = membership("G", "A")
            alone.model = groups.BROADCASTING
            await client.open_session("a@1", alone)
            with pytest.raises(PermissionRefused, match="may not broadcast"):
                await client.pull("A", group="G")
            request = messages.PullRequest(group="G", topic="A")
            with pytest.raises(PermissionRefused, match="may not broadcast"):
                await client.call(service_methods.PULL, request)

    run_in_virtual_time(main())


def test_new_group_begins_with_the_first_message_when_configured() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (around, client):
            for _ in range(6):
                await client.send("A", b"x" * (1 << 20), queue_id=0)
            around.files.used = 0.91
            await asyncio.sleep(60)
            await client.call(
                service_methods.CLEAN_STORE, admin.CleanStoreRequest(), timeout_s=4000
            )
            request = admin.DescribeTopicRequest(topic="A")
            (queue,) = (await client.call(service_methods.DESCRIBE_TOPIC, request)).queues
            assert queue.min_offset > 0
            assert await query(client) == (-1, 0)
            await put(client, consume_from_min_enabled=True)
            assert await query(client) == (queue.min_offset, 0)

    run_in_virtual_time(main())


def test_members_that_want_no_notifications_get_none() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await put(client, notify_members_changed=False)
            first, _welcome = await client.open_session("a@1", membership("G", "A"))
            await client.open_session("b@1", membership("G", "A"))
            await put(client)
            await client.open_session("c@1", membership("H", "A"))
            await client.open_session("d@1", membership("G", "A"))
            news = [await told(first)]
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    news.append(await told(first))
            assert [each.members_changed.group for each in news] == ["G"]

    run_in_virtual_time(main())


def test_deleted_group_leaves_nothing_behind() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (around, client):
            await fill(client, 3)
            await commit(client, 2)
            (message, *_) = stored(await client.pull("A"))
            failed = groups.FailedMessage(
                physical_offset=message.physical_offset,
                message_id=message.message_id,
                topic="A",
                queue_offset=message.queue_offset,
                delay_level=-1,
            )
            back = groups.SendBackRequest(group="G", client_id="a@1", messages=[failed])
            await client.call(service_methods.SEND_BACK, back)
            queue = groups.QueueLock(topic="A", queue_id=0)
            lock = groups.LockQueuesRequest(group="G", client_id="a@1", queues=[queue])
            await client.call(service_methods.LOCK_QUEUES, lock)
            session, _welcome = await client.open_session("a@1", membership("G", "A"))
            with pytest.raises(RefusedError, match=r"live members: a@1"):
                await delete(client)
            await session.write(groups.SessionRequest(goodbye=groups.Goodbye()))
            await asyncio.sleep(0.1)
            await reset(client, first=True)
            assert await query(client) == (0, 1)
            await delete(client)
            with pytest.raises(GroupNotFound):
                await describe(client)
            assert (await query(client))[1] == 0
            config = around.config.data / "config"
            for name in ("consumerOffset.json", "offsetVersions.json", "subscriptionGroup.json"):
                content = around.files.nodes[config / name].data.tobytes()
                assert b"@G" not in content
                assert b'"G"' not in content
            with pytest.raises(TopicNotFound):
                await client.pull("%RETRY%G")
            assert len(stored(await client.pull("%DLQ%G"))) == 1
            assert (await client.call(service_methods.LOCK_QUEUES, lock)).locked
            await delete(client, with_dead_letters=True)
            with pytest.raises(TopicNotFound):
                await client.pull("%DLQ%G")
            with pytest.raises(GroupNotFound):
                await delete(client)

    run_in_virtual_time(main())


def test_reset_sets_every_queue_and_raises_versions() -> None:
    async def main() -> None:
        async with serving(topics={"A": 2}) as (_, client):
            await fill(client, 5)
            await fill(client, 3, queue_id=1)
            await commit(client, 4)
            assert await reset(client, first=True) == [(0, 4, 0), (1, -1, 0)]
            assert await query(client) == (0, 1)
            assert not await commit(client, 5)
            assert await reset(client, last=True) == [(0, 0, 5), (1, 0, 3)]
            assert await reset(client, offset=4) == [(0, 5, 4), (1, 3, 3)]
            assert await reset(client, offset=2, queue_ids=[0, 0]) == [(0, 4, 2)]
            assert await query(client) == (2, 4)
            assert await commit(client, 3, version=4)
            found = {each.queue_id: each for each in (await describe(client)).progress}
            assert (found[0].version, found[1].version) == (4, 3)

    run_in_virtual_time(main())


def test_reset_by_time_goes_to_the_first_message_of_that_time() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await fill(client, 3)
            await asyncio.sleep(100)
            await fill(client, 2)
            await commit(client, 5)
            assert await reset(client, at_ms=EPOCH_MS + 50_000) == [(0, 5, 3)]
            assert await reset(client, at_ms=0) == [(0, 3, 0)]
            assert await reset(client, at_ms=EPOCH_MS + 1_000_000) == [(0, 0, 5)]

    run_in_virtual_time(main())


def test_rehearsed_reset_changes_nothing() -> None:
    async def main() -> None:
        async with serving(topics={"A": 2}) as (_, client):
            await fill(client, 5)
            await commit(client, 4)
            assert await reset(client, offset=2, dry_run=True) == [(0, 4, 2), (1, -1, 0)]
            assert await query(client) == (4, 0)
            assert await reset(client, offset=2, backwards_only=True) == [(0, 4, 2)]
            assert await reset(client, offset=3, backwards_only=True) == []

    run_in_virtual_time(main())


def test_members_are_notified_of_a_reset_once_it_is_on_disk() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (around, client):
            await fill(client, 5)
            await commit(client, 4)
            session, _welcome = await client.open_session("a@1", membership("G", "A"))
            assert (await told(session)).members_changed.group == "G"
            request = admin.ResetOffsetsRequest(group="G", topic="A", offset=1)
            reply = await client.call(service_methods.RESET_OFFSETS, request)
            assert reply.members_told == 1
            command = (await told(session)).offsets_reset
            (offset,) = command.offsets
            assert command.group == "G"
            assert (offset.topic, offset.queue_id, offset.offset, offset.version) == ("A", 0, 1, 1)
            config = around.config.data / "config"
            for name in ("consumerOffset.json", "offsetVersions.json"):
                assert b"A@G" in around.files.nodes[config / name].data.tobytes()

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group": "Unknown", "first": True}, GroupNotFound),
        ({"topic": "Unknown", "first": True}, TopicNotFound),
        ({"queue_ids": [2], "first": True}, InvalidParameter),
        ({"queue_ids": [-1], "first": True}, InvalidParameter),
        ({}, InvalidParameter),
        ({"at_ms": -1}, InvalidParameter),
        ({"offset": -1}, InvalidParameter),
        ({"topic": "A@G", "first": True}, InvalidParameter),
    ],
)
def test_impossible_reset_changes_nothing(
    fields: dict[str, Any], error: type[RefusedError]
) -> None:
    async def main() -> None:
        async with serving(topics={"A": 2}) as (_, client):
            await fill(client, 2)
            await commit(client, 2)
            with pytest.raises(error):
                await reset(client, **fields)
            assert await query(client) == (2, 0)

    run_in_virtual_time(main())


def test_clone_copies_offsets_of_all_topics_but_the_models_own() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1, "B": 1, "%RETRY%G": 1}) as (_, client):
            await fill(client, 3)
            await fill(client, 3, topic="B")
            await commit(client, 2)
            await commit(client, 3, topic="B")
            await commit(client, 0, topic="%RETRY%G")
            await commit(client, 3, group="H")
            assert await clone(client, "H", "A") == ["A/0: 3 2"]
            assert await query(client, "H") == (2, 1)
            assert await clone(client, "H") == ["A/0: 2 2", "B/0: -1 3"]
            assert await query(client, "H", "B") == (3, 1)
            assert await query(client) == (2, 0)

    run_in_virtual_time(main())


def test_impossible_clones_are_refused() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await commit(client, 0)
            await client.open_session("a@1", membership("H", "A"))
            with pytest.raises(RefusedError, match="live members"):
                await clone(client, "H")
            with pytest.raises(InvalidParameter, match="to itself"):
                await clone(client, "G")
            with pytest.raises(GroupNotFound):
                await clone(client, "X", source="Unknown")
            with pytest.raises(MessageNotFound, match="no offset in topic 'B'"):
                await clone(client, "X", "B")
            with pytest.raises(InvalidParameter):
                await clone(client, "X@A")

    run_in_virtual_time(main())
