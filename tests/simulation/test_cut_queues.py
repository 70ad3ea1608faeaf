"""Groups of a queue whose end a start did not find any more: offsets, and readers that run on."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from ternmq_model.response_code import ResponseCode as Code
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import service_methods
from ternmq_store.config import FlushMode
from ternmq_store.disk.layout import abort_path, commit_log_folder, file_name, notes_path
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import Client, bodies, world
from tests.support.stores import units_in

ROOT: Final = Path("/broker")
COUNT: Final = 30


async def commit(client: Client, offset: int, version: int = 0) -> groups.CommitOffsetsReply:
    each = groups.QueueOffset(topic="T", queue_id=0, offset=offset, version=version)
    request = groups.CommitOffsetsRequest(group="G", client_id="c@1", offsets=[each])
    reply: groups.CommitOffsetsReply = await client.call(service_methods.COMMIT_OFFSETS, request)
    return reply


async def kept(client: Client) -> tuple[bool, int, int]:
    """Return whether the group has an offset, it, and its version."""
    request = groups.QueryOffsetRequest(group="G", topic="T")
    reply: groups.QueryOffsetReply = await client.call(service_methods.QUERY_OFFSET, request)
    return reply.is_kept, reply.offset, reply.version


@asynccontextmanager
async def cut(lost: int, *, is_clean: bool) -> AsyncGenerator[Client]:
    """Give a client of a broker that was started after its log lost its last records.

    The group had consumed all messages of the queue. Nothing notes how far the log went.
    """
    async with world(flush_mode=FlushMode.SYNC) as around:
        async with around.broker() as broker:
            client = await around.connect(broker)
            await client.put_topic("T", 1)
            for number in range(COUNT):
                await client.send("T", b"%d" % number, queue_id=0)
            await commit(client, COUNT)
            await asyncio.sleep(10)
            await client.connection.close()
        nodes = around.files.nodes
        for path in [path for path in nodes if path.name.startswith(notes_path(ROOT).name)]:
            del nodes[path]
        if not is_clean:
            around.files.open(abort_path(ROOT), create=True)
        log = nodes[commit_log_folder(ROOT) / file_name(0)].data
        units = nodes[ROOT / "consumequeue" / "T" / "0" / file_name(0)].data.tobytes()
        for at, size, _ in units_in(units)[COUNT - lost : COUNT]:
            log[at : at + size] = 0
        async with around.broker() as broker:
            client = await around.connect(broker)
            yield client
            await client.connection.close()


@pytest.mark.parametrize("lost", [10, COUNT])
@pytest.mark.parametrize("is_clean", [True, False])
def test_group_of_a_cut_queue_passes_over_no_new_message(is_clean: bool, lost: int) -> None:
    async def main() -> None:
        async with cut(lost, is_clean=is_clean) as client:
            end = COUNT - lost
            assert await kept(client) == (True, end, 1)
            moved = await client.pull("T", COUNT, queue_id=0, group="G")
            assert (moved.status.code, moved.next_offset) == (Code.PULL_OFFSET_MOVED, end)
            for number in range(lost + 5):
                await client.send("T", b"new%d" % number, queue_id=0)
            # A consumer that ran on knows nothing yet, and goes on where it was.
            reply = await client.pull("T", COUNT, queue_id=0, group="G")
            assert bodies(reply)[0] == b"new%d" % lost
            (refused,) = (await commit(client, reply.next_offset)).refused
            assert refused.status.code == Code.PULL_OFFSET_MOVED
            assert (refused.offset, refused.version) == (end, 1)
            assert bodies(await client.pull("T", end, queue_id=0))[0] == b"new0"
            assert not (await commit(client, end + 1, 1)).refused
            assert await kept(client) == (True, end + 1, 1)

    run_in_virtual_time(main())
