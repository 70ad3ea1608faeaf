"""The index keeps RocketMQ's bytes, finds what it was told, and mends what a crash has left."""

import errno
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq_model.errors import ConfigError
from ternmq_model.index_keys import KeyRows, key_hash
from ternmq_model.offsets import PhysicalOffset
from ternmq_store.config import StoreConfig
from ternmq_store.disk.layout import index_name
from ternmq_store.index.index_files import IndexFiles
from ternmq_store.index.index_format import (
    ENTRY,
    HEADER_BYTES,
    SLOT_BYTES,
    IndexSizes,
    decode_header,
    encode_slot,
)
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.index_queries import query
from tests.support.stores import HandClock

ROOT = Path("/store")
FOLDER = ROOT / "index"
SIZES = IndexSizes(10, 8)
AT_MS = 1_700_000_000_000

Record = tuple[int, int, list[int]]
"""Offset, store time, hashes of its keys."""


def open_index(files: MemoryFileSystem, sizes: IndexSizes = SIZES) -> IndexFiles:
    files.make_folder(ROOT)
    return IndexFiles.open(
        files, ROOT, slots=sizes.slots, entries=sizes.entries, clock=HandClock(AT_MS)
    )


def put(index: IndexFiles, *records: Record) -> None:
    """Index records as one batch."""
    rows = [row for row, record in enumerate(records) for _ in record[2]]
    hashes = [code for record in records for code in record[2]]
    index.reserve(len(rows))
    index.expect(len(rows))
    index.put(
        KeyRows(np.array(rows, dtype=np.int64), np.array(hashes, dtype=np.int32)),
        np.array([record[0] for record in records], dtype=np.int64),
        np.array([record[1] for record in records], dtype=np.int64),
        PhysicalOffset(records[-1][0] + 100),
    )


def put_one(index: IndexFiles, record: Record) -> None:
    """Index one record in scalars."""
    offset, at_ms, hashes = record
    index.reserve(len(hashes))
    index.expect(len(hashes))
    index.put_one(hashes, PhysicalOffset(offset), at_ms, PhysicalOffset(offset + 100))


def record_at(number: int, *hashes: int) -> Record:
    return (number * 100, AT_MS + number * 1000, list(hashes))


def contents(files: MemoryFileSystem) -> list[bytes]:
    """Return the index files with entries, oldest first."""
    found = [files.nodes[FOLDER / name].data.tobytes() for name in files.files(FOLDER)]
    return [data for data in found if decode_header(data).next_number > 1]


def one_by_one(records: list[Record], sizes: IndexSizes) -> list[bytes]:
    """Return the files as RocketMQ writes them, key by key."""
    files: list[bytearray] = []
    header, slots = decode_header(b""), dict[int, int]()
    for offset, at_ms, hashes in records:
        for code in hashes:
            if not files or header.next_number >= sizes.entries:
                files.append(bytearray(sizes.file_bytes))
                header, slots = decode_header(b""), {}
            number, before = header.next_number, slots.get(code % sizes.slots, 0)
            if number == 1:
                header = header._replace(begin_ms=at_ms, begin_offset=offset)
            entry = np.zeros(1, dtype=ENTRY)
            entry[0] = (code, offset, max(at_ms - header.begin_ms, 0) // 1000, before)
            place = sizes.entry_at(number)
            files[-1][place : place + ENTRY.itemsize] = entry.tobytes()
            slot = code % sizes.slots
            slots[slot] = number
            files[-1][HEADER_BYTES + 4 * slot : HEADER_BYTES + 4 * slot + 4] = number.to_bytes(
                4, "big"
            )
            header = header._replace(
                end_ms=at_ms,
                end_offset=offset,
                next_number=number + 1,
                slots_used=header.slots_used + (not before),
            )
            files[-1][:HEADER_BYTES] = header.encode()
    return [bytes(data) for data in files]


RECORDS = st.lists(
    st.tuples(st.integers(0, 3000), st.lists(st.integers(0, 40), max_size=5)), max_size=20
).map(
    lambda ones: [
        (row * 100, AT_MS + row * 700 + later, hashes) for row, (later, hashes) in enumerate(ones)
    ]
)


@given(
    records=RECORDS,
    cuts=st.lists(st.integers(1, 20), min_size=20, max_size=20),
    sizes=st.sampled_from([SIZES, IndexSizes(10, 50)]),
)
def test_batches_leave_the_same_bytes_as_single_keys(
    records: list[Record], cuts: list[int], sizes: IndexSizes
) -> None:
    files = MemoryFileSystem()
    index = open_index(files, sizes)
    left = records
    for count in cuts:
        if left:
            put(index, *left[:count])
            left = left[count:]
    assert contents(files) == one_by_one(records, sizes)
    index.close()


@given(records=RECORDS, end=st.integers(0, 20), garbage=st.binary(max_size=60))
def test_cut_index_gets_the_same_bytes_again(
    records: list[Record], end: int, garbage: bytes
) -> None:
    files = MemoryFileSystem()
    index = open_index(files)
    if records:
        put(index, *records)
    index.close()
    for name in files.files(FOLDER)[-1:]:
        node = files.nodes[FOLDER / name]
        # What was not synced can be anything: here, entries beyond the cut and all slots.
        kept = sum(len(one[2]) for one in records if one[0] < end * 100)
        count = max(kept - (len(files.files(FOLDER)) - 1) * (SIZES.entries - 1), 0)
        torn = np.frombuffer(garbage[: max(SIZES.file_bytes - SIZES.entry_at(count + 1), 0)], "u1")
        node.data[SIZES.entry_at(count + 1) :][: len(torn)] = torn
        node.data[HEADER_BYTES : SIZES.entry_at(0)] = 255
    again = open_index(files)
    again.cut(PhysicalOffset(end * 100))
    assert again.indexed_to <= end * 100
    if records:
        put(again, *records)
    assert contents(files) == one_by_one(records, SIZES)
    again.close()


def test_indexed_records_are_not_indexed_twice() -> None:
    files = MemoryFileSystem()
    index = open_index(files)
    records = [record_at(0, 1, 2, 3), record_at(1, 4, 5, 6, 7, 8, 9, 10)]
    put(index, *records)
    expected = contents(files)
    assert len(expected) == 2
    put(index, *records)
    index.close()
    again = open_index(files)
    assert again.indexed_to == 100
    put(again, *records)
    again.close()
    assert contents(files) == expected
    files.remove(FOLDER / files.files(FOLDER)[1])
    mended = open_index(files)
    put(mended, *records)
    mended.close()
    assert contents(files) == expected


def test_indexed_records_are_not_indexed_twice_one_by_one() -> None:
    files = MemoryFileSystem()
    index = open_index(files, IndexSizes(10, 50))
    records = [record_at(0, 1, 2), record_at(1, 3, 4), record_at(2, 5)]
    put(index, *records)
    expected = contents(files)
    put_one(index, records[0])
    index.close()
    again = open_index(files, IndexSizes(10, 50))
    for record in records:
        put_one(again, record)
    again.close()
    assert contents(files) == expected


def test_single_records_use_up_the_space_reserved_for_them() -> None:
    files = MemoryFileSystem()
    index = open_index(files)
    put(index, record_at(0, 1))
    for number in range(1, 7):
        put_one(index, record_at(number, number))
    assert len(files.files(FOLDER)) == 1
    index.close()


def test_key_is_found_newest_first_across_files_and_within_its_times() -> None:
    files = MemoryFileSystem()
    index = open_index(files)
    wanted = key_hash("T", "k")
    for number in range(12):
        put(index, record_at(number, wanted, 3))
    assert len(contents(files)) == 4
    ever = (0, 1 << 60)
    assert query(index, "T", "k", *ever, 64) == [number * 100 for number in range(12)]
    assert query(index, "T", "k", *ever, 2) == [1000, 1100]
    assert query(index, "T", "k", AT_MS + 4000, AT_MS + 6000, 64)[-3:] == [400, 500, 600]
    assert query(index, "T", "other", *ever, 64) == []
    assert query(index, "T", "k", AT_MS + 12_000, 1 << 60, 64) == []
    index.close()


@pytest.mark.parametrize("slot", [-1, -7, -(1 << 31)])
@pytest.mark.parametrize("batch", [1, 40])
def test_negative_slot_ends_its_chain_and_begins_another(slot: int, batch: int) -> None:
    files, sizes = MemoryFileSystem(), IndexSizes(10, 400)
    index = open_index(files, sizes)
    key, other = key_hash("T", "k"), key_hash("T", "other")
    assert key % sizes.slots != other % sizes.slots
    put(index, record_at(0, key), record_at(1, other))
    (name,) = files.files(FOLDER)
    at = HEADER_BYTES + SLOT_BYTES * (key % sizes.slots)
    data = files.nodes[FOLDER / name].data
    data[at : at + SLOT_BYTES] = np.frombuffer(encode_slot(slot), dtype=np.uint8)
    assert query(index, "T", "k", 0, 1 << 60, 64) == []
    assert query(index, "T", "other", 0, 1 << 60, 64) == [100]
    numbers = range(2, 2 + batch)
    put(index, *(record_at(number, key) for number in numbers))
    assert query(index, "T", "k", 0, 1 << 60, 64) == [number * 100 for number in numbers]
    index.close()


def test_key_is_found_by_time_though_the_clock_was_set_back() -> None:
    files = MemoryFileSystem()
    index = open_index(files)
    wanted = key_hash("T", "k")
    day_ms, hour_ms = 86_400_000, 3_600_000
    for number, at_ms in enumerate([0, 0, day_ms, day_ms + hour_ms, 1000, 2000, 3000]):
        put(index, (number * 100, AT_MS + at_ms, [3, wanted, 3]))
    headers = [decode_header(data) for data in contents(files)]
    assert [header.begin_ms <= header.end_ms for header in headers][:2] == [True, False]
    for begin_ms, end_ms, offsets in (
        (1000, 2999, {400, 500}),
        (day_ms, day_ms, {200}),
        (day_ms + hour_ms, 1 << 60, {300}),
    ):
        assert offsets <= set(query(index, "T", "k", AT_MS + begin_ms, AT_MS + end_ms, 64))
    index.close()


def test_full_disk_leaves_the_index_unchanged_and_indexing_resumes() -> None:
    files = MemoryFileSystem()
    index = open_index(files)
    put(index, record_at(0, *range(5)))
    before = contents(files)
    files.space_bytes = 0
    with pytest.raises(OSError, match=f"Errno {errno.ENOSPC}"):
        index.reserve(5)
    assert contents(files) == before
    assert len(files.files(FOLDER)) == 1
    files.space_bytes = None
    put(index, record_at(1, *range(5)))
    assert contents(files) == one_by_one([record_at(0, *range(5)), record_at(1, *range(5))], SIZES)
    index.close()


def test_preallocated_empty_files_are_used_after_a_restart() -> None:
    files = MemoryFileSystem()
    index = open_index(files)
    put(index, record_at(0, 1))
    index.reserve(20)
    assert len(files.files(FOLDER)) == 3
    index.close()
    again = open_index(files)
    put(again, record_at(1, *range(18)))
    assert len(files.files(FOLDER)) == 3
    assert contents(files) == one_by_one([record_at(0, 1), record_at(1, *range(18))], SIZES)
    again.close()


@pytest.mark.parametrize("sizes", [IndexSizes(10, 8), IndexSizes(15, 60), IndexSizes(500, 400)])
def test_file_sizes_are_recognized_whatever_the_settings(sizes: IndexSizes) -> None:
    files = MemoryFileSystem()
    index = open_index(files, sizes)
    for number in range(6):
        put(index, record_at(number + 1, number * 7919))
    index.close()
    other = open_index(files, IndexSizes(5, 1 + sizes.entries))
    assert [info.sizes for info in other.infos()] == [sizes]
    other.close()


def test_damage_drops_the_files_from_there_on() -> None:
    files = MemoryFileSystem()
    index = open_index(files)
    put(index, *(record_at(number, number, 50) for number in range(10)))
    index.close()
    names = files.files(FOLDER)
    assert len(names) == 3
    expected = contents(files)
    files.nodes[FOLDER / names[1]].data[:] = 255
    again = open_index(files)
    assert files.files(FOLDER) == names[:1]
    assert again.indexed_to == 300
    put(again, *(record_at(number, number, 50) for number in range(10)))
    again.close()
    assert contents(files) == expected


def test_old_files_go_with_the_log_but_never_the_newest() -> None:
    files = MemoryFileSystem()
    index = open_index(files)
    put(index, *(record_at(number, number, 50) for number in range(10)))
    names = files.files(FOLDER)
    assert index.delete_before(PhysicalOffset(300)) == []
    assert [path.name for path in index.delete_before(PhysicalOffset(400))] == names[:1]
    assert [path.name for path in index.delete_before(PhysicalOffset(1 << 40))] == names[1:2]
    assert [info.header.next_number for info in index.infos() if info.has_entries] == [7]
    index.close()


def test_file_name_is_the_local_time_and_above_the_last() -> None:
    name = index_name(AT_MS + 7, "")
    assert len(name) == 17
    assert name.endswith("007")
    assert index_name(AT_MS, name) == f"{int(name) + 1}"


def test_dirty_files_are_reported_once() -> None:
    index = open_index(MemoryFileSystem())
    put(index, record_at(0, 1))
    assert len(index.take_dirty()) == 1
    assert index.take_dirty() == ()
    assert index.stored_at_ms == AT_MS
    index.close()


def test_sizes_that_rocketmq_could_not_map_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"store\.index_slots=1"):
        StoreConfig(index_slots=1)
    with pytest.raises(ConfigError, match=r"store\.index_entries=110000000: .* over 2 GiB"):
        StoreConfig(index_entries=110_000_000)


def make_ahead(index: IndexFiles) -> bool:
    """Run the task that is due; tell whether there was one."""
    task = index.prepare_due()
    if task is not None:
        assert index.prepare_due() is None
        task.run()
        index.prepared(task, None)
    return task is not None


def test_preallocated_files_have_the_same_bytes_as_those_made_in_place() -> None:
    records = [record_at(number, number % 5, 7) for number in range(12)]
    files = MemoryFileSystem()
    index = open_index(files)
    assert make_ahead(index)
    made = files.files(FOLDER)
    assert not make_ahead(index)
    for record in records:
        put(index, record)
        syncs = files.syncs
        make_ahead(index)
        assert files.syncs - syncs <= 1
    assert files.files(FOLDER)[:1] == made
    index.close()
    assert contents(files) == one_by_one(records, SIZES)
    assert [info.path.name for info in open_index(files).infos()] == files.files(FOLDER)


def test_putting_syncs_nothing_while_files_are_made_ahead() -> None:
    files = MemoryFileSystem()
    index = open_index(files)
    for number in range(30):
        make_ahead(index)
        syncs = files.syncs
        put(index, record_at(number, 7))
        assert files.syncs == syncs


def test_late_preallocated_file_is_replaced_in_place_and_removed() -> None:
    files = MemoryFileSystem()
    index = open_index(files)
    task = index.prepare_due()
    assert task is not None
    put(index, record_at(0, 7))
    task.run()
    index.prepared(task, None)
    assert len(files.files(FOLDER)) == 2
    make_ahead(index)
    assert len(files.files(FOLDER)) == 1
    assert [info.header.next_number for info in index.infos() if info.has_entries] == [2]
    index.close()


def test_unneeded_preallocated_file_is_removed_by_a_clean_stop() -> None:
    files = MemoryFileSystem()
    index = open_index(files)
    for number in range(6):
        put(index, record_at(number, 7))
    assert make_ahead(index)
    assert len(files.files(FOLDER)) == 2
    index.close()
    assert len(files.files(FOLDER)) == 1
