"""When the log is flushed."""

from ternmq_model.offsets import PhysicalOffset
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_store.log.flush import PAGE_BYTES, is_flush_due
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import append, checkpoint, open_store, settle

CONFIG = StoreConfig()


def is_due(mode: FlushMode, *, flushed: int, end: int, waited_ms: int) -> bool:
    return is_flush_due(
        mode,
        CONFIG,
        flushed=PhysicalOffset(flushed),
        end=PhysicalOffset(end),
        file_bytes=1 << 20,
        flushed_at_ms=1000,
        now_ms=1000 + waited_ms,
    )


def test_synchronous_flush_is_due_whenever_data_is_unflushed() -> None:
    assert is_due(FlushMode.SYNC, flushed=0, end=1, waited_ms=0)
    assert not is_due(FlushMode.SYNC, flushed=1, end=1, waited_ms=1 << 40)


def test_asynchronous_flush_waits_for_time_and_pages() -> None:
    pages = CONFIG.flush_least_pages * PAGE_BYTES
    assert not is_due(FlushMode.ASYNC, flushed=0, end=pages, waited_ms=499)
    assert is_due(FlushMode.ASYNC, flushed=0, end=pages, waited_ms=500)
    assert not is_due(FlushMode.ASYNC, flushed=0, end=pages - 1, waited_ms=500)
    assert is_due(FlushMode.ASYNC, flushed=0, end=1, waited_ms=10_000)


def test_full_file_is_flushed_at_once() -> None:
    assert is_due(FlushMode.ASYNC, flushed=(1 << 20) - 1, end=1 << 20, waited_ms=0)


def test_checkpoint_is_due_once_a_second_and_only_after_a_change() -> None:
    store = open_store(MemoryFileSystem())
    begin = 1_700_000_000_000
    append(store, batch_of(record("A")))
    settle(store)
    assert not checkpoint(store, begin + 999)
    assert checkpoint(store, begin + 1000)
    assert not checkpoint(store, begin + 5000)
    append(store, batch_of(record("A")))
    settle(store)
    assert checkpoint(store, begin + 9000)
