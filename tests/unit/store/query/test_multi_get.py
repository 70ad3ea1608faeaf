"""Reading records that lie far from each other."""

from dataclasses import replace

import pytest

from ternmq_store.disk.layout import file_name, queue_folder
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, SMALL, append, flush, open_store, settle, whole


def test_records_are_read_in_any_order_and_bad_ones_are_none() -> None:
    store = open_store(MemoryFileSystem(), config=replace(SMALL, commit_log_file_bytes=4096))
    for number in range(20):
        append(store, batch_of(record("A", 0, b"%500d" % number)))
    flush(store)
    store.dispatch()
    plan = store.searches.records_at("A", 0, [17, 0, 5, 99, 3], bytes_max=1 << 20)
    plan.run()
    bodies = [b"17", b"0", b"5", None, b"3"]
    for data, body in zip(plan.records, bodies, strict=True):
        assert (data is None) is (body is None)
        assert body is None or (data is not None and body in data)
    plan.run()
    assert len(plan.records) == 5
    store.close()


@pytest.mark.parametrize("position", range(12))
def test_record_is_read_although_its_unit_is_damaged(position: int) -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    for number in range(9):
        append(store, batch_of(record("A", 0, b"%d" % number)))
    settle(store)
    units = files.nodes[queue_folder(ROOT, "A", 0) / file_name(0)].data
    before = units.tobytes()
    units[3 * 20 + position] ^= 1 << (position % 8)
    plan = store.searches.records_at("A", 0, [3, 4], bytes_max=1 << 20)
    plan.run()
    assert [whole(data).body for data in plan.records if data] == [b"3", b"4"]
    store.searches.records_done(plan)
    assert units.tobytes() == before
    assert store.reads.repair.mended_units == 1


def test_read_ends_after_its_byte_limit_but_not_before_the_first_record() -> None:
    store = open_store(MemoryFileSystem())
    append(store, batch_of(*[record("A", 0, bytes(100)) for _ in range(5)]))
    flush(store)
    store.dispatch()
    for bytes_max, count in ((1, 1), (300, 2), (100_000, 5)):
        plan = store.searches.records_at("A", 0, range(5), bytes_max=bytes_max)
        plan.run()
        assert len(plan.records) == count
    store.close()


def test_failing_disk_is_reported() -> None:
    files = MemoryFileSystem()
    store = open_store(files)
    append(store, batch_of(record("A")))
    flush(store)
    store.dispatch()
    plan = store.searches.records_at("A", 0, [0], bytes_max=100)
    files.read_error = OSError(5, "gone")
    with pytest.raises(OSError, match="gone"):
        plan.run()
    files.read_error = None
    store.close()


def test_codes_of_messages_are_returned() -> None:
    store = open_store(MemoryFileSystem())
    done = append(
        store,
        batch_of(
            record("rmq_sys_wheel_timer", 0, b"0"),
            record("rmq_sys_wheel_timer", 0, b"1"),
        ),
    )
    flush(store)
    store.dispatch()
    searches = store.searches
    assert searches.codes_at("rmq_sys_wheel_timer", 0, done.queue_offsets[0], 9).tolist() == [0, 0]
    assert searches.codes_at("none", 0, done.queue_offsets[0], 9).tolist() == []
    store.close()
