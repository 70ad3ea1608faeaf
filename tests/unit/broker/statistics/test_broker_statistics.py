from typing import Any

import pytest

from ternmq_broker.statistics import broker_statistics
from ternmq_broker.statistics.broker_statistics import BrokerStatistics
from ternmq_model.offsets import QueueOffset
from ternmq_store.config import FlushMode
from ternmq_store.message_store import MessageStore
from ternmq_store.queues.read_request import ReadLimits, ReadRequest
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import HandClock, append, flush, open_store

MANY = ReadLimits(1000, 1 << 20)


def counted_store(**settings: Any) -> tuple[BrokerStatistics, MessageStore, HandClock]:
    clock = HandClock()
    store = open_store(MemoryFileSystem(), clock=clock, **settings)
    counted = BrokerStatistics(started_at_ms=clock.monotonic_ms())
    store.statistics.observer = counted
    return counted, store, clock


def read(
    store: MessageStore, topic: str, group: str, *, limits: ReadLimits = MANY, queue_id: int = 0
) -> None:
    store.reads.plan_read(
        ReadRequest(
            topic=topic,
            queue_id=queue_id,
            offset=QueueOffset(0),
            hot=limits,
            cold=limits,
            group=group,
        )
    )


@pytest.mark.parametrize("rows", [3, 90])
def test_batch_is_counted_by_queue_with_its_bytes(rows: int) -> None:
    counted, store, _ = counted_store()
    batch = batch_of(*(record("A", row % 3, bytes(row)) for row in range(rows)), record("B"))
    append(store, batch)
    assert {key: counter.messages for key, counter in counted.queues.items()} == {
        ("A", 0): rows // 3,
        ("A", 1): rows // 3,
        ("A", 2): rows // 3,
        ("B", 0): 1,
    }
    assert counted.puts.bytes == store.statistics.put_bytes
    assert sum(each.bytes for each in counted.queues.values()) == counted.puts.bytes
    assert counted.queues["A", 2].bytes > counted.queues["A", 1].bytes
    assert (counted.puts.messages, counted.puts.calls) == (rows + 1, 1)


def test_put_time_lasts_until_the_record_counts_as_stored() -> None:
    counted, store, clock = counted_store()
    append(store, batch_of(record("A"), record("A", 1)))
    clock.now_ms += 40
    flush(store)
    store.dispatch()
    assert [counted.queues["A", queue_id].ms for queue_id in (0, 1)] == [40, 40]


def test_reads_of_a_group_are_counted_with_its_lag() -> None:
    counted, store, clock = counted_store(flush_mode=FlushMode.ASYNC)
    for _ in range(3):
        append(store, batch_of(record("A"), record("A")))
        clock.now_ms += 1000
    store.dispatch()
    read(store, "A", "G", limits=ReadLimits(2, 1 << 20))
    reader = counted.readers["G", "A", 0]
    assert (reader.messages, reader.calls, reader.disk_messages) == (2, 1, 0)
    assert reader.behind_ms == 3000
    assert reader.behind_bytes > 0
    read(store, "A", "G")
    assert (reader.messages, reader.behind_ms, reader.behind_bytes) == (8, 0, 0)
    assert counted.gets.messages == 8
    assert reader.bytes == counted.gets.bytes > store.max_physical


def test_empty_and_anonymous_reads_are_not_counted() -> None:
    counted, store, _ = counted_store(flush_mode=FlushMode.ASYNC)
    append(store, batch_of(record("A")))
    store.dispatch()
    read(store, "A", "")
    read(store, "A", "G", queue_id=1)
    assert not counted.readers
    assert counted.gets.messages == 0


def test_system_topics_are_told_apart() -> None:
    counted, store, _ = counted_store(flush_mode=FlushMode.ASYNC)
    append(store, batch_of(record("SCHEDULE_TOPIC_XXXX"), record("A")))
    store.dispatch()
    read(store, "SCHEDULE_TOPIC_XXXX", "G")
    read(store, "A", "G")
    assert (counted.puts.messages, counted.system_puts.messages) == (2, 1)
    assert (counted.gets.messages, counted.system_gets.messages) == (2, 1)


def test_deleted_topics_and_groups_leave_only_broker_totals() -> None:
    counted, store, _ = counted_store(flush_mode=FlushMode.ASYNC)
    append(store, batch_of(record("A"), record("B")))
    store.dispatch()
    for topic in ("A", "B"):
        for group in ("G", "H"):
            read(store, topic, group)
            counted.sent_back_by(group, topic)
            counted.died(group, topic, 2)
    counted.forget_topic("A")
    counted.forget_group("H")
    assert list(counted.queues) == [("B", 0)]
    assert list(counted.readers) == [("G", "B", 0)]
    assert list(counted.sent_back) == list(counted.dead_letters) == [("B", "G")]
    assert counted.dead_letters["B", "G"].messages == 2
    assert (counted.puts.messages, counted.gets.messages) == (2, 4)


def test_statistics_keys_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_statistics, "KEYS_MAX", 3)
    counted = BrokerStatistics(started_at_ms=0)
    for number in range(5):
        counted.sent_back_by(f"G{number}", "T")
    assert list(counted.sent_back) == [("T", "G2"), ("T", "G3"), ("T", "G4")]


def test_samples_are_taken_a_bounded_number_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_statistics, "SAMPLES_PER_STEP", 2)
    counted = BrokerStatistics(started_at_ms=0)
    for number in range(5):
        counted.sent_back_by(f"G{number}", "T")
    steps = [counted.sample(10_000) for _ in range(5)]
    assert steps == [True, True, True, True, False]
    assert counted.begun_at_ms(0) == 0
    assert counted.sample(20_000)


def test_lengths_of_records_are_counted_by_topic_and_range() -> None:
    counted, store, _ = counted_store()
    append(store, batch_of(record("A", 0, bytes(10))))
    rows = [record("A", row % 2, bytes(length)) for row, length in enumerate((10, 2_000, 2_000))]
    append(store, batch_of(*rows, record("B", 0, bytes(5_000))))
    append(store, batch_of(*(record("A", row % 2) for row in range(100))))
    assert counted.sizes == {"A": [102, 2, 0, 0, 0, 0, 0], "B": [0, 0, 1, 0, 0, 0, 0]}


def test_reads_are_summed_by_group_and_the_next_offset_is_that_of_the_last_one() -> None:
    counted, store, _ = counted_store(flush_mode=FlushMode.ASYNC)
    append(store, batch_of(*(record("A", row % 2) for row in range(6))))
    store.dispatch()
    for queue_id, most in ((0, 2), (1, 3), (0, 1)):
        read(store, "A", "G", limits=ReadLimits(most, 1 << 20), queue_id=queue_id)
    (reads,) = counted.groups.values()
    assert (reads.messages, reads.bytes) == (6, counted.gets.bytes)
    assert [counted.readers["G", "A", queue_id].next_offset for queue_id in (0, 1)] == [1, 3]
    counted.forget_group("G")
    assert not counted.groups


def test_delays_are_counted_by_topic_until_its_deletion() -> None:
    counted, _, _ = counted_store()
    counted.delayed("A", 60_000)
    counted.delayed("A", 61_000)
    assert counted.delays["A"].values() == [1, 2, 2, 2, 2, 2, 2, 121]
    counted.forget_topic("A")
    assert not counted.delays
