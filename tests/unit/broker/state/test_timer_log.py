"""The timer log that a stop in order leaves for RocketMQ."""

import struct
from pathlib import Path

import numpy as np
import pytest

from ternmq_broker.scheduled.timer_wheel import DueMessages
from ternmq_broker.state import timer_log
from ternmq_broker.state.timer_log import log_units, write_timer_log
from ternmq_store.queues.units import UNIT
from ternmq_testing.memory.memory_files import MemoryFileSystem

READ_MS = 1_800_000_000_400
SECOND_MS = 1_800_000_000_000
DAY_MS = 86_400_000
UNIT_OF_LOG = struct.Struct(">iqiqiqiiq")
Row = tuple[int, int, int, int, int, int, int, int, int]


def due(*rows: tuple[int, int, int]) -> DueMessages:
    return DueMessages(*(np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)))


def units(*offsets: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    return np.array([(1000 * offset, 300 + offset, 0) for offset in offsets], dtype=UNIT)


def row(previous: int, magic: int, delay_ms: int, offset: int) -> Row:
    return (52, previous, magic, READ_MS, delay_ms, 1000 * offset, 300 + offset, 0, 0)


def rows_in(content: bytes) -> list[Row]:
    size = UNIT_OF_LOG.size
    whole = [UNIT_OF_LOG.unpack_from(content, at) for at in range(0, len(content) - size + 1, size)]
    return [each for each in whole if each[0] == size]


def left(waits: DueMessages, *, last: tuple[int, ...] = ()) -> list[tuple[str, bytes]]:
    """Return the files of the log of what waits."""
    files = MemoryFileSystem()
    log = log_units(
        waits.due_ms,
        waits.cancels,
        units(*waits.offsets.tolist()),
        read_ms=READ_MS,
        last=units(*last),
    )
    assert log is not None
    write_timer_log(files, Path("/data"), log)
    return [(path.name, node.data.tobytes()) for path, node in sorted(files.nodes.items())]


def test_timer_log_has_what_waits_by_rocketmqs_second() -> None:
    waits = due(
        (3, SECOND_MS + 5_000, 0),  # a whole second is delivered when the one before is over
        (4, SECOND_MS + 4_100, 1),
        (6, SECOND_MS + 5_100, 0),
        (7, SECOND_MS + 500, 0),  # the second that RocketMQ begins with
        (8, SECOND_MS + 3 * DAY_MS, 0),
    )
    ((name, content),) = left(waits)
    assert (name, len(content)) == (f"{0:020d}", 100 << 20)
    assert rows_in(content[:300]) == [
        row(-1, 1, 3_600, 3),
        row(0, 5, 3_600, 4),
        row(-1, 1, 4_600, 6),
        row(-1, 1, 0, 7),
        row(-1, 3, DAY_MS, 8),
    ]
    assert not any(content[5 * 52 :])


def test_timer_log_ends_with_the_newest_message_that_was_looked_at() -> None:
    ((_, content),) = left(due((3, SECOND_MS + 5_000, 0)), last=(9,))
    assert rows_in(content[:300]) == [row(-1, 1, 3_600, 3), row(-1, 1, -1_000, 9)]


def test_timer_log_goes_on_in_a_second_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_log, "_FILE_UNITS", 2)
    monkeypatch.setattr(timer_log, "_FILE_BYTES", 120)
    waits = due(*((offset, SECOND_MS + 5_000, 0) for offset in range(3)))
    (first, second) = left(waits)
    assert (first[0], second[0]) == (f"{0:020d}", f"{120:020d}")
    assert [len(content) for _, content in (first, second)] == [120, 120]
    assert rows_in(first[1]) == [row(-1, 1, 3_600, 0), row(0, 1, 3_600, 1)]
    assert first[1][104:] == bytes.fromhex("000000100000000000000000cbd43194")
    assert rows_in(second[1]) == [row(52, 1, 3_600, 2)]
