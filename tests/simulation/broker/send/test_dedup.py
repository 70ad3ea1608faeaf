"""A broker that is sent something again."""

import asyncio

from ternmq_model.response_code import ResponseCode as Code
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import Sender, bodies, offsets_of, serving, world


async def again(sender: Sender, *records: bytes, is_whole: bool = False) -> messages.SendBatchReply:
    """Send a batch marked as a retry."""
    sizes = b"".join(len(record).to_bytes(4, "little") for record in records)
    batch = messages.SendBatch(
        records=b"".join(records), record_sizes=sizes, is_retry=True, is_whole=is_whole
    )
    await sender.stream.write(messages.SendStreamRequest(batch=batch))
    return await sender.read()


def key(number: int) -> dict[str, str]:
    return {"UNIQ_KEY": f"{number:032X}"}


def test_retried_records_are_answered_and_only_new_ones_stored() -> None:
    async def main() -> None:
        async with serving(topics={"A": 2, "B": 1}) as (_, client):
            sender = await client.open_sender()
            assert sender.opened.looks_up_retries
            old = [sender.record("A", b"%d" % n, properties=key(n)) for n in range(100)]
            first = await sender.send(*old)
            await asyncio.sleep(1)  # half of it is in the index, half is not
            late = [sender.record("A", b"%d" % n, properties=key(n)) for n in range(100, 150)]
            second = await sender.send(*late)
            new = sender.record("A", b"new", properties=key(999))
            other = sender.record("B", b"other", properties=key(5))
            elsewhere = sender.record("A", b"7", properties=key(7), queue_id=1)
            reply = await again(sender, other, *old, new, *late, elsewhere)
            places = offsets_of(reply.physical_offsets)
            assert places[1:101] == offsets_of(first.physical_offsets)
            assert places[102:152] == offsets_of(second.physical_offsets)
            assert places[152] == places[1 + 7]
            assert offsets_of(reply.queue_offsets)[101] == 150
            ids = [reply.queue_ids[at] for at in range(0, len(reply.queue_ids), 4)]
            assert ids == [0] * 153
            assert not reply.refused
            assert len(bodies(await client.pull("A", queue_id=1))) == 0
            assert bodies(await client.pull("B")) == [b"other"]
            same = await again(sender, *old)
            assert not same.queue_ids
            assert offsets_of(same.queue_offsets) == list(range(100))

    run_in_virtual_time(main())


def test_unconfirmed_match_is_answered_once_confirmed() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.SYNC) as around, around.broker() as broker:
            client = await around.connect(broker)
            await client.put_topic("A", 1)
            sender = await client.open_sender()
            await sender.send(sender.record("A", b"0", properties=key(0)))
            around.sync_s = 1.0
            record = sender.record("A", b"1", properties=key(1))
            await sender.write(record)
            began = asyncio.get_running_loop().time()
            second = await client.open_sender()
            reply = await again(second, record)
            assert asyncio.get_running_loop().time() - began >= 1.0
            assert reply.status.code == Code.SUCCESS
            assert offsets_of(reply.queue_offsets) == [1]
            around.sync_s = 0.0

    run_in_virtual_time(main())


def test_producers_old_stream_stores_nothing_once_its_new_one_is_open() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            old = await client.open_sender(incarnation="1")
            await old.send(old.record("A", b"0", properties=key(0)))
            other = await client.open_sender(incarnation="2")
            new = await client.open_sender(incarnation="1")
            await old.write(old.record("A", b"late", properties=key(1)))
            assert await old.stream.read() is None
            await other.send(other.record("A", b"other", properties=key(2)))
            await new.send(new.record("A", b"new", properties=key(3)))
            assert bodies(await client.pull("A")) == [b"0", b"other", b"new"]

    run_in_virtual_time(main())


def test_atomic_batch_is_stored_whole_or_not_at_all() -> None:
    async def main() -> None:
        async with serving(topics={"A": 2}, auto_create_topics=False) as (_, client):
            sender = await client.open_sender()

            async def whole(*records: bytes) -> messages.SendBatchReply:
                sizes = b"".join(len(record).to_bytes(4, "little") for record in records)
                batch = messages.SendBatch(
                    records=b"".join(records), record_sizes=sizes, is_whole=True
                )
                await sender.stream.write(messages.SendStreamRequest(batch=batch))
                return await sender.read()

            good = [sender.record("A", b"%d" % n, properties=key(n)) for n in range(3)]
            for bad, code in (
                (sender.record("A", queue_id=1), Code.MESSAGE_ILLEGAL),
                (sender.record("Unknown"), Code.TOPIC_NOT_EXIST),
                (good[0][:-1] + b"\x03", Code.MESSAGE_ILLEGAL),
                (sender.record("A", properties={"DELAY": "1"}), Code.MESSAGE_ILLEGAL),
                (sender.record("A", properties={"TRAN_MSG": "true"}), Code.MESSAGE_ILLEGAL),
                (sender.record("A", b"x" * (4 << 20)), Code.MESSAGE_ILLEGAL),
            ):
                reply = await whole(*good, bad)
                assert reply.status.code == code, reply
                assert not reply.queue_offsets
            reply = await whole(*good)
            assert offsets_of(reply.queue_offsets) == [0, 1, 2]
            reply = await again(sender, *good, is_whole=True)
            assert offsets_of(reply.queue_offsets) == [0, 1, 2]
            assert bodies(await client.pull("A")) == [b"0", b"1", b"2"]

    run_in_virtual_time(main())


def test_retry_with_impossible_lengths_is_refused_like_any_batch() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            sender = await client.open_sender()
            for sizes in (b"\x03\0\0", b"\x03\0\0\0", b"\xff\xff\xff\xff", b""):
                batch = messages.SendBatch(records=b"ab", record_sizes=sizes, is_retry=True)
                await sender.stream.write(messages.SendStreamRequest(batch=batch))
                assert (await sender.read()).status.code == Code.MESSAGE_ILLEGAL

    run_in_virtual_time(main())
