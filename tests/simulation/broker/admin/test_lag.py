import asyncio

import pytest

from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import service_methods
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import Client, serving


async def progress_of(client: Client, group: str) -> dict[int, admin.GroupProgress]:
    reply = await client.call(
        service_methods.DESCRIBE_GROUP, admin.DescribeGroupRequest(group=group)
    )
    return {one.queue_id: one for one in reply.progress}


def test_lag_is_measured_in_messages_and_time() -> None:
    async def main() -> None:
        async with serving(topics={"A": 2}) as (around, client):
            times: list[int] = []
            for _ in range(3):
                await client.send("A", queue_id=0)
                times.append(around.clock.wall_ms())
                await asyncio.sleep(10)
            await client.call(
                service_methods.COMMIT_OFFSETS,
                groups.CommitOffsetsRequest(
                    group="G",
                    client_id="test@1",
                    offsets=[groups.QueueOffset(topic="A", queue_id=0, offset=2)],
                ),
            )
            found = await progress_of(client, "G")
            behind = found[0]
            assert behind.max_offset - behind.committed_offset == 1
            assert behind.consumed_stored_at_ms == pytest.approx(times[1], abs=10)
            assert behind.lag_ms == pytest.approx(10_000, abs=10)
            assert (found[1].lag_ms, found[1].consumed_stored_at_ms) == (0, 0)

    run_in_virtual_time(main())
