"""Commits with a pull, and what corrected pulls leave behind, through the broker's RPCs."""

import asyncio
import json
from typing import Any

import pytest

from ternmq_model.response_code import ResponseCode as Code
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import service_methods
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import Client, bodies, serving, stored


async def committed(client: Client, queue_id: int = 0) -> tuple[int, int]:
    request = groups.QueryOffsetRequest(group="G", topic="A", queue_id=queue_id)
    reply = await client.call(service_methods.QUERY_OFFSET, request)
    return reply.offset, reply.version


async def fill(client: Client, count: int) -> None:
    for number in range(count):
        await client.send("A", b"%d" % number)


def test_pull_commits_the_offset_it_carries_and_reads_on() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await fill(client, 5)
            reply = await client.pull("A", 3, group="G", commit_offset=2)
            assert bodies(reply) == [b"3", b"4"]
            assert await committed(client) == (2, 0)
            await client.pull("A", 3, group="G")
            assert await committed(client) == (2, 0)
            await client.pull("A", 3, group="G", commit_offset=0)
            assert await committed(client) == (2, 0)

    run_in_virtual_time(main())


def test_waiting_pull_has_committed_before() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await fill(client, 2)
            async with asyncio.TaskGroup() as tasks:
                waiting = tasks.create_task(
                    client.pull("A", 2, group="G", commit_offset=2, wait_ms=10_000)
                )
                await asyncio.sleep(1)
                assert not waiting.done()
                assert await committed(client) == (2, 0)

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    "fields",
    [
        {"commit_offset": 99},
        {"commit_offset": -1},
        {"commit_offset": 1, "commit_version": -1},
        {"commit_offset": 1, "group": ""},
    ],
)
def test_illegal_commit_offset_does_not_block_the_pull(
    fields: dict[str, Any],
) -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await fill(client, 2)
            reply = await client.pull("A", 0, **({"group": "G"} | fields))
            assert bodies(reply) == [b"0", b"1"]
            assert await committed(client) == (0, 0)

    run_in_virtual_time(main())


def test_older_versions_and_locked_queues_are_not_committed() -> None:
    async def main() -> None:
        async with serving(topics={"A": 2}) as (_, client):
            await fill(client, 2)
            sought = groups.QueueOffset(topic="A", queue_id=0, offset=1)
            await client.call(
                service_methods.COMMIT_OFFSETS,
                groups.CommitOffsetsRequest(group="G", offsets=[sought], force=True),
            )
            kept, version = await committed(client)
            assert version > 0
            await client.pull("A", 0, group="G", commit_offset=2)
            assert await committed(client) == (kept, version)
            await client.pull("A", 0, group="G", commit_offset=2, commit_version=version)
            assert await committed(client) == (2, version)
            stream, _ = await client.open_session("c@1", groups.ConsumerGroup(group="G"))
            lock = groups.QueueLock(topic="A", queue_id=1)
            await client.call(
                service_methods.LOCK_QUEUES,
                groups.LockQueuesRequest(group="G", client_id="c@1", queues=[lock]),
            )
            await client.pull("A", 0, queue_id=1, group="G", commit_offset=0)
            assert (await committed(client, 1))[1] == 0
            stream.cancel()

    run_in_virtual_time(main())


def test_corrected_offset_is_stored_as_a_readable_event() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await fill(client, 2)
            for _ in range(3):
                reply = await client.pull("A", 99, group="G")
                assert reply.status.code == Code.PULL_OFFSET_MOVED
            puller = await client.open_puller("H")
            await puller.subscribe(1, "A", offset=77)
            assert (await puller.read())[0].status.code == Code.PULL_OFFSET_MOVED
            await client.pull("A", 99)
            await asyncio.sleep(2)
            found = stored(await client.pull("OFFSET_MOVED_EVENT"))
            events = [json.loads(message.body) for message in found]
            assert [
                (event["consumerGroup"], event["offsetRequest"], event["offsetNew"])
                for event in events
            ] == [("G", 99, 0), ("H", 77, 0)]
            assert [(message.tags, message.keys) for message in found] == [
                ("G", ["G"]),
                ("H", ["H"]),
            ]

    run_in_virtual_time(main())


def test_readers_of_old_messages_stay_where_no_slave_follows() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}, memory_bytes=1) as (_, client):
            await fill(client, 3)
            assert (await client.pull("A", 0, group="G")).suggested_broker_id == 0
            puller = await client.open_puller("G")
            await puller.subscribe(1, "A")
            assert (await puller.read_one()).suggested_broker_id == 0

    run_in_virtual_time(main())
