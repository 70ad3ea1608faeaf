import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from ternmq_model.errors import GroupNotFound, RefusedError, TopicNotFound, refusal
from ternmq_model.response_code import ResponseCode as Code
from ternmq_nameserver.config import NameServerConfig
from ternmq_nameserver.server import NameServer
from ternmq_nameserver.service import NameServerService
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_remoting import service_methods
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import membership, serving, world


def test_topic_is_created_changed_described_and_deleted() -> None:
    async def main() -> None:
        async with serving() as (_, client):
            assert (await client.put_topic("A", 2)).created
            assert not (await client.put_topic("A", 3)).created
            sent = await client.send("A", queue_id=2)
            reply = await client.call(
                service_methods.DESCRIBE_TOPIC, admin.DescribeTopicRequest(topic="A")
            )
            assert (reply.topic.read_queues, reply.topic.permissions) == (3, 6)
            assert [(each.queue_id, each.max_offset) for each in reply.queues] == [
                (0, 0),
                (1, 0),
                (2, 1),
            ]
            assert reply.queues[0].last_stored_at_ms == 0
            assert reply.queues[2].last_stored_at_ms > 0
            await client.call(service_methods.DELETE_TOPIC, admin.DeleteTopicRequest(topic="A"))
            with pytest.raises(TopicNotFound):
                await client.call(
                    service_methods.DESCRIBE_TOPIC, admin.DescribeTopicRequest(topic="A")
                )
            await client.put_topic("A", 3)
            again = await client.send("A", queue_id=2)
            assert (sent.queue_offset, again.queue_offset) == (0, 0)

    run_in_virtual_time(main())


GOOD = common.TopicConfig(topic="A", read_queues=1, write_queues=1, permissions=6)


@pytest.mark.parametrize(
    ("fields", "code", "says"),
    [
        ({"topic": "no good"}, Code.INVALID_PARAMETER, "'no good'"),
        ({"topic": "TBW102"}, Code.NO_PERMISSION, "'TBW102'"),
        ({"read_queues": 0}, Code.INVALID_PARAMETER, "0 read queues"),
        ({"write_queues": 16_385}, Code.INVALID_PARAMETER, "16385 write queues"),
        ({"write_queues": -1}, Code.INVALID_PARAMETER, "-1 write queues"),
        ({"permissions": 0}, Code.INVALID_PARAMETER, "permissions 0"),
        ({"permissions": 8}, Code.INVALID_PARAMETER, "permissions 8"),
        ({"sys_flag": 4}, Code.INVALID_PARAMETER, "sys_flag 4"),
    ],
)
def test_impossible_topic_is_refused(fields: dict[str, Any], code: Code, says: str) -> None:
    async def main() -> None:
        async with serving() as (_, client):
            config = common.TopicConfig()
            config.CopyFrom(GOOD)
            for name, value in fields.items():
                setattr(config, name, value)
            with pytest.raises(RefusedError, match=says) as caught:
                await client.call(service_methods.PUT_TOPIC, admin.PutTopicRequest(topic=config))
            assert caught.value.code == code

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("topic", "code"), [("Unknown", Code.TOPIC_NOT_EXIST), ("TBW102", Code.NO_PERMISSION)]
)
def test_missing_and_system_topics_cannot_be_deleted(topic: str, code: Code) -> None:
    async def main() -> None:
        async with serving() as (_, client):
            with pytest.raises(RefusedError, match=topic) as caught:
                await client.call(
                    service_methods.DELETE_TOPIC, admin.DeleteTopicRequest(topic=topic)
                )
            assert caught.value.code == code

    run_in_virtual_time(main())


def test_groups_are_listed_and_described() -> None:
    async def main() -> None:
        async with serving(topics={"A": 2, "B": 1}) as (_, client):
            await client.send("A", queue_id=1)
            await client.open_session("a@1", membership("G", "A", expression="x || y"))
            offset = groups.QueueOffset(topic="B", queue_id=0, offset=0)
            for group in ("G", "H"):
                request = groups.CommitOffsetsRequest(group=group, offsets=[offset])
                await client.call(service_methods.COMMIT_OFFSETS, request)
            listed = await client.call(service_methods.LIST_GROUPS, admin.ListGroupsRequest())
            assert (list(listed.groups), listed.next_page_token) == (["G", "H"], "")
            for after, group, token in (("", "G", "G"), ("G", "H", "")):
                wanted = admin.ListGroupsRequest(page_size=1, page_token=after)
                page = await client.call(service_methods.LIST_GROUPS, wanted)
                assert (list(page.groups), page.next_page_token) == ([group], token)
            reply = await client.call(
                service_methods.DESCRIBE_GROUP, admin.DescribeGroupRequest(group="G")
            )
            (member,) = reply.members
            assert member.client_id == "a@1"
            assert member.group.subscriptions[0].expression == "x || y"
            assert [
                (each.topic, each.queue_id, each.committed_offset, each.max_offset)
                for each in reply.progress
            ] == [("A", 0, -1, 0), ("A", 1, -1, 1), ("B", 0, 0, 0)]
            with pytest.raises(GroupNotFound, match="'Nobody'"):
                await client.call(
                    service_methods.DESCRIBE_GROUP, admin.DescribeGroupRequest(group="Nobody")
                )

    run_in_virtual_time(main())


@pytest.mark.parametrize("mode", FlushMode)
def test_broker_reports_the_state_of_its_store(mode: FlushMode) -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}, flush_mode=mode) as (around, client):
            await client.send("A")
            reply = await client.call(
                service_methods.DESCRIBE_BROKER, admin.DescribeBrokerRequest()
            )
            assert (reply.cluster, reply.broker_name) == ("DefaultCluster", "broker-a")
            assert reply.flush_mode == mode.value
            assert reply.log_max_offset == reply.log_confirm_offset > 0
            assert reply.dispatched_offset == reply.log_max_offset
            assert reply.log_min_offset == 0
            assert reply.epoch == 1
            assert around.config == replace(around.config)

    run_in_virtual_time(main())


def test_topic_is_created_while_a_nameserver_knows_no_users(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    register, is_taught = NameServerService.register_broker, asyncio.Event()

    async def untaught(*call: Any) -> nameserver.RegisterBrokerReply:
        if not is_taught.is_set():
            raise refusal(Code.SYSTEM_ERROR, "users exist, and nobody tells them")
        return await register(*call)

    async def main() -> None:
        monkeypatch.setattr(NameServerService, "register_broker", untaught)
        config = NameServerConfig(listen="0.0.0.0", port=9876)
        async with (
            world(nameservers=("ns:9876",)) as around,
            NameServer(config, around.environment("ns")),
            around.broker() as broker,
        ):
            await (await around.connect(broker)).put_topic("A", 1)
            is_taught.set()
            await asyncio.sleep(0.5)

    with caplog.at_level(logging.INFO):
        run_in_virtual_time(main())
    assert "registered again nameserver=ns:9876" in caplog.text
