"""Records that wait in memory to be written to the log, and count only then."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from ternmq_model.errors import BrokerBusy, ConfigError, StoreFailed
from ternmq_model.offsets import PhysicalOffset
from ternmq_store.config import FlushMode
from ternmq_store.disk.layout import checkpoint_path
from ternmq_store.log.checkpoint import decode_checkpoint
from ternmq_store.log.transient_pool import BusyReason, PoolWrite, TransientPool
from ternmq_store.message_store import MessageStore
from ternmq_testing.memory.memory_files import MemoryFileSystem, PowerLossFileSystem, PowerLost
from tests.support.records import batch_of, record
from tests.support.stores import (
    ROOT,
    SMALL,
    HandClock,
    append,
    checkpoint,
    commit,
    drain,
    flush,
    log_bytes,
    open_store,
    settle,
)

POOLED = replace(SMALL, transient_pool_enabled=True, transient_pool_bytes=20_000)
FILE_BYTES = SMALL.commit_log_file_bytes


def pooled(files: MemoryFileSystem, *, fails_fast: bool = False) -> MessageStore:
    config = replace(POOLED, transient_pool_fails_fast=fails_fast)
    return open_store(files, config=config, flush_mode=FlushMode.ASYNC)


def test_pooled_records_do_not_count_before_they_are_committed() -> None:
    files = MemoryFileSystem()
    store = pooled(files)
    places = append(store, batch_of(record(body=b"one"), record(body=b"two")))
    assert store.max_physical == places.end
    assert store.confirm_offset == store.commits.offset == 0
    assert not store.dispatch().arrivals
    assert store.queue_range("flights", 0) == (0, 0)
    assert store.record_at(PhysicalOffset(0)) is None
    assert not flush(store)
    assert not any(log_bytes(files, 0, FILE_BYTES, file_bytes=FILE_BYTES))
    assert commit(store)
    assert store.confirm_offset == places.end
    assert store.record_at(PhysicalOffset(0)) is not None
    settle(store)
    assert len(drain(store, "flights", 0)) == 2
    store.close()


def test_checkpoint_ignores_the_time_of_a_waiting_record() -> None:
    files, clock = MemoryFileSystem(), HandClock()
    store = open_store(files, config=POOLED, flush_mode=FlushMode.ASYNC, clock=clock)
    committed = append(store, batch_of(record()))
    assert commit(store)
    clock.now_ms += 100_000
    append(store, batch_of(record()))
    assert flush(store)
    assert checkpoint(store)
    kept = decode_checkpoint(files.nodes[checkpoint_path(ROOT)].data.tobytes())
    assert kept.log_stored_at_ms == committed.stored_at_ms
    store.close()
    kept = decode_checkpoint(files.nodes[checkpoint_path(ROOT)].data.tobytes())
    assert kept.log_stored_at_ms == committed.stored_at_ms + 100_000


def test_records_arriving_during_a_commit_wait_for_the_next() -> None:
    store = pooled(MemoryFileSystem())
    first = append(store, batch_of(record()))
    task = store.commits.due()
    assert task is not None
    second = append(store, batch_of(record()))
    assert store.commits.due() is None
    assert store.confirm_offset == 0
    task.run()
    store.commits.done(task)
    assert store.confirm_offset == first.end
    assert commit(store)
    assert store.confirm_offset == second.end
    assert not commit(store)
    store.close()


def test_pooled_batches_become_one_write_per_file() -> None:
    files = MemoryFileSystem()
    store = pooled(files)
    for number in range(15):
        append(store, batch_of(record(body=bytes((number,)) * 700)))
    task = store.commits.due()
    assert task is not None
    assert [write.position for write in task.writes] == [0, 0]
    task.run()
    store.commits.done(task)
    settle(store)
    assert [data[88] for _, data in drain(store, "flights", 0)] == list(range(15))
    store.close()
    again = pooled(files)
    assert again.report.was_clean
    assert len(drain(again, "flights", 0)) == 15
    again.close()


def test_pooled_store_writes_the_same_bytes_as_an_unpooled_one() -> None:
    with_pool, without = MemoryFileSystem(), MemoryFileSystem()
    one, other = pooled(with_pool), open_store(without, flush_mode=FlushMode.ASYNC)
    for length in (10, 5000, 3000, 4000, 20, 8000, 1):
        for store in (one, other):
            append(store, batch_of(*(record(body=b"x" * (length // 2)) for _ in range(2))))
        commit(one)
    one.close()
    other.close()
    for base in range(0, one.max_physical, FILE_BYTES):
        left = log_bytes(with_pool, base, FILE_BYTES, file_bytes=FILE_BYTES)
        assert left == log_bytes(without, base, FILE_BYTES, file_bytes=FILE_BYTES)


def test_killed_process_loses_only_uncommitted_records() -> None:
    files = PowerLossFileSystem()
    store = pooled(files)
    append(store, batch_of(record(body=b"kept")))
    commit(store)
    append(store, batch_of(record(body=b"lost")))
    again = pooled(files.restart())
    assert again.max_physical == store.commits.offset
    assert [data[88:92] for _, data in drain(again, "flights", 0)] == [b"kept"]
    again.close()


@pytest.mark.parametrize("writes_done", range(4))
def test_commit_killed_in_its_middle_has_written_nothing(writes_done: int) -> None:
    files = PowerLossFileSystem()
    store = pooled(files)
    append(store, batch_of(record(body=b"kept")))
    commit(store)
    kept = store.commits.offset
    for number in range(15):
        append(store, batch_of(record(body=bytes((number,)) * 700)))
    task = store.commits.due()
    assert task is not None
    assert len(task.writes) == 2
    files.happenings_left = writes_done
    with pytest.raises(PowerLost):
        task.run()
    again = pooled(files.restart())
    assert again.max_physical == kept
    again.close()


def test_failed_write_makes_the_store_read_only_and_confirms_nothing() -> None:
    store = pooled(MemoryFileSystem())
    append(store, batch_of(record(body=b"good")))
    commit(store)
    settle(store)
    confirmed = store.confirm_offset
    append(store, batch_of(record(body=b"bad")))
    task = store.commits.due()
    assert task is not None
    store.commits.done(task, OSError("the disk is broken"))
    assert store.confirm_offset == confirmed
    assert store.commits.due() is None
    assert store.flush_due(1 << 60) is None
    with pytest.raises(StoreFailed):
        append(store, batch_of(record()))
    assert len(drain(store, "flights", 0)) == 1
    store.close()


def test_closing_commits_and_flushes_everything() -> None:
    files = PowerLossFileSystem()
    store = pooled(files)
    append(store, batch_of(record(), record()))
    store.close()
    again = pooled(files.lose_power(random.Random(1)))
    assert again.report.was_clean
    assert len(drain(again, "flights", 0)) == 2
    again.close()


@pytest.mark.parametrize(
    ("fails_fast", "reason"), [(False, BusyReason.COMMIT), (True, BusyReason.NOTHING)]
)
def test_full_pool_refuses_until_something_is_written(fails_fast: bool, reason: BusyReason) -> None:
    store = pooled(MemoryFileSystem(), fails_fast=fails_fast)
    for _ in range(6):
        append(store, batch_of(record(body=bytes(3000))))
    with pytest.raises(BrokerBusy, match="wait to be written"):
        append(store, batch_of(record(body=bytes(3000))))
    assert store.commits.busy_reason is reason
    commit(store)
    append(store, batch_of(record(body=bytes(3000))))
    store.close()


def test_batch_larger_than_the_pool_is_taken_when_it_is_empty() -> None:
    store = pooled(MemoryFileSystem())
    batch = batch_of(*(record(body=bytes(3000)) for _ in range(10)))
    append(store, batch)
    with pytest.raises(BrokerBusy):
        append(store, batch_of(record()))
    store.close()


def test_waiting_bytes_are_counted_until_written() -> None:
    files = MemoryFileSystem()
    files.make_folder(Path("/x"))
    file = files.open(Path("/x/file"), create=True)
    pool = TransientPool(1000)
    pool.put(
        [PoolWrite(file, 0, [b"a" * 10])], PhysicalOffset(0), PhysicalOffset(10), stored_at_ms=1
    )
    pool.put(
        [PoolWrite(file, 10, [b"b" * 5])], PhysicalOffset(10), PhysicalOffset(15), stored_at_ms=1
    )
    assert (pool.bytes, pool.committed(PhysicalOffset(15))) == (15, 0)
    task = pool.commit_due()
    assert task is not None
    assert (len(task.writes), task.end) == (1, 15)
    pool.put([PoolWrite(file, 15, [b"c"])], PhysicalOffset(15), PhysicalOffset(16), stored_at_ms=1)
    task.run()
    pool.commit_done(task)
    assert (pool.bytes, pool.committed(PhysicalOffset(16))) == (1, 15)
    assert file.read(0, 20) == b"a" * 10 + b"b" * 5


def test_pool_needs_an_asynchronous_flush() -> None:
    with pytest.raises(ConfigError, match=r"broker\.flush_mode=async"):
        open_store(MemoryFileSystem(), config=POOLED, flush_mode=FlushMode.SYNC)
    with pytest.raises(ConfigError, match="transient_pool_bytes"):
        replace(POOLED, transient_pool_bytes=0)
