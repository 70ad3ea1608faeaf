"""Scan and MeasureQueues as a client meets them; the scanning process is in memory."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ternmq_broker.scan import service
from ternmq_model.errors import BrokerBusy, InvalidParameter, TopicNotFound
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import Permission
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting import service_methods
from ternmq_remoting.rpc import ClientStream
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import Client, World, world
from tests.support.scan_child import SCHEMA, answer
from tests.support.scan_processes import MemoryProcesses

TOPICS = ("T", "Dies", "Refuses", "Nothing")


@pytest.fixture(autouse=True)
def has_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "has_pyarrow", lambda: True)


@asynccontextmanager
async def serving(
    messages_sent: int = 10, **settings: Any
) -> AsyncGenerator[tuple[World, Client, MemoryProcesses]]:
    """Give a broker with messages in queue 1 of a few topics."""
    processes = MemoryProcesses(answer)
    async with world(flush_mode=FlushMode.ASYNC, **settings) as around:
        around.processes = processes
        async with around.broker() as broker:
            client = await around.connect(broker)
            for topic in TOPICS:
                await client.put_topic(topic, 2)
                for _ in range(messages_sent):
                    await client.send(topic, queue_id=1)
            await asyncio.sleep(0.1)
            yield around, client, processes
            await client.connection.close()
    assert not processes.living


async def scan(client: Client, topic: str = "T", **fields: Any) -> list[messages.ScanReply]:
    """Return every reply to one request."""
    stream = client.connection.open(service_methods.SCAN)
    replies = await ask(stream, topic, **fields)
    await stream.finish()
    assert await stream.read() is None
    return replies


async def ask(stream: Any, topic: str = "T", **fields: Any) -> list[messages.ScanReply]:
    fields = {"queue_id": 1, "end_offset": 10, "batch_rows_max": 4, "batch_bytes_max": 64} | fields
    await stream.write(messages.ScanRequest(topic=topic, **fields))
    replies: list[messages.ScanReply] = []
    while not replies or not replies[-1].ends_stretch:
        reply = await stream.read()
        assert reply is not None
        replies.append(reply)
    return replies


async def to_the_end(
    stream: ClientStream[messages.ScanReply, messages.ScanRequest],
) -> messages.ScanReply | None:
    """Return the reply that ends the range; None when the stream ends."""
    while (reply := await stream.read()) is not None and not reply.ends_stretch:
        pass
    return reply


def big() -> messages.ScanRequest:
    """Ask for more than can be under way at once."""
    return messages.ScanRequest(
        topic="T", queue_id=1, end_offset=10, batch_rows_max=1, batch_bytes_max=8 << 20
    )


def test_scan_process_output_is_passed_on_unopened() -> None:
    async def main() -> None:
        async with serving() as (_, client, processes):
            replies = await scan(client, begin_offset=1, stored_from_ms=5, keys=["k"])
            told = [(each.ends_batch, each.next_offset, len(each.piece)) for each in replies]
            assert told == [
                (False, 1, len(SCHEMA)),
                (True, 5, 64),
                (True, 9, 64),
                (True, 10, 64),
                (False, 10, 8),
            ]
            assert replies[0].piece == SCHEMA
            (request,) = processes.children[0].requests
            assert (request.root, request.broker_name) == ("/broker", "broker-a")
            assert (request.topic, request.queue_id) == ("T", 1)
            assert (request.begin_offset, request.end_offset) == (1, 10)
            assert (request.stored_from_ms, request.keys, request.expression) == (5, ("k",), "*")
            assert len(request.columns) == 14

    run_in_virtual_time(main())


def test_long_batch_comes_in_pieces_and_the_last_ends_it() -> None:
    async def main() -> None:
        async with serving() as (_, client, _processes):
            replies = await scan(client, batch_bytes_max=1 << 20)
            assert max(len(each.piece) for each in replies) <= 1 << 20
            assert [each.next_offset for each in replies if each.ends_batch] == [4, 8, 10]
            length = sum(len(each.piece) for each in replies)
            assert length == 3 * (1 << 20) + len(SCHEMA) + 8

    run_in_virtual_time(main())


def test_range_ends_with_the_queue_and_an_empty_one_at_once() -> None:
    async def main() -> None:
        async with serving() as (_, client, processes):
            assert (await scan(client, end_offset=1_000))[-1].next_offset == 10
            assert processes.children[0].requests[0].end_offset == 10
            for begin in (10, 11):
                (reply,) = await scan(client, begin_offset=begin, end_offset=1_000)
                assert (reply.status.code, reply.next_offset) == (0, begin)

    run_in_virtual_time(main())


def test_stream_carries_several_ranges_even_after_a_refusal() -> None:
    async def main() -> None:
        async with serving() as (_, client, _processes):
            stream = client.connection.open(service_methods.SCAN)
            for topic, code in (("T", 0), ("No", 17), ("Refuses", 1), ("Dies", 2), ("T", 0)):
                replies = await ask(stream, topic)
                assert replies[-1].status.code == code, replies[-1]
            stream.cancel()

    run_in_virtual_time(main())


INVALID = ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"queue_id": 2}, INVALID, "queues 0 to 1, not 2"),
        ({"queue_id": -1}, INVALID, "not -1"),
        ({"begin_offset": -1}, INVALID, "begin_offset is -1"),
        ({"begin_offset": 5, "end_offset": 4}, INVALID, "end_offset is 4"),
        ({"stored_from_ms": -1}, INVALID, "stored_from_ms"),
        ({"stored_before_ms": -1}, INVALID, "stored_before_ms"),
        ({"batch_rows_max": 10_001}, INVALID, "batch_rows_max"),
        ({"batch_bytes_max": 9 << 20}, INVALID, "batch_bytes_max"),
        ({"columns": ["body", "flag"]}, INVALID, "'flag'"),
        ({"columns": ["body", "body"]}, INVALID, "twice"),
        ({"keys": ["a", ""]}, INVALID, "keys"),
        ({"keys": ["a"] * 65}, INVALID, "number of keys"),
        ({"keys": ["ä" * 9_000]}, INVALID, "bytes of keys"),
        (
            {"subscription": messages.Subscription(expression_type="SQL92", expression="a >")},
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "T",
        ),
        ({"subscription": messages.Subscription(topic="Other", expression="*")}, INVALID, "Other"),
    ],
)
def test_illegal_scan_request_is_refused_by_field(
    fields: dict[str, Any], code: int, remark: str
) -> None:
    async def main() -> None:
        async with serving(1) as (_, client, processes):
            (reply,) = await scan(client, **fields)
            assert reply.status.code == code
            assert remark in reply.status.remark
            assert not processes.children

    run_in_virtual_time(main())


def test_topic_without_read_permission_cannot_be_scanned() -> None:
    async def main() -> None:
        async with serving(1) as (_, client, _processes):
            await client.put_topic("T", 2, Permission.WRITE)
            (reply,) = await scan(client)
            assert reply.status.code == ResponseCode.NO_PERMISSION

    run_in_virtual_time(main())


def test_broker_without_arrow_or_processes_refuses_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with serving(1, scan_processes=0) as (_, client, _processes):
            (reply,) = await scan(client)
            assert reply.status.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        monkeypatch.setattr(service, "has_pyarrow", lambda: False)
        async with serving(1) as (_, client, _processes):
            (reply,) = await scan(client)
            assert reply.status.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert "pyarrow" in reply.status.remark

    run_in_virtual_time(main())


def test_deleted_topic_ends_its_scan_even_when_recreated() -> None:
    async def main() -> None:
        async with serving() as (_, client, _processes):
            stream = client.connection.open(service_methods.SCAN)
            await stream.write(big())
            assert await stream.read() is not None
            await client.call(service_methods.DELETE_TOPIC, admin.DeleteTopicRequest(topic="T"))
            await client.put_topic("T", 2)
            reply = await to_the_end(stream)
            assert reply is not None
            assert reply.status.code == ResponseCode.TOPIC_NOT_EXIST
            stream.cancel()

    run_in_virtual_time(main())


def test_slow_reader_holds_little_and_is_dropped_in_the_end() -> None:
    async def main() -> None:
        async with serving(scan_stall_ms=5_000, scan_processes=1) as (_, client, processes):
            stream = client.connection.open(service_methods.SCAN)
            await stream.write(big())
            await asyncio.sleep(4)
            assert processes.children[0].read_bytes <= 8 << 20
            async with asyncio.TaskGroup() as tasks:
                waiting = tasks.create_task(scan(client))
                await asyncio.sleep(0.5)
                assert not waiting.done()
            assert waiting.result()[-1].next_offset == 10
            with pytest.raises(BrokerBusy, match="read nothing for 5 s"):
                await to_the_end(stream)

    run_in_virtual_time(main())


def test_cancelled_scan_leaves_its_process_to_the_next() -> None:
    async def main() -> None:
        async with serving(scan_processes=1) as (_, client, processes):
            stream = client.connection.open(service_methods.SCAN)
            await stream.write(big())
            assert await stream.read() is not None
            stream.cancel()
            assert (await scan(client))[-1].next_offset == 10
            assert len(processes.children) == 1

    run_in_virtual_time(main())


def test_long_range_yields_its_process_and_resumes() -> None:
    async def main() -> None:
        async with serving(scan_processes=1) as (_, client, processes):
            stream = client.connection.open(service_methods.SCAN)
            await stream.write(big())
            reply = await stream.read()
            assert reply is not None
            assert reply.piece == SCHEMA
            await asyncio.sleep(3)
            others = asyncio.create_task(scan(client))
            await asyncio.sleep(0)
            replies: list[messages.ScanReply] = []
            while not others.done() or not replies[-1].ends_stretch:
                reply = await stream.read()
                assert reply is not None
                replies.append(reply)
            stream.cancel()
            assert others.result()[-1].next_offset == 10
            assert [each.next_offset for each in replies if each.ends_batch] == list(range(1, 11))
            assert SCHEMA not in {each.piece for each in replies}
            assert sum(len(each.piece) for each in replies) == 10 * (8 << 20) + 8
            (child,) = processes.children
            first, _, rest = child.requests
            assert 1 <= rest.begin_offset < 10
            assert (rest.end_offset, first.begin_offset) == (10, 0)

    run_in_virtual_time(main())


def test_scan_without_matches_reports_progress_alone() -> None:
    async def main() -> None:
        async with serving() as (_, client, _processes):
            replies = await scan(client, "Nothing")
            assert [each.next_offset for each in replies] == [0, 4, 8, 10, 10]
            assert not any(each.ends_batch for each in replies)

    run_in_virtual_time(main())


async def measure(client: Client, *stretches: tuple[Any, ...]) -> list[tuple[int, int]]:
    request = admin.MeasureQueuesRequest()
    for topic, number, begin, end, most in stretches:
        request.stretches.add(
            topic=topic, queue_id=number, begin_offset=begin, end_offset=end, bytes_max=most
        )
    reply = await client.call(service_methods.MEASURE_QUEUES, request)
    return [(each.end_offset, each.bytes) for each in reply.stretches]


def test_ranges_are_measured_by_record_lengths() -> None:
    async def main() -> None:
        async with serving(0) as (_, client, _processes):
            for length in range(10):
                await client.send("T", b"x" * length, queue_id=1)
            await asyncio.sleep(0.1)
            sizes: list[int] = []
            for offset in range(10):
                pulled = await client.pull("T", offset, queue_id=1, messages_max=1)
                sizes.append(len(pulled.records))
            assert await measure(
                client,
                ("T", 1, 0, 10, 0),
                ("T", 1, 3, 5, 0),
                ("T", 1, 0, 1_000, 0),
                ("T", 1, 2, 9, sizes[2] + 1),
                ("T", 1, 2, 9, sizes[2]),
                ("T", 1, 2, 9, 1),
                ("T", 1, 12, 15, 0),
                ("T", 0, 0, 5, 0),
            ) == [
                (10, sum(sizes)),
                (5, sum(sizes[3:5])),
                (10, sum(sizes)),
                (4, sum(sizes[2:4])),
                (3, sizes[2]),
                (3, sizes[2]),
                (12, 0),
                (0, 0),
            ]

    run_in_virtual_time(main())


def test_unmeasurable_ranges_are_refused_by_name() -> None:
    async def main() -> None:
        async with serving(0) as (_, client, _processes):
            assert await measure(client) == []
            with pytest.raises(TopicNotFound):
                await measure(client, ("No", 0, 0, 1, 0))
            with pytest.raises(InvalidParameter, match="end_offset"):
                await measure(client, ("T", 0, 2, 1, 0))
            with pytest.raises(InvalidParameter, match="number of ranges"):
                await measure(client, *[("T", 1, 0, 1, 0)] * 1_025)

    run_in_virtual_time(main())
