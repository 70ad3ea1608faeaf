"""What a broker serves and refuses that follows a master, over its contracts."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from ternmq_model.errors import RefusedError
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting import service_methods
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import Client, bodies, membership, world
from tests.support.numbered import numbered
from tests.support.simulated_replicas import start_slave


@asynccontextmanager
async def slave_with(count: int) -> AsyncGenerator[Client]:
    """Give a slave whose log has `count` messages in one queue of topic A, and a client of it."""
    async with numbered(queues=1) as (cluster, messages):
        await messages.send(count)
        await start_slave(cluster)
        client = await cluster.connect("a-1")
        yield client
        await client.connection.close()


def commit(offset: int, token: int = 0) -> groups.CommitOffsetsRequest:
    told = groups.QueueOffset(topic="A", queue_id=0, offset=offset, lock_token=token)
    return groups.CommitOffsetsRequest(group="G", client_id="c", offsets=[told])


def test_slave_serves_readers_their_offsets_and_their_sessions() -> None:
    async def main() -> None:
        async with slave_with(3) as client:
            assert bodies(await client.pull("A", 0, group="G")) == [b"0", b"1", b"2"]
            stream, welcome = await client.open_session("c@1", membership("G", "A"))
            assert welcome.status.code == 0
            listed = await client.call(
                service_methods.LIST_MEMBERS, groups.ListMembersRequest(group="G")
            )
            assert listed.client_ids == ["c@1"]
            for token in (0, 7):
                reply = await client.call(service_methods.COMMIT_OFFSETS, commit(2, token))
                assert not reply.refused
            request = groups.QueryOffsetRequest(group="G", topic="A", queue_id=0)
            assert (await client.call(service_methods.QUERY_OFFSET, request)).offset == 2
            stream.cancel()

    run_in_virtual_time(main())


def test_slave_stores_nothing_gives_no_locks_and_creates_no_topics() -> None:
    async def main() -> None:
        async with slave_with(0) as client:
            for refused in (
                client.send("A"),
                client.put_topic("B"),
                client.call(
                    service_methods.LOCK_QUEUES, groups.LockQueuesRequest(group="G", client_id="c")
                ),
                client.call(service_methods.SEND_BACK, groups.SendBackRequest(group="G")),
            ):
                with pytest.raises(RefusedError, match=r"\(id 1\) is a slave") as why:
                    await refused
                assert why.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
                assert why.value.retryable
                assert not why.value.may_have_happened
            stream, _ = await client.open_session("c@1", membership("G", "A"))
            with pytest.raises(RefusedError, match="does not exist"):
                await client.pull("%RETRY%G", 0)
            stream.cancel()
            sender = client.connection.open(service_methods.SEND_STREAM)
            await sender.write(messages.SendStreamRequest(open=messages.SendStreamOpen()))
            with pytest.raises(RefusedError, match="is a slave"):
                await sender.read()

    run_in_virtual_time(main())


def test_slave_does_not_correct_consumers_ahead_of_it() -> None:
    async def main() -> None:
        async with slave_with(3) as client:
            pulled = await client.pull("A", 9, group="G")
            assert pulled.status.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert (pulled.next_offset, pulled.suggested_broker_id) == (9, 0)
            puller = await client.open_puller("G")
            await puller.subscribe(1, "A", offset=9)
            ended = await puller.read_one()
            assert ended.status.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            waiting = await client.pull("A", 3, group="G")
            assert waiting.status.code == ResponseCode.PULL_NOT_FOUND

    run_in_virtual_time(main())


def test_unreadable_slave_refuses_pulls_alone() -> None:
    async def main() -> None:
        async with (
            world(flush_mode=FlushMode.ASYNC, slave_read_enabled=False) as around,
            around.broker(broker_id=1) as broker,
        ):
            client = await around.connect(broker)
            with pytest.raises(RefusedError, match="slave_read_enabled"):
                await client.pull("A", 0, group="G")
            puller = await client.open_puller("G")
            with pytest.raises(RefusedError, match="slave_read_enabled"):
                await puller.read()
            await client.call(service_methods.LIST_MEMBERS, groups.ListMembersRequest(group="G"))
            await client.connection.close()

    run_in_virtual_time(main())
