"""Who gets which answer of a batch."""

import asyncio

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ternmq_model.arrays import pack_int64s
from ternmq_model.errors import BrokerBusy, ConnectionLost, MessageRefused
from ternmq_model.message import SendResult, SendStatus
from ternmq_model.offsets import OFFSET_MAX
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import STORED_CODES
from ternmq_producer.batch.batch_reply import deliver, fits
from ternmq_producer.batch.batcher import ProducerBatch
from ternmq_producer.batch.bulk import Bulk
from ternmq_producer.batch.pending_send import PendingBatch
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import messages_pb2 as messages
from tests.unit.producer.batch.test_batcher import Waiter, batch_of, bodies_of, pending, row

STORED = sorted(STORED_CODES)
HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"


def reply(
    count: int, code: int = 0, refused: dict[int, int] | None = None
) -> messages.SendBatchReply:
    numbers = np.arange(count, dtype="<i8")
    return messages.SendBatchReply(
        status=common.Status(code=code),
        queue_offsets=numbers.tobytes(),
        physical_offsets=(numbers * 100).tobytes(),
        refused=[
            messages.RefusedRecord(index=index, status=common.Status(code=why))
            for index, why in (refused or {}).items()
        ],
    )


def answer(waiter: object) -> object:
    assert isinstance(waiter, Waiter)
    (one,) = waiter.answers
    return one


def test_every_message_gets_its_own_place() -> None:
    batch = ProducerBatch(singles=[pending(b"%d" % number, queue_id=number) for number in range(3)])
    for one in batch.singles:
        one.unique_key = b"K" + one.body
    assert fits(batch, reply(3))
    assert deliver(batch, reply(3, 10), store_host=HOST, broker_name="b") == []
    result = answer(batch.singles[2].sink)
    assert isinstance(result, SendResult)
    assert result.status is SendStatus.FLUSH_DISK_TIMEOUT
    assert result.message_id == "K2"
    assert result.queue == MessageQueue("t", "b", 2)
    assert (result.queue_offset, result.physical_offset) == (2, 200)
    assert result.offset_message_id == (HOST + (200).to_bytes(8, "big")).hex().upper()


@given(st.integers(-1, OFFSET_MAX), st.integers(-1, OFFSET_MAX), st.sampled_from(STORED))
def test_message_alone_gets_the_place_that_it_gets_among_others(
    queue_offset: int, physical_offset: int, code: int
) -> None:
    found: list[object] = []
    for others in (0, 1):
        batch = ProducerBatch(singles=[pending(b"1") for _ in range(1 + others)])
        places = [[offset] * len(batch) for offset in (queue_offset, physical_offset)]
        status = common.Status(code=code) if code else None
        answered = messages.SendBatchReply(
            status=status,
            queue_offsets=pack_int64s(places[0]),
            physical_offsets=pack_int64s(places[1]),
        )
        assert fits(batch, answered)
        assert deliver(batch, answered, store_host=HOST, broker_name="b") == []
        found.append(answer(batch.singles[0].sink))
    assert isinstance(found[0], SendResult)
    assert found[0] == found[1]


def test_refused_batch_leaves_every_message_to_be_judged() -> None:
    batch = ProducerBatch(singles=[pending(), pending()])
    failures = deliver(batch, reply(0, 2), store_host=HOST, broker_name="b")
    assert [failure.pending for failure in failures] == batch.singles
    assert all(isinstance(failure.error, BrokerBusy) for failure in failures)


def test_batch_found_in_another_queue_is_reported_there() -> None:
    async def main() -> None:
        done = asyncio.get_running_loop().create_future()
        bulk = Bulk(2, done)
        atomic = batch_of(bulk, [b"0", b"1"], 100, at=9, ordered=False)
        atomic.queue = MessageQueue("t", "b", 3)
        atomic.unique_keys = np.array([b"K0", b"K1"])
        batch = ProducerBatch(parts=[atomic])
        found = reply(2)
        found.queue_ids = np.array([1, 1], dtype="<i4").tobytes()
        assert fits(batch, found)
        assert deliver(batch, found, store_host=HOST, broker_name="b") == []
        await done
        assert [each.queue.queue_id for each in bulk.results()] == [1, 1]

    asyncio.run(main())


def test_refused_messages_are_reported_in_order_and_overtaken_ones_marked() -> None:
    batch = ProducerBatch(
        singles=[
            pending(b"0", ordered=True),
            pending(b"1", ordered=True),
            pending(b"2"),
            pending(b"3", ordered=True, queue_id=5),
        ]
    )
    told = reply(4, refused={0: 2, 2: 13, 3: 2})
    failures = deliver(batch, told, store_host=HOST, broker_name="b")
    assert bodies_of([failure.pending for failure in failures]) == [b"0", b"2", b"3"]
    assert [failure.is_overtaken for failure in failures] == [True, False, False]
    assert isinstance(failures[1].error, MessageRefused)
    assert isinstance(answer(batch.singles[1].sink), SendResult)


def test_reply_of_another_length_is_refused() -> None:
    batch = ProducerBatch(singles=[pending(), pending()])
    assert not fits(batch, reply(1))
    assert not fits(batch, reply(2, refused={2: 13}))
    assert fits(batch, reply(0, 2))


def test_bulk_messages_are_answered_by_columns() -> None:
    async def main() -> None:
        queues = [MessageQueue("t", broker, number) for broker in "ab" for number in range(2)]
        bulk = Bulk(10, asyncio.get_running_loop().create_future())
        batch = batch_of(bulk, [b"%d" % number for number in range(10)], 1, at=1)
        batch.queues, batch.queue_indices = queues, (3 + np.arange(10)) % 4
        slices = batch.by_broker()
        assert sorted(name for name, _ in slices) == ["a", "b"]
        for _, part in slices:
            part.unique_keys = np.array([b"K" + body for body in part.bodies.pieces()])
            deliver(ProducerBatch(parts=[part]), reply(len(part)), store_host=HOST, broker_name="x")
        results = bulk.results()
        assert [result.queue for result in results] == [queues[(3 + n) % 4] for n in range(10)]
        assert [result.message_id for result in results] == [f"K{n}" for n in range(10)]
        assert sorted(results.queue_offsets.tolist()) == sorted([*range(5), *range(5)])
        assert bulk.is_abandoned

    asyncio.run(main())


def test_batch_in_doubt_is_told_apart_from_one_not_stored() -> None:
    batch = ProducerBatch(singles=[pending(b"0"), pending(b"1")])
    told = reply(2, 14, refused={1: 13})
    told.status.may_have_happened = True
    failures = deliver(batch, told, store_host=HOST, broker_name="b")
    assert [failure.error.may_have_happened for failure in failures] == [True, False]
    assert [one.maybe_stored for one in batch.singles] == [True, False]
    assert isinstance(failures[1].error, MessageRefused)


def test_messages_in_columns_get_their_own_places() -> None:
    waiters = [Waiter() for _ in range(4)]
    waiters[1].set_exception(ConnectionLost("cancelled"))
    part = PendingBatch.of_rows([row(number, sink=sink) for number, sink in enumerate(waiters)])
    part.unique_keys = np.array([b"K0", b"K1", b"K2", b"K3"])
    batch = ProducerBatch(singles=[pending()], parts=[part])
    assert deliver(batch, reply(5), store_host=HOST, broker_name="b") == []
    result = answer(waiters[2])
    assert isinstance(result, SendResult)
    assert (result.message_id, result.queue) == ("K2", MessageQueue("t", "b", 2))
    assert (result.queue_offset, result.physical_offset) == (3, 300)
    assert isinstance(answer(waiters[1]), ConnectionLost)
