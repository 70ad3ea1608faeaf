"""Units of one queue by plain reads."""

from contextlib import closing
from pathlib import Path

import numpy as np

from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_store.disk.mapped_file_queue import find_files
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.unit_files import count_written, walk_units
from ternmq_store.queues.units import UNIT, make_units, read_units
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.stores import ROOT


def queue_of(*offsets: int, files: MemoryFileSystem | None = None) -> ConsumeQueue:
    files = files or MemoryFileSystem()
    files.make_folder(ROOT)
    queue = ConsumeQueue(files, ROOT, "A", 0, 200)
    sizes = np.full(len(offsets), 10)
    queue.append(make_units(np.array(offsets), sizes, sizes))
    return queue


def test_units_before_a_place_of_the_log_are_counted_over_files() -> None:
    with closing(queue_of(*range(0, 250, 10)).unit_files()) as units:
        assert (units.min_offset, units.end) == (0, 30)
        assert units.count_before(PhysicalOffset(1000)) == 25
        for place in range(0, 250, 10):
            assert units.count_before(PhysicalOffset(place)) == place // 10
    with closing(ConsumeQueue(MemoryFileSystem(), ROOT, "A", 0, 200).unit_files()) as units:
        assert units.count_before(PhysicalOffset(1000)) == 0


def test_units_are_read_up_to_the_last_that_is_written() -> None:
    with closing(queue_of(*range(0, 250, 10)).unit_files()) as units:
        assert units.written_from(QueueOffset(3))["offset"].tolist() == [*range(30, 250, 10)]
        assert len(units.written_from(QueueOffset(25))) == 0
        assert units.written_end() == 25


def test_unit_outside_of_the_files_or_unwritten_is_not_there() -> None:
    with closing(queue_of(0, 10, 20).unit_files()) as units:
        assert units.written_unit(QueueOffset(2)) == (20, 10, 10)
        assert units.written_unit(QueueOffset(3)) is None
        assert units.written_unit(QueueOffset(-1)) is None
        assert units.written_unit(QueueOffset(99)) is None


def test_walk_yields_units_file_after_file() -> None:
    files = MemoryFileSystem()
    queue = queue_of(*range(0, 250, 10), files=files)
    row = find_files(files, queue.files.folder)
    found = list(walk_units(files, row))
    assert [(each.file.base, each.first, len(each.units)) for each in found] == [
        (0, 0, 10),
        (200, 10, 10),
        (400, 20, 5),
    ]


def test_written_units_of_a_file_are_counted() -> None:
    file = MemoryFileSystem().open(Path("/units"), create=True)
    for written in range(10):
        file.resize(0)
        file.resize(200)
        sizes = np.full(written, 10)
        file.write(0, make_units(sizes, sizes, sizes).tobytes())
        assert count_written(file, 10) == written
        assert len(read_units(file, 0, 99)) == 200 // UNIT.itemsize
