"""Messages by key and offsets by time, asked of a broker."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ternmq_model.errors import InvalidParameter, MessageNotFound, TopicNotFound
from ternmq_model.record.format import decode_record
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting import service_methods
from ternmq_store.read.record_reader import GoodRecord, RecordReader
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import SMALL_STORE, Client, serving, world


async def query(client: Client, topic: str, key: str, **wanted: Any) -> Sequence[bytes]:
    """Return the bodies of what is found."""
    request = messages.QueryMessagesRequest(topic=topic, key=key, **wanted)
    reply = await client.call(service_methods.QUERY_MESSAGES, request)
    bodies: list[bytes] = []
    position = 0
    for size in np.frombuffer(reply.record_sizes, dtype="<i4").tolist():
        record = decode_record(reply.records[position : position + size])
        assert record is not None
        bodies.append(bytes(record.body))
        position += size
    return bodies


def test_messages_are_found_by_key_in_one_topic_or_in_all() -> None:
    async def main() -> None:
        async with serving(topics={"A": 2, "B": 1}) as (_, client):
            sent = await client.send("A", b"one", properties={"KEYS": "k x"})
            await client.send("B", b"two", properties={"KEYS": "k"})
            await client.send("A", b"three", properties={"KEYS": "k"})
            assert await query(client, "A", "k") == [b"one", b"three"]
            assert await query(client, "", "k") == [b"one", b"two", b"three"]
            assert await query(client, "", "k", messages_max=1) == [b"three"]
            assert await query(client, "A", sent.message_id, is_unique_key=True) == [b"one"]
            for topic, key, wanted in (
                ("A", "nothing", {}),
                ("B", "x", {}),
                ("A", "x", {"is_unique_key": True}),
                ("A", "k", {"end_ms": 1}),
            ):
                with pytest.raises(MessageNotFound, match=f"no message of .* has the key '{key}'"):
                    await query(client, topic, key, **wanted)
            with pytest.raises(TopicNotFound):
                await query(client, "C", "k")
            for wanted in ({"begin_ms": 5, "end_ms": 4}, {"messages_max": -1}):
                with pytest.raises(InvalidParameter):
                    await query(client, "A", "k", **wanted)
            with pytest.raises(InvalidParameter, match="needs a key"):
                await query(client, "A", "")

    run_in_virtual_time(main())


def test_broker_without_an_index_refuses_queries() -> None:
    async def main() -> None:
        async with world() as around:
            around.store_config = replace(SMALL_STORE, index_enabled=False)
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                with pytest.raises(MessageNotFound, match="no index"):
                    await query(client, "A", "k")
                await client.connection.close()

    run_in_virtual_time(main())


def test_queue_returns_its_offset_at_a_time() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            for body in (b"one", b"two"):
                await client.send("A", body)

            async def ask(at_ms: int, queue_id: int = 0, boundary: Any = admin.LOWER) -> int:
                request = admin.QueryOffsetByTimeRequest(
                    topic="A", queue_id=queue_id, at_ms=at_ms, boundary=boundary
                )
                reply = await client.call(service_methods.QUERY_OFFSET_BY_TIME, request)
                return int(reply.offset)

            assert await ask(0) == 0
            assert await ask(1 << 50) == 2
            assert await ask(1 << 50, boundary=admin.UPPER) == 1
            assert await ask(1 << 50, queue_id=3) == 0
            with pytest.raises(InvalidParameter, match="boundary 9"):
                await ask(0, boundary=9)

    run_in_virtual_time(main())


def test_query_reads_no_more_messages_than_it_can_return(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    read = RecordReader.read

    def counted(reader: RecordReader, place: int, size: int | None = None) -> GoodRecord | None:
        reads.append(place)
        return read(reader, place, size)

    monkeypatch.setattr(RecordReader, "read", counted)

    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            for number in range(12):
                body = bytes([number]) * 1_000_000
                await client.send("A", body, queue_id=0, properties={"KEYS": "k"})
            found = await query(client, "A", "k")
            assert [body[0] for body in found] == [8, 9, 10, 11]
            assert len(reads) == 5

    run_in_virtual_time(main())
