"""Retention and a full disk, as clients and operators meet them."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from ternmq_broker.config import BrokerRole
from ternmq_model.errors import RefusedError
from ternmq_model.response_code import ResponseCode as Code
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import common_pb2 as common
from ternmq_remoting import service_methods
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import SMALL_STORE, Client, bodies, serving, world
from tests.support.simulated_replicas import master_and_slave, start_slave
from tests.support.slow_jobs import slow_jobs

HOUR_S = 3600


async def put_retention(client: Client, topic: str, retention_ms: int) -> None:
    """Create a topic with a retention of its own."""
    config = common.TopicConfig(
        topic=topic, read_queues=1, write_queues=1, permissions=6, retention_ms=retention_ms
    )
    await client.call(service_methods.PUT_TOPIC, admin.PutTopicRequest(topic=config))


def test_full_disk_refuses_sends_serves_reads_and_recovers_by_itself() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (around, client):
            await client.send("A", b"before")
            around.files.used = 0.93
            await asyncio.sleep(2)
            with pytest.raises(RefusedError, match="93% full") as refused:
                await client.send("A", b"refused")
            assert refused.value.code == Code.SERVICE_NOT_AVAILABLE
            assert not refused.value.may_have_happened
            assert bodies(await client.pull("A")) == [b"before"]
            status = await client.call(
                service_methods.DESCRIBE_BROKER, admin.DescribeBrokerRequest()
            )
            assert (status.disk_level, round(status.disk_used_percent)) == ("full", 93)
            around.files.used = 0.5
            await asyncio.sleep(2)
            await client.send("A", b"after")
            assert bodies(await client.pull("A")) == [b"before", b"after"]
            status = await client.call(
                service_methods.DESCRIBE_BROKER, admin.DescribeBrokerRequest()
            )
            assert status.disk_level == "normal"

    run_in_virtual_time(main())


@pytest.mark.parametrize(("has_space", "kept"), [(True, True), (False, False)])
def test_young_files_go_only_when_the_disk_itself_has_no_space(
    has_space: bool, kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Others hold 86 % of the disk, where the log makes no next file: to delete helps nobody."""

    async def main() -> None:
        async with world() as around, around.broker() as broker:
            client = await around.connect(broker)
            await client.put_topic("A", 1)
            for _ in range(30):
                await client.send("A", bytes(1 << 20))
                await asyncio.sleep(1)
            await asyncio.sleep(30)
            around.files.used = 0.86 if has_space else 0.5
            around.files.space_bytes = None if has_space else 0
            for _ in range(60):
                with contextlib.suppress(RefusedError):
                    await client.send("A", bytes(1 << 20))
                await asyncio.sleep(2)
            assert (caplog.text.count("file deleted") == 0) == kept
            await client.connection.close()

    with caplog.at_level("WARNING"):
        run_in_virtual_time(main())


def test_expired_files_are_deleted_on_an_operators_request() -> None:
    async def main() -> None:
        async with world() as around:
            around.store_config = replace(SMALL_STORE, file_reserved_hours=1)
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                for _ in range(10):
                    await client.send("A", bytes(1 << 20))
                reply = await client.call(service_methods.CLEAN_STORE, admin.CleanStoreRequest())
                assert (reply.files_deleted, reply.log_min_offset) == (0, 0)
                around.clock.asleep_ms += HOUR_S * 1000
                for _ in range(4):
                    await client.send("A", bytes(1 << 20))
                await asyncio.sleep(15)  # the checkpoint must vouch for what goes
                reply = await client.call(service_methods.CLEAN_STORE, admin.CleanStoreRequest())
                # The hour may have come by itself, depending on where the machine stands.
                assert reply.log_min_offset >= 2 * SMALL_STORE.commit_log_file_bytes
                await client.connection.close()

    run_in_virtual_time(main())


def test_topic_retention_holds_at_once_and_after_a_restart() -> None:
    async def main() -> None:
        async with world() as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await put_retention(client, "short", HOUR_S * 1000)
                await client.put_topic("long", 1)
                for topic in ("short", "long"):
                    await client.send(topic, b"old")
                around.clock.asleep_ms += 2 * HOUR_S * 1000
                await client.send("short", b"new")
                await asyncio.sleep(20)
                reply = await client.pull("short", 1)
                assert (reply.min_offset, bodies(reply)) == (1, [b"new"])
                assert bodies(await client.pull("long")) == [b"old"]
                await client.connection.close()
            async with around.broker() as broker:
                client = await around.connect(broker)
                reply = await client.pull("short", 1)
                assert (reply.min_offset, bodies(reply)) == (1, [b"new"])
                await client.connection.close()

    run_in_virtual_time(main())


def test_disk_full_at_the_start_is_known_before_the_first_message() -> None:
    async def main() -> None:
        async with world() as around:
            around.files.used = 0.95
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                with pytest.raises(RefusedError, match="95% full"):
                    await client.send("A")
                await client.connection.close()

    run_in_virtual_time(main())


def test_live_settings_never_delete_what_is_younger_than_four_hours() -> None:
    async def main() -> None:
        async with world() as around:
            around.store_config = replace(SMALL_STORE, clean_delay_ms=0)
            around.files.used = 0.8
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                for _ in range(20):
                    await client.send("A", bytes(1 << 20))
                await asyncio.sleep(15)
                for name, values in {
                    "disk_clean_percent": (10, 50),
                    "disk_force_percent": (30, 70),
                    "disk_full_percent": (35, 85),
                    "file_reserved_hours": (1, 4),
                }.items():
                    for value in values:
                        values_of = {f"store.{name}": str(value)}
                        update = admin.UpdateSettingsRequest(values=values_of)
                        with contextlib.suppress(RefusedError):
                            await client.call(service_methods.UPDATE_SETTINGS, update)
                await asyncio.sleep(15)
                reply = await client.call(service_methods.CLEAN_STORE, admin.CleanStoreRequest())
                assert (reply.files_deleted, reply.log_min_offset) == (0, 0)
                await client.connection.close()

    run_in_virtual_time(main())


def test_filling_disk_costs_the_oldest_files_within_seconds() -> None:
    async def main() -> None:
        async with world() as around:
            around.store_config = replace(SMALL_STORE, clean_delay_ms=0, forced_reserved_hours=0)
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                for _ in range(20):
                    await client.send("A", bytes(1 << 20))
                around.files.used = 0.87
                await asyncio.sleep(2)
                around.files.used = 0.5
                reply = await client.pull("A", 0)
                assert reply.min_offset > 10
                await client.connection.close()

    run_in_virtual_time(main())


def test_retention_waits_while_the_clock_is_in_doubt() -> None:
    """By the hour, which it always is, and in topics with a retention of their own."""

    async def main() -> None:
        async with world() as around:
            hours = ";".join(f"{hour:02}" for hour in range(24))
            around.store_config = replace(
                SMALL_STORE, file_reserved_hours=1, clean_delay_ms=0, delete_when=hours
            )
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await put_retention(client, "short", HOUR_S * 1000)
                await client.send("short", b"old")
                for _ in range(10):
                    await client.send("A", bytes(1 << 20))
                await asyncio.sleep(2)
                await client.connection.close()
            around.clock.wall_offset_ms = 40 * 24 * HOUR_S * 1000
            async with around.broker() as broker:
                client = await around.connect(broker)
                await asyncio.sleep(500)
                assert await min_offset(client, "A") == 0
                assert bodies(await client.pull("short")) == [b"old"]
                around.clock.wall_offset_ms = 0
                with slow_jobs(10):
                    await asyncio.sleep(700)
                assert await min_offset(client, "A") == 0
                assert bodies(await client.pull("short")) == [b"old"]
                await client.connection.close()

    run_in_virtual_time(main())


@pytest.mark.parametrize("days", [-40, 40])
def test_step_that_was_taken_back_while_the_broker_was_down_deletes_nothing(days: int) -> None:
    async def main() -> None:
        async with world() as around:
            around.store_config = replace(SMALL_STORE, file_reserved_hours=72)
            for wall_offset_ms in (days * 24 * HOUR_S * 1000, 0):
                async with around.broker() as broker:
                    client = await around.connect(broker)
                    await client.put_topic("A", 1)
                    for _ in range(6):
                        await client.send("A", bytes(1 << 20), queue_id=0)
                    around.clock.wall_offset_ms = wall_offset_ms
                    with slow_jobs(10):
                        await asyncio.sleep(700)
                    await client.send("A", b"later", queue_id=0)
                    reply = await client.call(
                        service_methods.CLEAN_STORE, admin.CleanStoreRequest()
                    )
                    assert reply.files_deleted == 0
                    await client.connection.close()
                around.clock.wall_offset_ms = 0

    run_in_virtual_time(main())


def test_slave_whose_clock_is_ahead_hides_no_young_message() -> None:
    async def main() -> None:
        async with master_and_slave(role=BrokerRole.SYNC_MASTER) as (cluster, client):
            await put_retention(client, "R", HOUR_S * 1000)
            await client.send("R", b"first", queue_id=0)
            cluster.clock_offsets_ms["a-1"] = 2 * HOUR_S * 1000
            await cluster.stop("a-1")
            await start_slave(cluster)
            with slow_jobs(10):
                await asyncio.sleep(630)
            await client.send("R", b"second", queue_id=0)
            await asyncio.sleep(60)
            slave = await cluster.connect("a-1", "another")
            assert bodies(await slave.pull("R")) == [b"first", b"second"]

    run_in_virtual_time(main())


async def min_offset(client: Client, topic: str) -> int:
    """Return the first message that queue 0 still has."""
    request = admin.DescribeTopicRequest(topic=topic)
    reply: admin.DescribeTopicReply = await client.call(service_methods.DESCRIBE_TOPIC, request)
    return reply.queues[0].min_offset
