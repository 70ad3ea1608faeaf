import asyncio
from pathlib import Path
from typing import Any

import pytest

from ternmq_model.errors import ConnectionLost, InvalidParameter, RefusedError
from ternmq_model.response_code import ResponseCode as Code
from ternmq_model.route import Permission
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting import service_methods
from ternmq_runtime.service import OwnedTasks
from ternmq_store.config import FlushMode
from ternmq_store.disk.layout import commit_log_folder, file_name
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import Client, Puller, Sender, bodies, serving, world


async def send(sender: Sender, topic: str, *texts: bytes, queue_id: int = 0) -> None:
    await sender.send(*(sender.record(topic, text, queue_id=queue_id) for text in texts))


async def is_silent(puller: Puller) -> bool:
    """Tell whether nothing comes for a while; the stream is of no use afterwards if not."""
    try:
        async with asyncio.timeout(5):
            await puller.read()
    except TimeoutError:
        return True
    return False


def test_messages_come_as_they_are_sent() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            sender, puller = await client.open_sender(), await client.open_puller()
            await send(sender, "A", b"1", b"2")
            await puller.subscribe(7, "A")
            pulled = await puller.read_one()
            assert (pulled.handle, pulled.status.code) == (7, Code.SUCCESS)
            assert bodies(pulled) == [b"1", b"2"]
            assert (pulled.next_offset, pulled.min_offset, pulled.max_offset) == (2, 0, 2)
            await send(sender, "A", b"3")
            assert bodies(await puller.read_one()) == [b"3"]

    run_in_virtual_time(main())


def test_damaged_messages_are_skipped_and_reported() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await send(await client.open_sender(), "A", *(b"body-%d" % n for n in range(6)))
                await asyncio.sleep(1)
                await client.connection.close()
            log = around.files.nodes[commit_log_folder(Path("/broker")) / file_name(0)].data
            for text in (b"body-2", b"body-5"):
                log[log.tobytes().index(text)] ^= 1
            async with around.broker() as broker:
                client = await around.connect(broker)
                puller = await client.open_puller()
                await puller.subscribe(1, "A")
                told: list[messages.PulledRecords] = []
                while not told or told[-1].next_offset < 6:
                    told.append(await puller.read_one())
                found = [body for pulled in told for body in bodies(pulled)]
                assert found == [b"body-0", b"body-1", b"body-3", b"body-4"]
                assert sum(pulled.damaged for pulled in told) == 2
                await client.connection.close()

    run_in_virtual_time(main())


def test_reply_carries_several_queues() -> None:
    async def main() -> None:
        async with serving(topics={"A": 2, "B": 1}) as (_, client):
            sender, puller = await client.open_sender(), await client.open_puller()
            await sender.send(
                sender.record("A", b"a0"),
                sender.record("A", b"a1", queue_id=1),
                sender.record("B", b"b0"),
            )
            await puller.subscribe(1, "A", credit_messages=0)
            await puller.subscribe(2, "A", queue_id=1, credit_messages=0)
            await puller.subscribe(3, "B", credit_messages=0)
            await asyncio.sleep(1)
            for handle in (1, 2, 3):
                await puller.credit(handle, count=1)
            got: dict[int, list[bytes]] = {}
            while len(got) < 3:
                got |= {pulled.handle: bodies(pulled) for pulled in await puller.read()}
            assert got == {1: [b"a0"], 2: [b"a1"], 3: [b"b0"]}

    run_in_virtual_time(main())


def test_credit_in_messages_ends_a_reply() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            sender, puller = await client.open_sender(), await client.open_puller()
            await send(sender, "A", *(b"%d" % number for number in range(10)))
            await puller.subscribe(1, "A", credit_messages=3)
            assert bodies(await puller.read_one()) == [b"0", b"1", b"2"]
            await puller.credit(1, count=2)
            assert bodies(await puller.read_one()) == [b"3", b"4"]
            assert await is_silent(puller)

    run_in_virtual_time(main())


def test_byte_credit_may_go_negative_by_one_record() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            sender, puller = await client.open_sender(), await client.open_puller()
            await send(sender, "A", bytes(1000), bytes(1000), bytes(1000))
            await puller.subscribe(1, "A", credit_bytes=1)
            assert len(bodies(await puller.read_one())) == 1
            await puller.credit(1, record_bytes=500)
            await puller.credit(1, record_bytes=700)
            assert len(bodies(await puller.read_one())) == 1
            assert await is_silent(puller)

    run_in_virtual_time(main())


def test_reply_holds_1000_kib_or_one_larger_record() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            sender, puller = await client.open_sender(), await client.open_puller()
            for size in (400_000, 400_000, 400_000, 3_000_000, 10):
                await send(sender, "A", bytes(size))
            await puller.subscribe(1, "A", credit_bytes=10 << 20)
            got = [bodies(await puller.read_one()) for _ in range(4)]
            assert [[len(body) for body in reply] for reply in got] == [
                [400_000, 400_000],
                [400_000],
                [3_000_000],
                [10],
            ]

    run_in_virtual_time(main())


def test_queues_take_turns() -> None:
    async def main() -> None:
        async with serving(topics={"A": 2}) as (_, client):
            sender, puller = await client.open_sender(), await client.open_puller()
            for _ in range(12):
                await send(sender, "A", bytes(500_000), queue_id=0)
            await send(sender, "A", b"small", queue_id=1)
            await puller.subscribe(1, "A", queue_id=0, credit_bytes=10 << 20)
            await puller.subscribe(2, "A", queue_id=1)
            handles: list[int] = []
            while 2 not in handles:
                handles += [pulled.handle for pulled in await puller.read()]
            assert handles.count(1) <= 6

    run_in_virtual_time(main())


def test_turn_of_full_replies_has_2_mib() -> None:
    async def main() -> None:
        async with serving(topics={"A": 2}) as (_, client):
            sender, puller = await client.open_sender(), await client.open_puller()
            for number in range(20):
                await send(sender, "A", bytes(1_000_000), queue_id=number % 2)
            for handle in (1, 2):
                await puller.subscribe(
                    handle, "A", queue_id=handle - 1, credit_messages=0, credit_bytes=10 << 20
                )
            await asyncio.sleep(1)
            for handle in (1, 2):
                await puller.credit(handle, count=10)
            handles = [(await puller.read_one()).handle for _ in range(20)]
            assert handles == [1] * 3 + [2] * 3 + [1] * 3 + [2] * 3 + [1] * 3 + [2] * 3 + [1, 2]

    run_in_virtual_time(main())


def test_filtering_subscription_reports_its_position() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            sender, puller = await client.open_sender(), await client.open_puller()
            tagged = [
                sender.record(
                    "A", b"%d" % number, properties={"TAGS": "x" if number == 2000 else "y"}
                )
                for number in range(2500)
            ]
            await sender.send(*tagged)
            only = messages.Subscription(expression="x")
            await puller.subscribe(1, "A", subscription=only)
            pulled = await puller.read_one()
            assert bodies(pulled) == [b"2000"]
            if pulled.next_offset < 2500:
                pulled = await puller.read_one()
            assert pulled.next_offset == 2500
            assert bodies(pulled) in ([], [b"2000"])
            await send(sender, "A", b"other")
            pulled = await puller.read_one()
            assert (pulled.next_offset, pulled.records) == (2501, b"")

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("offset", "is_chosen", "next_offset"),
    [(-1, False, 0), (-1, True, 0), (99, False, 0), (99, True, 1)],
)
def test_bad_offset_is_corrected_and_reading_goes_on(
    offset: int, is_chosen: bool, next_offset: int
) -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            sender, puller = await client.open_sender(), await client.open_puller()
            await send(sender, "A", b"1")
            await puller.subscribe(1, "A", offset=offset, offset_is_chosen=is_chosen)
            got = await puller.read()
            assert (got[0].status.code, got[0].next_offset) == (Code.PULL_OFFSET_MOVED, next_offset)
            await send(sender, "A", b"2")
            rest = got[1:] or await puller.read()
            assert bodies(rest[0])[:1] == [b"12"[next_offset : next_offset + 1]]

    run_in_virtual_time(main())


def test_offset_that_was_chosen_is_taken_once_where_nothing_is_to_read() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            sender, puller = await client.open_sender(), await client.open_puller()
            await puller.subscribe(1, "A", offset=0)
            await puller.subscribe(2, "A", offset=0, offset_is_chosen=True)
            (taken,) = await puller.read()
            assert (taken.handle, taken.status.code, taken.next_offset) == (2, 0, 0)
            assert not taken.record_sizes
            await send(sender, "A", b"1")
            got = await puller.read()
            assert [bodies(each) for each in got] == [[b"1"]] * len(got)

    run_in_virtual_time(main())


def test_subscription_beyond_an_empty_queue_is_corrected_and_waits() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            sender, puller = await client.open_sender(), await client.open_puller()
            await puller.subscribe(1, "A", offset=5)
            pulled = await puller.read_one()
            assert (pulled.status.code, pulled.next_offset) == (Code.PULL_OFFSET_MOVED, 0)
            await send(sender, "A", b"1")
            assert bodies(await puller.read_one()) == [b"1"]

    run_in_virtual_time(main())


def test_seek_is_a_new_handle_and_silences_the_old() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            sender, puller = await client.open_sender(), await client.open_puller()
            await send(sender, "A", b"1", b"2")
            await puller.subscribe(1, "A")
            await puller.read_one()
            await puller.unsubscribe(1)
            await puller.subscribe(2, "A", offset=1)
            assert bodies(await puller.read_one()) == [b"2"]
            await send(sender, "A", b"3")
            assert (await puller.read_one()).handle == 2
            assert await is_silent(puller)

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "Unknown"}, Code.TOPIC_NOT_EXIST),
        ({"topic": "../A"}, Code.INVALID_PARAMETER),
        ({"topic": "A", "queue_id": 1}, Code.INVALID_PARAMETER),
        ({"topic": "A", "queue_id": -1}, Code.INVALID_PARAMETER),
        ({"topic": "WriteOnly"}, Code.NO_PERMISSION),
        ({"topic": "A", "credit_bytes": -1}, Code.INVALID_PARAMETER),
        ({"topic": "A", "credit_messages": -1}, Code.INVALID_PARAMETER),
        ({"topic": "A", "subscription": None}, Code.SUBSCRIPTION_NOT_EXIST),
    ],
)
def test_impossible_subscription_ends_alone(fields: dict[str, Any], code: Code) -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await client.put_topic("WriteOnly", 1, Permission.WRITE)
            sender, puller = await client.open_sender(), await client.open_puller()
            await puller.subscribe(1, **fields)
            pulled = await puller.read_one()
            assert (pulled.handle, pulled.status.code) == (1, code)
            await puller.subscribe(1, "A")
            await send(sender, "A", b"1")
            assert bodies(await puller.read_one()) == [b"1"]

    run_in_virtual_time(main())


async def delete(client: Client, topic: str) -> None:
    await client.call(service_methods.DELETE_TOPIC, admin.DeleteTopicRequest(topic=topic))


async def forbid(client: Client, topic: str) -> None:
    await client.put_topic(topic, 1, Permission.WRITE)


@pytest.mark.parametrize(
    ("change", "code"), [(delete, Code.TOPIC_NOT_EXIST), (forbid, Code.NO_PERMISSION)]
)
def test_deleted_topic_ends_its_handles(change: Any, code: Code) -> None:
    async def main() -> None:
        async with serving(topics={"A": 1, "B": 1}) as (_, client):
            sender, puller = await client.open_sender(), await client.open_puller()
            await send(sender, "A", b"1")
            await puller.subscribe(1, "A")
            await puller.subscribe(2, "B")
            await puller.read_one()
            await change(client, "A")
            pulled = await puller.read_one()
            assert (pulled.handle, pulled.status.code) == (1, code)
            await send(sender, "B", b"2")
            assert (await puller.read_one()).handle == 2

    run_in_virtual_time(main())


def test_recreated_topic_ends_its_handles_with_or_without_credit() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1, "B": 1}) as (_, client), OwnedTasks() as tasks:
            sender, puller = await client.open_sender(), await client.open_puller()
            await send(sender, "A", b"1")
            await puller.subscribe(1, "A")
            await puller.read_one()
            await puller.subscribe(2, "A", offset=1, credit_messages=0)
            await puller.subscribe(3, "B")
            await asyncio.sleep(1)
            deleting = tasks.spawn(delete(client, "A"), "delete")
            creating = tasks.spawn(client.put_topic("A", 1), "create")
            await deleting
            await creating
            await send(sender, "A", b"new")
            ended = [(each.handle, each.status.code) for each in await puller.read()]
            assert ended == [(1, Code.TOPIC_NOT_EXIST), (2, Code.TOPIC_NOT_EXIST)]
            await puller.subscribe(4, "A")
            assert bodies(await puller.read_one()) == [b"new"]

    run_in_virtual_time(main())


def test_handle_is_open_once() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            puller = await client.open_puller()
            await puller.subscribe(1, "A")
            await puller.subscribe(1, "A")
            with pytest.raises(InvalidParameter, match="handle 1"):
                await puller.read()

    run_in_virtual_time(main())


def test_stream_begins_with_open_of_a_legal_group() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            puller = await client.open_puller("no good")
            with pytest.raises(RefusedError, match="no good"):
                await puller.read()
            stream = client.connection.open(service_methods.PULL_STREAM)
            await stream.write(messages.PullStreamRequest(credit=messages.PullCredit(handle=1)))
            with pytest.raises(InvalidParameter, match="begins with `open`"):
                await stream.read()

    run_in_virtual_time(main())


def test_credit_for_a_closed_handle_is_ignored() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            sender, puller = await client.open_sender(), await client.open_puller()
            await puller.credit(5, count=1)
            await puller.unsubscribe(5)
            await puller.subscribe(1, "A")
            await send(sender, "A", b"1")
            assert bodies(await puller.read_one()) == [b"1"]

    run_in_virtual_time(main())


def test_closing_broker_breaks_the_stream() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (around, client):
            async with around.broker(name="other", data=around.config.data / "other") as broker:
                other = await around.connect(broker)
                puller = await other.open_puller()
            with pytest.raises((ConnectionLost, RefusedError)):
                await puller.read()
            assert (await client.pull("A")).status.code == Code.PULL_NOT_FOUND

    run_in_virtual_time(main())
