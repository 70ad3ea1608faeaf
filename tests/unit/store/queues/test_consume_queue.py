"""One consume queue by itself."""

import errno
import logging

import numpy as np
import pytest

from ternmq_model.arrays import Ints
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_store.disk.mapped_file_queue import find_files
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.units import PADDING_SIZE, Units, make_units
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.stores import ROOT, queue_files, units_in


def ints(*values: int) -> Ints:
    return np.array(values, dtype=np.int64)


def units_at(*offsets: int) -> Units:
    return make_units(ints(*offsets), ints(*([10] * len(offsets))), ints(*([-1] * len(offsets))))


def new_queue(files: MemoryFileSystem) -> ConsumeQueue:
    files.make_folder(ROOT)
    return ConsumeQueue(files, ROOT, "A", 0, 200)


def test_units_cross_files_and_are_big_endian() -> None:
    files = MemoryFileSystem()
    queue = new_queue(files)
    queue.append(units_at(*range(0, 250, 10)))
    assert queue.end == 25
    assert sorted(queue_files(files)) == [f"A/0/{base:020d}" for base in (0, 200, 400)]
    first = queue_files(files)["A/0/00000000000000000000"]
    assert first[20:40] == bytes.fromhex("000000000000000a 0000000a ffffffffffffffff")
    assert queue.unit(QueueOffset(24)) == (240, 10, -1)
    assert len(queue.units(QueueOffset(8), 10)) == 2


def test_late_queue_is_padded_from_its_files_start() -> None:
    files = MemoryFileSystem()
    queue = new_queue(files)
    assert not queue.put(ints(13), units_at(500))
    assert (queue.min_offset, queue.end) == (13, 14)
    data = queue_files(files)["A/0/00000000000000000200"]
    assert units_in(data) == [(0, PADDING_SIZE, 0)] * 3 + [(500, 10, -1)]
    unit = queue.last_unit()
    assert unit is not None
    assert unit.offset == 500


def test_existing_units_are_not_rewritten() -> None:
    queue = new_queue(MemoryFileSystem())
    queue.append(units_at(0, 10, 20))
    assert queue.put(ints(1, 2, 3), units_at(10, 20, 30))
    assert queue.end == 4
    assert queue.unit(QueueOffset(1)).offset == 10


def test_restarted_queue_counts_from_its_new_beginning() -> None:
    queue = new_queue(MemoryFileSystem())
    queue.append(units_at(0, 10, 20))
    queue.put(ints(0), units_at(100))
    assert queue.end == 1
    assert queue.unit(QueueOffset(0)).offset == 100


def test_record_far_beyond_its_queue_is_left_out() -> None:
    queue = new_queue(MemoryFileSystem())
    queue.append(units_at(0))
    assert not queue.put(ints(1 << 40), units_at(10))
    assert not queue.put(ints(3), units_at(272))
    assert queue.end == 1


def test_gap_longer_than_a_file_is_filled_with_padding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ternmq_store.queues.consume_queue._PADDING_UNITS", 7)
    files = MemoryFileSystem()
    queue = new_queue(files)
    queue.append(units_at(0))
    assert not queue.put(ints(35, 36), units_at(3200, 3300))
    assert queue.put(ints(37), units_at(3400))
    found = [unit for _, data in sorted(queue_files(files).items()) for unit in units_in(data)]
    padding = [(0, PADDING_SIZE, 0)] * 34
    assert found == [(0, 10, -1), *padding, (3200, 10, -1), (3300, 10, -1), (3400, 10, -1)]
    assert queue.next_offset == queue.end == 38


def test_cut_wipes_later_units_and_drops_later_files() -> None:
    files = MemoryFileSystem()
    queue = new_queue(files)
    queue.append(units_at(*range(0, 250, 10)))
    queue.cut_from(PhysicalOffset(130))
    assert queue.end == queue.next_offset == 13
    assert sorted(queue_files(files)) == [f"A/0/{base:020d}" for base in (0, 200)]
    assert len(units_in(queue_files(files)["A/0/00000000000000000200"])) == 3
    queue.append(units_at(*range(1000, 1200, 10)))
    assert queue.end == 33
    queue.cut_from(PhysicalOffset(0))
    assert queue.end == 0
    assert not queue_files(files)


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 25])
def test_end_is_found_on_reopening(count: int) -> None:
    files = MemoryFileSystem()
    queue = new_queue(files)
    queue.reserve(QueueOffset(count + 1))
    if count:
        queue.append(units_at(*range(0, 10 * count, 10)))
    queue.close()
    again = new_queue(files)
    again.open_files(find_files(files, again.files.folder))
    again.find_written()
    assert again.end == count
    again.append(units_at(999))
    assert again.unit(QueueOffset(count)).offset == 999


def test_first_message_is_the_first_whose_record_remains() -> None:
    queue = new_queue(MemoryFileSystem())
    queue.append(units_at(*range(0, 250, 10)))
    queue.correct_min_offset(PhysicalOffset(115))
    assert queue.min_offset == 12
    queue.correct_min_offset(PhysicalOffset(1000))
    assert queue.min_offset == 25


@pytest.mark.parametrize("wrong", [-1, 5])
@pytest.mark.parametrize("damaged", range(3, 25))
def test_damaged_unit_hides_no_message_before_it(damaged: int, wrong: int) -> None:
    places = list(range(0, 250, 10))
    places[damaged] = wrong
    queue = new_queue(MemoryFileSystem())
    queue.append(units_at(*places))
    queue.correct_min_offset(PhysicalOffset(25))
    # The first one that is left cannot be told from one that is gone, if it seems to lie earlier.
    assert queue.min_offset == (4 if damaged == 3 and wrong == 5 else 3)


def test_full_disk_leaves_the_queue_unchanged() -> None:
    files = MemoryFileSystem()
    queue = new_queue(files)
    queue.append(units_at(*range(0, 100, 10)))
    files.space_bytes = 100
    with pytest.raises(OSError, match="full") as caught:
        queue.reserve(QueueOffset(11))
    assert caught.value.errno == errno.ENOSPC
    assert queue.end == 10
    files.space_bytes = None
    queue.append(units_at(100))
    assert queue.end == 11


def test_wrong_units_are_reported_and_rewritten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = new_queue(MemoryFileSystem())
    good = units_at(*range(0, 150, 10))
    queue.append(good)
    for offset, field, value in ((3, "size", 7), (4, "offset", 999), (12, "tag_code", 5)):
        queue.units(QueueOffset(offset), 1)[field] = value
    with caplog.at_level(logging.WARNING):
        assert queue.put(np.arange(15, dtype=np.int64), good)
    assert [tuple(queue.unit(QueueOffset(offset))) for offset in range(15)] == good.tolist()
    assert len(caplog.records) == 3
    assert queue.end == 15


def test_recovered_record_takes_the_place_kept_for_it() -> None:
    queue = new_queue(MemoryFileSystem())
    queue.append(units_at(0))
    assert not queue.put(ints(3), units_at(300))
    assert queue.unit(QueueOffset(1)) == (0, PADDING_SIZE, 0)
    assert queue.put(ints(1, 2), units_at(100, 200))
    assert [queue.unit(QueueOffset(offset)).offset for offset in range(4)] == [0, 100, 200, 300]


def test_older_record_of_the_same_number_does_not_replace_a_newer_one() -> None:
    queue = new_queue(MemoryFileSystem())
    queue.append(units_at(100, 110, 120))
    assert queue.put(ints(1, 2), units_at(10, 20))
    assert [queue.unit(QueueOffset(offset)).offset for offset in range(3)] == [100, 110, 120]


def test_units_of_deleted_files_are_not_missed() -> None:
    queue = new_queue(MemoryFileSystem())
    queue.append(units_at(*range(0, 250, 10)))
    queue.correct_min_offset(PhysicalOffset(150))
    assert [file.base for file in queue.delete_read()] == [0]
    assert queue.put(np.arange(25, dtype=np.int64), units_at(*range(0, 250, 10)))
    assert (queue.min_offset, queue.end) == (15, 25)


def test_first_message_is_found_between_padding_units() -> None:
    queue = new_queue(MemoryFileSystem())
    queue.put(ints(13), units_at(500))
    queue.put(ints(17), units_at(9000))
    queue.put(ints(21), units_at(9500))
    for log_start, first in ((0, 13), (500, 13), (501, 17), (9000, 17), (9001, 21), (9501, 22)):
        queue.correct_min_offset(PhysicalOffset(log_start))
        assert queue.min_offset == first
    unit = queue.last_unit()
    assert unit is not None
    assert unit.offset == 9500


def test_padding_alone_is_no_message() -> None:
    files = MemoryFileSystem()
    queue = new_queue(files)
    queue.put(ints(13), units_at(500))
    queue.cut_from(PhysicalOffset(400))
    assert queue.last_unit() is None
    queue.correct_min_offset(PhysicalOffset(0))
    assert queue.min_offset == queue.end == 13
    assert queue.put(ints(13), units_at(500))
    queue.correct_min_offset(PhysicalOffset(0))
    assert (queue.min_offset, queue.end) == (13, 14)


def test_new_files_wait_for_no_disk_and_are_named_for_the_next_sync() -> None:
    files = MemoryFileSystem()
    queue = new_queue(files)
    queue.reserve(QueueOffset(1))
    queue.append(units_at(*range(0, 150, 10)))
    assert files.syncs == 0
    (new,) = queue.take_new()
    folder = queue.files.folder
    assert [path.name for path in new.files] == [f"{base:020d}" for base in (0, 200)]
    # The file's name, the queue's, the topic's, and that of the folder of all topics.
    assert list(new.folders) == [folder, *list(folder.parents)[:3]]
    assert list(folder.parents)[2] == ROOT
    assert not any(queue.take_new()[0])
    queue.append(units_at(*range(150, 250, 10)))
    (new,) = queue.take_new()
    assert [path.name for path in new.files] == [f"{400:020d}"]
    assert list(new.folders) == [folder]
