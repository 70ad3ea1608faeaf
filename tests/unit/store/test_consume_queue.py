"""One consume queue by itself."""

import errno

import numpy as np
import pytest

from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.record_heads import Ints
from ternmq_store.consume_queue import ConsumeQueue
from ternmq_store.mapped_file_queue import find_files
from ternmq_store.units import PADDING_SIZE, Units, make_units
from tests.support.files import MemoryFileSystem
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


def test_a_queue_that_begins_late_is_padded_from_its_files_start() -> None:
    files = MemoryFileSystem()
    queue = new_queue(files)
    assert not queue.put(ints(13), units_at(500))
    assert (queue.min_offset, queue.end) == (13, 14)
    data = queue_files(files)["A/0/00000000000000000200"]
    assert units_in(data) == [(0, PADDING_SIZE, 0)] * 3 + [(500, 10, -1)]
    unit = queue.last_unit()
    assert unit is not None
    assert unit.offset == 500


def test_what_is_there_already_is_not_built_again() -> None:
    queue = new_queue(MemoryFileSystem())
    queue.append(units_at(0, 10, 20))
    assert queue.put(ints(1, 2, 3), units_at(10, 20, 30))
    assert queue.end == 4
    assert queue.unit(QueueOffset(1)).offset == 10


def test_a_queue_that_began_anew_counts_from_there() -> None:
    queue = new_queue(MemoryFileSystem())
    queue.append(units_at(0, 10, 20))
    queue.put(ints(0), units_at(100))
    assert queue.end == 1
    assert queue.unit(QueueOffset(0)).offset == 100


def test_a_record_far_beyond_its_queue_is_left_out() -> None:
    queue = new_queue(MemoryFileSystem())
    queue.append(units_at(0))
    assert not queue.put(ints(1 << 40), units_at(10))
    assert queue.end == 1


def test_a_cut_wipes_what_is_behind_and_drops_later_files() -> None:
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
def test_the_end_is_found_again(count: int) -> None:
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


def test_the_first_message_is_the_first_whose_record_is_left() -> None:
    queue = new_queue(MemoryFileSystem())
    queue.append(units_at(*range(0, 250, 10)))
    queue.correct_min_offset(PhysicalOffset(115))
    assert queue.min_offset == 12
    queue.correct_min_offset(PhysicalOffset(1000))
    assert queue.min_offset == 25


def test_without_space_nothing_changes() -> None:
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
