import numpy as np

from ternmq_model.offsets import UNIT_BYTES, QueueOffset
from ternmq_store.inspection.queue_inspection import (
    QueueCursor,
    find_queues,
    last_unit,
)
from ternmq_store.queues.unit_files import walk_units
from ternmq_store.queues.units import UNIT, unit_of
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, append, open_store, settle


def store_with(messages: int) -> MemoryFileSystem:
    """Return a closed store with a queue of files of ten units."""
    files = MemoryFileSystem()
    store = open_store(files)
    for _ in range(messages):
        append(store, batch_of(record("t", 3)))
    settle(store)
    store.close()
    return files


def test_units_of_all_files_come_in_order() -> None:
    files = store_with(25)
    (queue,) = find_queues(files, ROOT)
    assert (queue.topic, queue.queue_id, queue.start) == ("t", 3, 0)
    found = list(walk_units(files, queue.files))
    assert [(piece.first, len(piece.units)) for piece in found] == [(0, 10), (10, 10), (20, 5)]
    last = found[-1].units[-1:]
    assert last_unit(files, queue) == unit_of(last)


def test_cursor_returns_units_in_order_and_reports_skipped_ones() -> None:
    files = store_with(12)
    (queue,) = find_queues(files, ROOT)
    cursor = QueueCursor(files, queue)
    assert cursor.take(QueueOffset(1)) is None
    assert cursor.take(QueueOffset(0)) is not None
    assert sum(len(p.units) for p in cursor.take_to(QueueOffset(10))) == 9
    found = cursor.take(QueueOffset(10))
    assert found is not None
    assert found[0] == queue.files[1]
    assert sum(len(p.units) for p in cursor.take_to(QueueOffset(99))) == 1
    assert cursor.take(QueueOffset(12)) is None


def test_hole_in_a_queue_is_no_end() -> None:
    files = store_with(12)
    (queue,) = find_queues(files, ROOT)
    units = files.nodes[queue.files[0].path].data.view(UNIT)
    assert len(units) * UNIT_BYTES == queue.files[0].file_bytes
    units[4:6] = np.zeros(2, dtype=UNIT)
    sizes = [int(u["size"]) for piece in walk_units(files, queue.files) for u in piece.units]
    assert [n for n, size in enumerate(sizes) if not size] == [4, 5]
