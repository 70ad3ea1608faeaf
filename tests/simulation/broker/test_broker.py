import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from ternmq_model.address import Address
from ternmq_model.errors import CannotListen, ClosedError, StoreError, StoreLocked, Unreachable
from ternmq_model.response_code import ResponseCode as Code
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import service_methods
from ternmq_runtime.service import OwnedTasks
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import Client, bodies, offsets_of, world


async def commit(client: Client, offset: int) -> None:
    each = groups.QueueOffset(topic="A", queue_id=0, offset=offset)
    request = groups.CommitOffsetsRequest(group="G", offsets=[each])
    await client.call(service_methods.COMMIT_OFFSETS, request)


async def query(client: Client) -> int:
    request = groups.QueryOffsetRequest(group="G", topic="A")
    reply: groups.QueryOffsetReply = await client.call(service_methods.QUERY_OFFSET, request)
    return reply.offset


def test_messages_topics_and_offsets_survive_a_restart() -> None:
    async def main() -> None:
        async with world() as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await client.send("A", b"1")
                await client.send("A", b"2")
                await commit(client, 1)
            async with around.broker() as broker:
                client = await around.connect(broker)
                assert bodies(await client.pull("A")) == [b"1", b"2"]
                assert await query(client) == 1
                assert (await client.send("A", b"3")).queue_offset == 2

    run_in_virtual_time(main())


def test_offsets_are_saved_every_5_s() -> None:
    async def main() -> None:
        async with world() as around, around.broker() as broker:
            client = await around.connect(broker)
            await client.put_topic("A", 1)
            await client.send("A")
            await commit(client, 1)
            path = around.config.data / "config" / "consumerOffset.json"
            await asyncio.sleep(5.1)
            assert '"A@G"' in around.files.nodes[path].data.tobytes().decode()

    run_in_virtual_time(main())


def test_data_directory_is_held_by_one_broker() -> None:
    async def main() -> None:
        async with world() as around, around.broker():
            with pytest.raises(StoreLocked, match="/broker"):
                await around.broker().__aenter__()
        assert not around.files.locks

    run_in_virtual_time(main())


def test_taken_address_releases_the_data_directory() -> None:
    async def main() -> None:
        async with world() as around, around.broker() as first:
            second = around.broker(port=first.address.port, data=Path("/second"))
            with pytest.raises(CannotListen, match=str(first.address.port)):
                await second.__aenter__()
            assert around.files.locks == {around.config.data / "lock"}
            with pytest.raises(ClosedError):
                _ = second.address

    run_in_virtual_time(main())


def test_unreadable_offsets_stop_the_start_and_are_never_taken_for_none() -> None:
    async def main() -> None:
        async with world() as around:
            async with around.broker():
                pass
            path = around.config.data / "config" / "consumerOffset.json"
            around.files.open(path, create=True).write(0, b"\0\0\0")
            with pytest.raises(StoreError, match=r"consumerOffset\.json"):
                await around.broker().__aenter__()
            assert not around.files.locks

    run_in_virtual_time(main())


def test_batch_under_way_is_answered_before_the_broker_ends() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.SYNC) as around, OwnedTasks() as tasks:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                sender = await client.open_sender()
                around.sync_s = 1.0
                sending = tasks.spawn(sender.send(sender.record("A")), "send")
                await asyncio.sleep(0.1)
            reply = await sending
            assert reply.status.code == Code.SUCCESS
            assert offsets_of(reply.queue_offsets) == [0]

    run_in_virtual_time(main())


def test_store_of_another_file_size_is_read_as_it_is() -> None:
    async def main() -> None:
        async with world() as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.send("A", b"1", queue_id=0)
            around.store_config = replace(around.store_config, commit_log_file_bytes=1 << 20)
            async with around.broker() as broker:
                client = await around.connect(broker)
                assert bodies(await client.pull("A")) == [b"1"]

    run_in_virtual_time(main())


def test_broker_listening_everywhere_advertises_its_name_and_a_star() -> None:
    async def main() -> None:
        async with world(listen="0.0.0.0") as around, around.broker() as broker:
            network = around.network.host("other")
            address = Address("localhost", broker.address.port)
            with pytest.raises(Unreachable):
                await network.connect([address])
            client = Client(await around.network.connect([address]))
            reply = await client.send("A", queue_id=0)
            assert reply.offset_message_id

    run_in_virtual_time(main())


def test_idle_broker_leaves_the_disk_alone() -> None:
    async def main() -> None:
        async with world() as around, around.broker():
            await asyncio.sleep(10)
            syncs = around.files.syncs
            await asyncio.sleep(3600)
            assert around.files.syncs == syncs

    run_in_virtual_time(main())


@pytest.mark.parametrize("is_created_again", [False, True])
def test_offsets_of_a_deleted_topic_stay_deleted_after_a_crash(is_created_again: bool) -> None:
    async def main() -> None:
        async with world() as around, around.broker() as broker:
            client = await around.connect(broker)
            await client.put_topic("A", 1)
            for _ in range(3):
                await client.send("A", queue_id=0)
            await commit(client, 3)
            path = around.config.data / "config" / "consumerOffset.json"
            await asyncio.sleep(6)
            assert b"A@G" in around.files.nodes[path].data.tobytes()
            await client.call(service_methods.DELETE_TOPIC, admin.DeleteTopicRequest(topic="A"))
            assert b"A@G" not in around.files.nodes[path].data.tobytes()

    async def with_a_stale_file() -> None:
        async with world() as around:
            path = around.config.data / "config" / "consumerOffset.json"
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                for _ in range(3):
                    await client.send("A", queue_id=0)
                await commit(client, 3)
                await asyncio.sleep(6)
                stale = around.files.nodes[path].data.copy()
                await client.call(service_methods.DELETE_TOPIC, admin.DeleteTopicRequest(topic="A"))
                if is_created_again:
                    await client.put_topic("A", 1)
                    await client.send("A", b"new", queue_id=0)
            around.files.nodes[path].data = stale
            async with around.broker() as broker:
                client = await around.connect(broker)
                if not is_created_again:
                    await client.put_topic("A", 1)
                    await client.send("A", b"new", queue_id=0)
                assert await query(client) == 0
                assert bodies(await client.pull("A")) == [b"new"]

    run_in_virtual_time(main())
    run_in_virtual_time(with_a_stale_file())


def test_tables_unsaved_at_the_end_are_logged_and_release_the_directory() -> None:
    async def main() -> None:
        async with world() as around:
            broker = around.broker()
            await broker.__aenter__()
            client = await around.connect(broker)
            await client.put_topic("A", 1)
            await client.send("A", queue_id=0)
            await commit(client, 0)
            await asyncio.sleep(2)  # all is saved by then
            await commit(client, 1)
            around.files.sync_error = OSError("broken disk")
            with pytest.raises(StoreError, match=r"consumerOffset\.json: broken disk"):
                await broker.__aexit__(None, None, None)
            assert not around.files.locks

    run_in_virtual_time(main())
