"""RocketMQ's timer log of waiting messages, written by a clean stop (docs/formats/timer.md).

RocketMQ reads the units at a start and builds its wheel from them; the last unit has the message of
the queue at which it continues. With a timer log of all waiting messages, RocketMQ delivers them,
and none that this broker has delivered or cancelled.

Source: RocketMQ `TimerLog`, `TimerMessageStore.recover`, `reviseQueueOffset`, `dequeue`.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Ints, layout_bytes
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.queues.units import Units

TimerLog = NDArray[np.void]
"""Units of the timer log, as structures."""

LOG_FOLDER: Final = "timerlog"

_FIELDS: Final[list[Any]] = [
    ("size", ">i4"),
    ("previous", ">i8"),
    ("magic", ">i4"),
    ("written_ms", ">i8"),
    ("delay_ms", ">i4"),
    ("offset", ">i8"),
    ("record_size", ">i4"),
    ("topic_hash", ">i4"),
    ("reserved", ">i8"),
]
_UNIT: Final[np.dtype[np.void]] = np.dtype(_FIELDS)
_FILE_BYTES: Final = 100 << 20
_FILE_UNITS: Final = _FILE_BYTES // _UNIT.itemsize
_BLANK: Final = (16).to_bytes(4, "big") + bytes(8) + bytes.fromhex("cbd43194")
assert _FILE_UNITS * _UNIT.itemsize + len(_BLANK) == _FILE_BYTES

_WAITS: Final = 1
_ROLLS: Final = 2
_CANCELS: Final = 4
_SLOT_MS: Final = 1000
_ROLL_MS: Final = 2 * 86_400_000
_NEVER_READ_MS: Final = -_SLOT_MS
"""Delay from the start of RocketMQ's reads to the second before, which RocketMQ never reads."""


def log_units(due_ms: Ints, cancels: Ints, units: Units, read_ms: int, *, last: Units) -> TimerLog:
    """Return the timer log of waiting messages. Pure.

    Args:
        due_ms: Delivery times of the waiting messages, by queue offset.
        cancels: 1 for each message that cancels another, else 0.
        units: Units of these messages in their queue.
        read_ms: Time at which RocketMQ begins to read.
        last: Unit of the newest read message, if that does not wait.
    """
    # RocketMQ reads the messages of a second after its end, and so files them under this second.
    delays_ms = np.maximum((due_ms - 1) // _SLOT_MS * _SLOT_MS - read_ms, 0)
    rolls = delays_ms >= _ROLL_MS
    delays_ms[rolls] = _ROLL_MS // 2
    magic = _WAITS + _ROLLS * rolls + _CANCELS * cancels
    delays_ms = np.append(delays_ms, np.full(len(last), _NEVER_READ_MS))
    log = np.zeros(len(units) + len(last), dtype=_UNIT)
    log["size"] = _UNIT.itemsize
    log["previous"] = _previous((read_ms + delays_ms) // _SLOT_MS)
    log["magic"] = np.append(magic, np.full(len(last), _WAITS))
    log["written_ms"] = read_ms
    log["delay_ms"] = delays_ms
    log["offset"] = np.append(units["offset"], last["offset"])
    log["record_size"] = np.append(units["size"], last["size"])
    return log


def _previous(seconds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the log position of the previous unit of the same second; -1 for none."""
    rows = np.arange(len(seconds))
    places = rows // _FILE_UNITS * _FILE_BYTES + rows % _FILE_UNITS * _UNIT.itemsize
    found = np.full(len(seconds), -1, dtype=np.int64)
    order = np.argsort(seconds, kind="stable")
    is_same = seconds[order][1:] == seconds[order][:-1]
    found[order[1:][is_same]] = places[order[:-1][is_same]]
    return found


def write_timer_log(files: FileSystem, data: Path, log: TimerLog) -> None:
    """Write a new timer log, durably.

    An interrupted call leaves the beginning of the log, and RocketMQ continues at its last unit.

    Raises:
        OSError: The disk failed.
    """
    folder = data / LOG_FOLDER
    files.make_folder(folder)
    content = layout_bytes(log, _UNIT).tobytes()
    length = _FILE_UNITS * _UNIT.itemsize
    for number, begin in enumerate(range(0, len(content), length)):
        part = content[begin : begin + length]
        file = files.open(folder / f"{number * _FILE_BYTES:020d}", create=True)
        try:
            file.resize(_FILE_BYTES)
            file.write(0, part + _BLANK if len(part) == length else part)
            file.sync()
        finally:
            file.close()
    files.sync_folder(folder)
