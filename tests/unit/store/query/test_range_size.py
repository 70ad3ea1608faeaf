"""Lengths of rangees, added up from units."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq_model.offsets import UNIT_BYTES, QueueOffset
from ternmq_store.query import range_size
from ternmq_store.query.range_size import QueueRangeSize
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.units import PADDING_SIZE, make_units
from ternmq_testing.memory.memory_files import MemoryFileSystem

FILE_UNITS = 16


def queue_of(files: MemoryFileSystem, sizes: list[int]) -> ConsumeQueue:
    queue = ConsumeQueue(files, Path("/store"), "T", 0, FILE_UNITS * UNIT_BYTES)
    for first in range(0, len(sizes), 5):
        some = np.array(sizes[first : first + 5], dtype=np.int64)
        queue.append(make_units(some * 0, some, some * 0))
    return queue


def measured(size: QueueRangeSize) -> tuple[int, int]:
    while not size.is_done:
        before = size.end
        size.run()
        assert size.end > before
    return size.end, size.bytes


@given(
    st.lists(st.integers(1, 90) | st.just(PADDING_SIZE), max_size=60),
    st.integers(0, 70),
    st.integers(0, 70),
    st.integers(0, 900),
    st.integers(0, 30),
)
def test_range_size_is_the_bytes_of_its_records_up_to_a_limit(
    sizes: list[int], begin: int, end: int, bytes_max: int, first: int
) -> None:
    files = MemoryFileSystem()
    queue = queue_of(files, sizes)
    queue.min_offset = QueueOffset(min(first, len(sizes)))
    size = QueueRangeSize(queue, QueueOffset(begin), QueueOffset(end), bytes_max=bytes_max)
    last = min(end, len(sizes))
    at = max(begin, min(queue.min_offset, last))
    total = 0
    while at < last and not (bytes_max and total >= bytes_max):
        total += 0 if sizes[at] == PADDING_SIZE else sizes[at]
        at += 1
    assert measured(size) == (at, total)


def test_long_range_takes_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_size, "_PIECE_UNITS", 3)
    files = MemoryFileSystem()
    size = QueueRangeSize(queue_of(files, [7] * 50), QueueOffset(1), QueueOffset(50), bytes_max=0)
    size.run()
    assert not size.is_done
    assert measured(size) == (50, 49 * 7)


def test_messages_taken_by_retention_count_nothing() -> None:
    files = MemoryFileSystem()
    queue = queue_of(files, [7] * 50)
    size = QueueRangeSize(queue, QueueOffset(0), QueueOffset(50), bytes_max=0)
    files.remove(queue.files.folder / "00000000000000000000")
    assert measured(size) == (50, 34 * 7)


def test_unwritten_queue_has_size_zero() -> None:
    size = QueueRangeSize(None, QueueOffset(3), QueueOffset(50), bytes_max=0)
    assert measured(size) == (3, 0)
