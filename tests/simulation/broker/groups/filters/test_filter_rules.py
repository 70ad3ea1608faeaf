"""Reading by conditions on properties, through the broker's RPCs."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from ternmq_model.errors import RefusedError
from ternmq_model.response_code import ResponseCode as Code
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_runtime.service import OwnedTasks
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import CONFIG, SMALL_STORE, Client, Puller, bodies, serving, world


def where(condition: str, **fields: Any) -> messages.Subscription:
    return messages.Subscription(expression_type="SQL92", expression=condition, **fields)


async def fill(client: Client, *values: int, topic: str = "A") -> None:
    for value in values:
        await client.send(topic, b"%d" % value, properties={"a": str(value)})


def member(condition: str, version_ms: int = 1, group: str = "G") -> groups.ConsumerGroup:
    wanted = where(condition, topic="A", version_ms=version_ms)
    return groups.ConsumerGroup(group=group, model=groups.CLUSTERING, subscriptions=[wanted])


@pytest.mark.parametrize("memory_bytes", [1 << 30, 1])
def test_condition_matches_messages_from_memory_and_disk(memory_bytes: int) -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}, memory_bytes=memory_bytes) as (_, client):
            await fill(client, *range(20))
            found: list[bytes] = []
            offset = 0
            while offset < 20:
                reply = await client.pull("A", offset, subscription=where("a >= 7 AND a < 12"))
                found += bodies(reply)
                assert reply.next_offset > offset
                offset = reply.next_offset
            assert found == [b"7", b"8", b"9", b"10", b"11"]

    run_in_virtual_time(main())


@pytest.mark.parametrize(("condition", "found"), [("IS NULL", [b"x"]), ("IS NOT NULL", [])])
def test_place_of_the_source_is_hidden_from_conditions(condition: str, found: list[bytes]) -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await client.send("A", b"x", properties={"DELAY": "1"})
            await asyncio.sleep(2)
            assert bodies(await client.pull("A")) == [b"x"]
            reply = await client.pull("A", subscription=where(f"TERNMQ_SOURCE {condition}"))
            assert bodies(reply) == found

    run_in_virtual_time(main())


def test_stored_messages_are_filtered_alike_after_restart() -> None:
    async def main() -> None:
        async with world() as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await fill(client, *range(10))
                await client.connection.close()
            async with around.broker() as broker:
                client = await around.connect(broker)
                reply = await client.pull("A", subscription=where("a IN ('3', '9')"))
                assert bodies(reply) == [b"3", b"9"]
                await client.connection.close()

    run_in_virtual_time(main())


def test_filtered_read_tests_at_most_800_messages_and_returns_its_position() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            sender = await client.open_sender()
            for _ in range(4):
                await sender.send(*[sender.record("A", properties={"a": "1"})] * 300)
            reply = await client.pull("A", subscription=where("a = 2"))
            assert (reply.status.code, reply.next_offset) == (Code.PULL_RETRY_IMMEDIATELY, 800)
            reply = await client.pull("A", 800, subscription=where("a = 2"))
            assert (reply.status.code, reply.next_offset) == (Code.PULL_RETRY_IMMEDIATELY, 1200)
            many = where(" OR ".join(["a=2"] * 300))
            reply = await client.pull("A", subscription=many)
            assert (reply.status.code, reply.next_offset) == (Code.PULL_RETRY_IMMEDIATELY, 800)

    run_in_virtual_time(main())


def test_held_pull_ignores_messages_it_does_not_want() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client), OwnedTasks() as tasks:
            pulling = tasks.spawn(
                client.pull("A", subscription=where("a > 5"), wait_ms=20_000), "pull"
            )
            for value in (1, 2, 3):
                await asyncio.sleep(1)
                await fill(client, value)
            assert not pulling.done()
            await fill(client, 6)
            reply = await pulling
            assert bodies(reply) == [b"6"]
            assert reply.next_offset == 4

    run_in_virtual_time(main())


def test_held_pull_without_matches_gets_its_position_after_seconds() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (around, client), OwnedTasks() as tasks:
            begun_at_ms = around.clock.monotonic_ms()
            pulling = tasks.spawn(
                client.pull("A", subscription=where("a > 5"), wait_ms=20_000), "pull"
            )
            for value in (1, 2, 3, 1, 2, 3):
                await asyncio.sleep(1)
                await fill(client, value)
            reply = await pulling
            assert reply.status.code == Code.PULL_RETRY_IMMEDIATELY
            assert reply.next_offset >= 5
            assert around.clock.monotonic_ms() - begun_at_ms < 7_000

    run_in_virtual_time(main())


def test_stream_delivers_matching_messages_as_they_come() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await fill(client, 1, 6, 2)
            puller = await client.open_puller()
            await puller.subscribe(1, "A", subscription=where("a > 5"))
            first = await puller.read_one()
            assert (bodies(first), first.next_offset) == ([b"6"], 3)
            await fill(client, 3, 4, 7)
            pulled = await puller.read_one()
            while not pulled.records:
                pulled = await puller.read_one()
            assert (bodies(pulled), pulled.next_offset) == ([b"7"], 6)

    run_in_virtual_time(main())


def test_pull_without_a_condition_uses_its_groups() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await fill(client, 1, 6)
            stream, welcome = await client.open_session("c@1", member("a > 5", version_ms=5))
            assert welcome.status.code == 0
            reply = await client.pull("A", group="G", subscription=None)
            assert bodies(reply) == [b"6"]
            reply = await client.pull("A", group="G", subscription=None, subscription_version_ms=5)
            assert bodies(reply) == [b"6"]
            with pytest.raises(RefusedError, match="version 5") as caught:
                await client.pull("A", group="G", subscription=None, subscription_version_ms=6)
            assert caught.value.code == Code.SUBSCRIPTION_NOT_LATEST
            puller = await client.open_puller("G")
            await puller.subscribe(1, "A", subscription=None, subscription_version_ms=6)
            assert (await puller.read_one()).status.code == Code.SUBSCRIPTION_NOT_LATEST
            stream.cancel()

    run_in_virtual_time(main())


def test_stream_without_a_condition_follows_its_groups() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            stream, _ = await client.open_session("c@1", member("a > 5"))
            puller = await client.open_puller("G")
            await puller.subscribe(1, "A", subscription=None)
            await fill(client, 1, 6)
            assert bodies(await read_some(puller)) == [b"6"]
            beat = groups.Heartbeat(consumer_groups=[member("a < 5", version_ms=2)])
            await stream.write(groups.SessionRequest(heartbeat=beat))
            await asyncio.sleep(1)
            await fill(client, 7, 2)
            assert bodies(await read_some(puller)) == [b"2"]
            await stream.write(groups.SessionRequest(goodbye=groups.Goodbye()))
            await asyncio.sleep(1)
            await fill(client, 3)
            assert (await read_some(puller)).status.code == Code.SUBSCRIPTION_NOT_EXIST

    run_in_virtual_time(main())


async def read_some(puller: Puller) -> messages.PulledRecords:
    """Return the next reply that has messages or an error."""
    while not ((pulled := await puller.read_one()).records or pulled.status.code):
        pass
    return pulled


def test_malformed_condition_is_refused_with_its_position() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            with pytest.raises(RefusedError, match="character 5") as caught:
                await client.pull("A", subscription=where("a = ?"))
            assert caught.value.code == Code.SUBSCRIPTION_PARSE_FAILED
            puller = await client.open_puller()
            await puller.subscribe(1, "A", subscription=where("a = ?"))
            assert (await puller.read_one()).status.code == Code.SUBSCRIPTION_PARSE_FAILED
            with pytest.raises(RefusedError, match="character 5"):
                await client.open_session("c@1", member("a = ?"))

    run_in_virtual_time(main())


def test_disabled_conditions_are_refused_to_pulls_and_sessions() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}, property_filter_enabled=False) as (_, client):
            with pytest.raises(RefusedError, match=r"broker\.property_filter_enabled") as caught:
                await client.pull("A", subscription=where("a = 1"))
            assert caught.value.code == Code.SYSTEM_ERROR
            with pytest.raises(RefusedError, match=r"broker\.property_filter_enabled"):
                await client.open_session("c@1", member("a = 1"))

    run_in_virtual_time(main())


@pytest.mark.parametrize("memory_bytes", [1 << 30, 1])
def test_bit_maps_skip_messages_without_reading_their_records(memory_bytes: int) -> None:
    async def main() -> None:
        async with world(filter_bit_maps_enabled=True, memory_bytes=memory_bytes) as around:
            around.store_config = replace(SMALL_STORE, consume_queue_ext_enabled=True)
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await fill(client, 1, 6)  # before anybody filters
                stream, _ = await client.open_session("c@1", member("a > 5"))
                await asyncio.sleep(1)
                await fill(client, 2, 7, 8)
                found: list[bytes] = []
                offset = 0
                while offset < 5:
                    reply = await client.pull("A", offset, group="G", subscription=where("a > 5"))
                    found += bodies(reply)
                    offset = reply.next_offset
                assert found == [b"6", b"7", b"8"]
                ext = around.files.nodes[CONFIG.data / "consumequeue_ext/A/0" / ("0" * 20)]
                assert ext.data.tobytes().count(b"\x00\x22") >= 3
                stream.cancel()
                await client.connection.close()

    run_in_virtual_time(main())


@pytest.mark.parametrize("restarts", [False, True])
def test_condition_changed_after_the_clock_went_back_is_asked_of_earlier_messages(
    restarts: bool,
) -> None:
    async def change(client: Client) -> None:
        """Another condition, and a message since the clock returned."""
        await client.send("A", b"later", queue_id=0, properties={"a": "3"})
        await client.open_session("c1", member("a < 5", 2), incarnation="2")
        await asyncio.sleep(1)
        wanted = where("a < 5", topic="A", version_ms=2)
        reply = await client.pull("A", 0, group="G", subscription=wanted)
        assert bodies(reply) == [b"1", b"2", b"3", b"4", b"later"]
        await client.connection.close()

    async def main() -> None:
        async with world(filter_bit_maps_enabled=True, clock_follow_ms=10_000) as around:
            around.store_config = replace(SMALL_STORE, consume_queue_ext_enabled=True)
            around.clock.wall_offset_ms = 86_400_000
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await client.open_session("c1", member("a > 100", 1))
                await asyncio.sleep(1)
                await fill(client, 1, 2, 3, 4)
                around.clock.wall_offset_ms = 0
                await asyncio.sleep(20)
                if not restarts:
                    await change(client)
                await client.connection.close()
            if restarts:
                async with around.broker() as broker:
                    await change(await around.connect(broker))

    run_in_virtual_time(main())


def test_retry_topic_is_filtered_by_the_original_topics_rule() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}, retry_filter_enabled=True) as (_, client):
            await client.put_topic("%RETRY%G", 1)
            stream, _ = await client.open_session("c@1", member("a > 5"))
            sender = await client.open_sender()
            for value in ("1", "6"):
                properties = {"RETRY_TOPIC": "A", "a": value}
                record = sender.record("%RETRY%G", value.encode(), properties=properties)
                await sender.send(record)
            reply = await client.pull("%RETRY%G", group="G")
            assert bodies(reply) == [b"6"]
            stream.cancel()

    run_in_virtual_time(main())
