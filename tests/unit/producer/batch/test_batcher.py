"""What forms the next batch, and what becomes of those before it."""

import asyncio
from dataclasses import dataclass, field

import numpy as np

from ternmq_model.byte_column import ByteColumn
from ternmq_model.errors import ConnectionLost, TernError
from ternmq_model.message import SendResult
from ternmq_model.queue import MessageQueue
from ternmq_producer.batch.batcher import Batcher, ProducerBatch
from ternmq_producer.batch.bulk import Bulk, BulkSlots
from ternmq_producer.batch.pending_send import Pending, PendingBatch, PendingSend, SendRow


@dataclass
class Waiter:
    """A sink that remembers."""

    answers: list[object] = field(default_factory=list[object])

    def done(self) -> bool:
        return bool(self.answers)

    def set_result(self, result: SendResult, /) -> None:
        self.answers.append(result)

    def set_exception(self, error: TernError, /) -> None:
        self.answers.append(error)


def pending(
    body: bytes = b"x", *, queue_id: int = 0, ordered: bool = False, size: int = 100, at: int = 1000
) -> PendingSend:
    queue = MessageQueue("t", "b", queue_id)
    return PendingSend(Waiter(), b"t", body, b"", queue, ordered, size, 0, at)


class Freed:
    total = 0

    def __call__(self, size: int) -> None:
        self.total += size


def batcher(freed: Freed | None = None, *, batch_bytes: int = 1000, batches: int = 2) -> Batcher:
    free = freed or Freed()
    return Batcher(batch_bytes_max=batch_bytes, batches_max=batches, free=free)


def bodies(batch: ProducerBatch | None) -> list[bytes]:
    assert batch is not None
    return [one.body for one in batch.as_singles()]


def bodies_of(pending: list[Pending]) -> list[bytes]:
    return [one.body for one in pending if isinstance(one, PendingSend)]


def test_batch_takes_waiting_messages_up_to_its_size() -> None:
    some = batcher()
    for number in range(15):
        some.add(pending(b"%d" % number))
    assert bodies(some.next_batch(0)) == [b"%d" % number for number in range(10)]
    assert bodies(some.next_batch(0)) == [b"%d" % number for number in range(10, 15)]
    assert some.next_batch(0) is None


def test_larger_message_goes_alone() -> None:
    some = batcher()
    for one in (pending(b"a"), pending(b"large", size=5000), pending(b"b")):
        some.add(one)
    assert bodies(some.next_batch(0)) == [b"a"]
    assert bodies(some.next_batch(0)) == [b"large"]
    some.answered()
    assert bodies(some.next_batch(0)) == [b"b"]


def test_third_batch_waits_while_two_are_unanswered() -> None:
    some = batcher()
    for _ in range(2):
        some.add(pending())
        assert some.next_batch(7) is not None
    some.add(pending(b"third"))
    assert [some.can_send, some.next_batch(0)] == [False, None]
    assert some.oldest_batch_ms == 7
    some.answered()
    assert bodies(some.next_batch(0)) == [b"third"]


def test_ordered_queue_is_in_only_one_unanswered_batch() -> None:
    some = batcher()
    some.add(pending(b"a1", queue_id=1, ordered=True))
    first = some.next_batch(0)
    assert first is not None
    some.add(pending(b"a2", queue_id=1, ordered=True))
    assert not some.can_send
    assert some.next_batch(0) is None
    some.add(pending(b"b1", queue_id=2, ordered=True))
    some.add(pending(b"any", queue_id=1))
    assert bodies(some.next_batch(0)) == [b"b1", b"any"]
    assert some.answered() is first
    some.release(first.ordered_queues)
    assert bodies(some.next_batch(0)) == [b"a2"]


def test_returned_messages_come_before_waiting_ones() -> None:
    some = batcher()
    for number in range(3):
        some.add(pending(b"%d" % number, ordered=True))
    first = some.next_batch(0)
    assert first is not None
    some.add(pending(b"3", ordered=True))
    some.answered()
    some.put_back(first.singles)
    assert not some.can_send  # held until it is released
    some.release(first.ordered_queues)
    assert bodies(some.next_batch(0)) == [b"0", b"1", b"2", b"3"]


def test_messages_in_doubt_travel_in_their_own_batches_marked_as_retries() -> None:
    some = batcher()
    suspect = pending(b"suspect")
    ordered = pending(b"ordered", queue_id=1, ordered=True)
    suspect.maybe_stored = ordered.maybe_stored = True
    for one in (pending(b"fresh"), suspect, ordered, pending(b"next", queue_id=1, ordered=True)):
        some.add(one)
    retry = some.next_batch(0)
    assert retry is not None
    assert retry.is_retry
    assert bodies(retry) == [b"ordered", b"suspect"]
    second = some.next_batch(0)
    assert second is not None
    assert not second.is_retry
    assert bodies(second) == [b"fresh"]
    some.answered()
    some.release(retry.ordered_queues)
    assert bodies(some.next_batch(0)) == [b"next"]


def test_abandoned_messages_are_dropped_and_freed() -> None:
    freed = Freed()
    some = batcher(freed)
    gone = pending(b"gone")
    gone.sink.set_exception(ConnectionLost("cancelled"))
    lost = pending(b"lost", queue_id=3, ordered=True)
    lost.sink.set_exception(ConnectionLost("cancelled"))
    some.add(gone)
    some.add(lost)
    assert some.can_send
    assert some.next_batch(0) is None
    assert freed.total == 200
    assert some.is_empty


def test_withdrawn_batch_leaves_nothing_behind() -> None:
    some = batcher()
    some.add(pending(b"a", ordered=True))
    batch = some.next_batch(0)
    assert batch is not None
    some.withdraw(batch)
    assert some.is_empty


def test_expiry_tells_written_messages_from_unwritten_ones() -> None:
    freed = Freed()
    some = batcher(freed, batches=1)
    some.add(pending(b"written", at=10))
    some.add(pending(b"also", at=50))
    some.next_batch(0)
    some.add(pending(b"waiting", at=10))
    some.add(pending(b"ordered", at=10, ordered=True))
    some.add(pending(b"later", at=30))
    expired, next_ms = some.expire(10)
    assert bodies_of(expired.unanswered) == [b"written"]
    assert sorted(bodies_of(expired.unsent)) == [b"ordered", b"waiting"]
    assert next_ms == 30
    assert freed.total == 200
    some.expire(30)
    expired, next_ms = some.expire(60)
    assert set(bodies_of(expired.unanswered)) == {b"written", b"also"}
    assert next_ms is None


def test_draining_returns_everything_that_waits() -> None:
    some = batcher()
    for one in (
        pending(b"a"),
        pending(b"b", ordered=True),
        pending(b"c", queue_id=1, ordered=True),
    ):
        some.add(one)
    assert sorted(bodies_of(some.drain())) == [b"a", b"b", b"c"]
    assert not some.can_send
    some.release(some.ordered_queues())
    assert some.is_empty


def test_slices_and_single_messages_take_turns_and_large_slices_split() -> None:
    async def main() -> None:
        some = batcher()
        bulk = Bulk(15, asyncio.get_running_loop().create_future())
        numbered = [b"s%d" % number for number in range(15)]
        some.add(batch_of(bulk, numbered, 100, at=1000))
        some.add(pending(b"single"))
        first, second = some.next_batch(0), some.next_batch(0)
        assert bodies(first) == numbered[:10]
        assert bodies(second) == [b"single", *numbered[10:]]

    asyncio.run(main())


def batch_of(
    bulk: Bulk, bodies: list[bytes], size: int, *, at: int, ordered: bool | None = None
) -> PendingBatch:
    """Return an atomic batch if `ordered` is given, else a part of a `send_many`."""
    count = len(bodies)
    return PendingBatch(
        BulkSlots(bulk, np.arange(count)),
        b"t",
        ByteColumn.of(bodies),
        ByteColumn.repeated(b"", count),
        0,
        (MessageQueue("t", "b", 0),),
        np.zeros(count, dtype=np.int64),
        np.full(count, size),
        0,
        at,
        is_atomic=ordered is not None,
        is_ordered=bool(ordered),
    )


def atomic(*, ordered: bool = False, at: int = 1000) -> PendingBatch:
    loop = asyncio.new_event_loop()
    bulk = Bulk(3, loop.create_future())
    loop.close()
    return batch_of(bulk, [b"w0", b"w1", b"w2"], 2000, at=at, ordered=ordered)


def test_atomic_batch_travels_alone_and_takes_turns() -> None:
    some = batcher(batches=9)
    for number in range(3):
        some.add(pending(b"%d" % number))
        some.add(atomic())
    batches = [some.next_batch(0) for _ in range(5)]
    assert [None if batch is None else (batch.is_atomic, len(batch)) for batch in batches] == [
        (True, 3),
        (False, 3),
        (True, 3),
        (True, 3),
        None,
    ]
    assert all(batch.record_bytes == 6000 for batch in batches if batch and batch.is_atomic)


def test_ordered_batch_keeps_its_place_in_its_queue() -> None:
    some = batcher(batches=9)
    some.add(pending(b"1", ordered=True))
    some.add(atomic(ordered=True))
    some.add(pending(b"2", ordered=True))
    sizes: list[int] = []
    for _ in range(3):
        batch = some.next_batch(0)
        assert batch is not None
        assert some.next_batch(0) is None  # the queue is held
        sizes.append(len(batch))
        assert some.answered() is batch
        some.release(batch.ordered_queues)
    assert sizes == [1, 3, 1]
    assert some.is_empty


def test_batch_in_doubt_is_a_retry_and_expires_like_a_message() -> None:
    freed = Freed()
    some = batcher(freed, batches=9)
    doubtful = atomic()
    doubtful.maybe_stored = True
    some.put_back([doubtful])
    some.add(pending(b"fresh"))
    first, second = some.next_batch(0), some.next_batch(0)
    assert first is not None
    assert second is not None
    assert (first.parts, first.is_retry) == ([doubtful], True)
    assert not second.is_retry
    some.break_off()
    some.add(atomic(at=10))
    some.add(atomic(at=10_000))
    expired, next_ms = some.expire(10)
    assert [len(expired.unsent), next_ms, freed.total] == [1, 10_000, 6000]
    assert len(some.drain()) == 1
    assert not some.can_send


def row(number: int, *, sink: Waiter | None = None, topic: bytes = b"t", at: int = 1000) -> SendRow:
    queue = MessageQueue(topic.decode(), "b", number % 8)
    return (
        sink or Waiter(), topic, b"%d" % number, b"p%d" % number, queue, False, 10, number, at,
        number % 3, number % 2,
    )  # fmt: skip


def test_new_messages_travel_as_columns_and_are_retried_one_by_one() -> None:
    some = batcher()
    rows = [row(number) for number in range(30)]
    for one in rows:
        some.add_row(one)
    batch = some.next_batch(0)
    assert batch is not None
    assert (len(batch), batch.singles, len(batch.parts)) == (30, [], 1)
    assert batch.record_bytes == 300
    for single, (sink, topic, body, properties, queue, *rest) in zip(
        batch.as_singles(), rows, strict=True
    ):
        assert single.sink is sink
        assert (single.topic, single.body, single.properties) == (topic, body, properties)
        assert single.queue == queue
        assert rest == [
            single.is_ordered, single.record_bytes, single.started_ms, single.deadline_ms,
            single.flag, single.sys_flag,
        ]  # fmt: skip
        assert single.attempts == 1


def test_new_messages_of_a_rare_topic_travel_one_by_one() -> None:
    some = batcher(batch_bytes=1_000_000)
    for number in range(60):
        some.add_row(row(number, topic=b"many" if number % 3 else b"few"))
    batch = some.next_batch(0)
    assert batch is not None
    assert [one.topic for one in batch.singles] == [b"few"] * 20
    assert [(part.topic, len(part)) for part in batch.parts] == [(b"many", 40)]


def test_new_messages_that_no_caller_awaits_do_not_travel() -> None:
    freed = Freed()
    some = batcher(freed)
    gone = Waiter()
    for number in range(30):
        some.add_row(row(number, sink=gone if number % 2 else None))
    gone.set_exception(ConnectionLost("cancelled"))
    assert bodies(some.next_batch(0)) == [b"%d" % number for number in range(0, 30, 2)]
    assert freed.total == 150


def test_new_messages_expire_each_at_its_deadline() -> None:
    some = batcher()
    for number in range(60):
        some.add_row(row(number, at=1000 + number))
    batch = some.next_batch(0)
    assert batch is not None
    for number in range(60, 70):
        some.add_row(row(number, at=1000 + number))
    expired, next_ms = some.expire(1003)
    assert (bodies_of(expired.unanswered), next_ms) == ([b"0", b"1", b"2", b"3"], 1004)
    for late in expired.unanswered:
        late.sink.set_exception(ConnectionLost("late"))
    expired, next_ms = some.expire(1061)
    assert bodies_of(expired.unsent) == [b"60", b"61"]
    assert bodies_of(expired.unanswered) == [b"%d" % number for number in range(4, 60)]
    assert next_ms == 1062


def test_new_messages_are_drained_one_by_one() -> None:
    some = batcher()
    for number in range(30):
        some.add_row(row(number))
    assert bodies_of(some.drain()) == [b"%d" % number for number in range(30)]
    assert some.is_empty
