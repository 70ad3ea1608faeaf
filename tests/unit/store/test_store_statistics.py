from ternmq_model.offsets import QueueOffset
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_store.queues.read_request import ReadLimits, ReadRequest, ReadResult
from ternmq_store.store_statistics import PutCount, ReaderLag, StoreStatistics
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import HandClock, append, flush, open_store


def test_puts_are_counted_by_topic_and_latency() -> None:
    clock = HandClock()
    store = open_store(MemoryFileSystem(), clock=clock)
    counted = store.statistics
    append(store, batch_of(record("A"), record("A", 1), record("B")))
    append(store, batch_of(record("A")))
    assert (counted.puts, counted.put_messages, counted.puts_failed) == (2, 4, 0)
    assert counted.put_bytes == store.max_physical
    assert counted.topics["A"].messages == 3
    assert counted.topics["B"].messages == 1
    assert sum(each.bytes for each in counted.topics.values()) == counted.put_bytes
    assert counted.put_average_bytes * 4 == counted.put_bytes
    store.dispatch()
    assert not any(counted.put_times)
    clock.now_ms += 60
    flush(store)
    store.dispatch()
    assert counted.put_times[3] == 2  # 50 to 100 ms
    assert counted.put_longest_ms == 60
    append(store, batch_of(record("A")))
    clock.now_ms += 7
    flush(store)
    store.dispatch()
    assert sum(counted.put_times) == 3
    assert counted.put_longest_ms == 60


def test_longest_read_stays_known() -> None:
    counted = StoreStatistics()
    for took_ms in (3, 40, 5):
        counted.got(1, took_ms=took_ms, from_disk=False)
    assert counted.get_longest_ms == 40


def test_refused_put_counts_as_failed() -> None:
    files = MemoryFileSystem()
    store = open_store(files, flush_mode=FlushMode.ASYNC)
    append(store, batch_of(record("A")))
    files.space_bytes = 0
    for _ in range(3):
        try:
            append(store, batch_of(record("B", body=bytes(7000))))
        except Exception:
            continue
    assert (store.statistics.puts, store.statistics.puts_failed) == (1, 3)


def test_reads_are_counted_with_the_lag_of_their_group() -> None:
    clock = HandClock()
    store = open_store(MemoryFileSystem(), clock=clock, flush_mode=FlushMode.ASYNC)
    append(store, batch_of(*(record("A") for _ in range(5))))
    store.dispatch()
    wanted = ReadRequest(
        topic="A",
        queue_id=0,
        offset=QueueOffset(0),
        hot=ReadLimits(2, 1 << 20),
        cold=ReadLimits(2, 1 << 20),
        group="G",
    )
    result = store.reads.plan_read(wanted)
    assert isinstance(result, ReadResult)
    size = int(result.record_sizes[0])
    counted = store.statistics
    assert counted.behind["G", "A", 0] == ReaderLag(4 * size, 3, clock.now_ms)
    assert (counted.gets_found, counted.gets_missed, counted.got_messages) == (1, 0, 2)
    store.reads.plan_read(
        ReadRequest(topic="A", queue_id=0, offset=QueueOffset(5), hot=wanted.hot, cold=wanted.cold)
    )
    assert (counted.gets_found, counted.gets_missed) == (1, 1)
    store.delete_topic("A")
    assert not counted.behind
    assert not counted.topics


def test_lag_of_groups_can_be_left_out_by_a_setting() -> None:
    config = StoreConfig(
        commit_log_file_bytes=8192, disk_fall_recorded=False, index_slots=20, index_entries=40
    )
    store = open_store(MemoryFileSystem(), config=config, flush_mode=FlushMode.ASYNC)
    append(store, batch_of(record("A")))
    store.dispatch()
    limits = ReadLimits(9, 9999)
    store.reads.plan_read(
        ReadRequest(
            topic="A", queue_id=0, offset=QueueOffset(0), hot=limits, cold=limits, group="G"
        )
    )
    assert store.statistics.gets_found == 1
    assert not store.statistics.behind


def test_rates_are_those_of_the_last_seconds() -> None:
    counted = StoreStatistics()
    assert [rate.put_messages for rate in counted.rates()] == [0, 0, 0]
    batch = batch_of(*(record("A") for _ in range(20)))
    for second in range(1000):
        if second < 970:
            counted.put(batch, end=0, begun_at_ms=0)
            counted.got(5, took_ms=0, from_disk=False)
            counted.got(0, took_ms=0, from_disk=False)
        counted.step(second * 1000)
    ten, minute, most = counted.rates()
    assert (ten.span_s, ten.put_messages, ten.got_messages) == (10, 0, 0)
    assert (minute.span_s, minute.put_messages, minute.gets_missed) == (60, 10, 0.5)
    assert most.put_messages == 20 * 570 / 600
    assert counted.topics["A"] == PutCount(970 * 20, 970 * len(batch.data))


def test_groups_are_bounded() -> None:
    counted = StoreStatistics()
    for number in range(100_001):
        counted.fell_behind("G", "A", number, ReaderLag(0, 0, 0))
    assert len(counted.behind) == 100_000
    assert ("G", "A", 0) not in counted.behind
