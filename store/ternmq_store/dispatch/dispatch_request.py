"""Dispatch requests: the consume queue units and index keys of a batch of records.

An append creates the request, since it knows the batch's offset in the log. A scan reads the batch
from the log. Units and keys depend only on the bytes of the records, so both give equal results.

Source: RocketMQ `CommitLog.checkMessageAndReturnSize`, `DispatchRequest`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.delay import level_delay_ms, wheel_code
from ternmq_model.index_keys import KeyRows, key_hash
from ternmq_model.names import SCHEDULE_TOPIC, WHEEL_TOPIC
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.properties import DELAY, decode_properties
from ternmq_model.record.batch import RecordBatch
from ternmq_model.record.fields import tag_code_of
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.consume_queue_ext import ExtRows
from ternmq_store.queues.units import Unit, Units, as_units, make_units

BitMaps = Callable[[RecordBatch], Sequence[bytes]]
"""Function that returns each record's bit map of the filters that may match; empty = unknown."""


def no_bit_maps(batch: RecordBatch) -> Sequence[bytes]:
    """Return empty bit maps, for a broker without filters."""
    return [b""] * len(batch)


class UnitRun(NamedTuple):
    """New units of one queue."""

    queue: ConsumeQueue
    offsets: Ints
    """Queue offsets of the messages, in the order of the log."""
    units: Units
    ext: ExtRows | None
    """Entries of the queue's extension file, if it has one."""


class KeyRun(NamedTuple):
    """New keys of the index."""

    keys: KeyRows
    offsets: Ints
    """Log offsets of every record of the batch, as in `stored_at_ms`."""
    stored_at_ms: Ints


class DispatchRequest(NamedTuple):
    """Units and keys of a batch appended from `start` to `end`."""

    start: PhysicalOffset
    end: PhysicalOffset
    stored_at_ms: int
    records: int
    units: Sequence[UnitRun]
    keys: KeyRun | None
    """Index keys of the records; None = no index."""


class SingleRequest(NamedTuple):
    """Unit and keys of a single record appended from `start` to `end`."""

    start: PhysicalOffset
    end: PhysicalOffset
    stored_at_ms: int
    queue: ConsumeQueue
    offsets: Ints
    """Queue offset of the record."""
    unit: Unit
    bit_map: bytes | None
    words: Sequence[str] | None
    """Index keys of the record; None = no index."""

    @property
    def records(self) -> int:
        """Number of records."""
        return 1

    @property
    def is_plain(self) -> bool:
        """True when the unit comes next in its queue, and the queue has no extension."""
        queue = self.queue
        return queue.ext is None and self.offsets[0] == queue.end

    @property
    def units(self) -> Sequence[UnitRun]:
        """Unit of the record, as in `DispatchRequest`."""
        ext = None if self.bit_map is None else ExtRows(self._times(), (self.bit_map,))
        return (UnitRun(self.queue, self.offsets, as_units(self.unit), ext),)

    @property
    def keys(self) -> KeyRun | None:
        """Index keys of the record, as in `DispatchRequest`."""
        if self.words is None:
            return None
        rows = np.zeros(len(self.words), dtype=np.int64)
        offsets = np.array((self.unit.offset,), dtype=np.int64)
        hashes = np.array(self.hashes(), dtype=np.int32)
        return KeyRun(KeyRows(rows, hashes), offsets, self._times())

    def hashes(self) -> Sequence[int]:
        """Return the hashes of the index keys."""
        return [key_hash(self.queue.topic, word) for word in self.words or ()]

    def _times(self) -> Ints:
        return np.array((self.stored_at_ms,), dtype=np.int64)


Requests = DispatchRequest | SingleRequest


def unit_runs(
    batch: RecordBatch,
    rows_of: Sequence[tuple[ConsumeQueue, Ints]],
    *,
    offsets: Ints,
    queue_offsets: Ints,
    stored_at_ms: Ints,
    bit_maps: BitMaps | None,
) -> Sequence[UnitRun]:
    """Return the units of a batch.

    Args:
        batch: Records.
        rows_of: Rows of each queue, without prepared and rolled back ones.
        offsets: Log offset of each record.
        queue_offsets: Queue offset of each record.
        stored_at_ms: Store time of each record, Unix ms.
        bit_maps: Function of the filter bit maps; None = no extension units.
    """
    ext = None if bit_maps is None else ExtRows(stored_at_ms, bit_maps(batch))
    units = make_units(offsets, batch.sizes, batch.tag_codes)
    runs: list[UnitRun] = []
    for queue, rows in rows_of:
        if not len(rows):
            continue
        is_all = len(rows) == len(units)
        own, places = (units, queue_offsets) if is_all else (units.take(rows), queue_offsets[rows])
        if queue.topic in (SCHEDULE_TOPIC, WHEEL_TOPIC):
            own = own.copy()
            own["tag_code"] = _delivery_times(queue.topic, batch, rows, stored_at_ms)
        further = ext if ext is None or is_all else ext.at(rows)
        runs.append(UnitRun(queue, places, own, further))
    return runs


def stored_units(batch: RecordBatch, topic: str, rows: Ints) -> Units:
    """Return the units of one topic's records in a batch read from the log."""
    headers = batch.headers
    units = make_units(
        headers["physical_offset"][rows].astype(np.int64), batch.sizes[rows], batch.tag_codes[rows]
    )
    if topic in (SCHEDULE_TOPIC, WHEEL_TOPIC):
        stored_at_ms = headers["stored_at_ms"].astype(np.int64)
        units["tag_code"] = _delivery_times(topic, batch, rows, stored_at_ms)
    return units


def _delivery_times(topic: str, batch: RecordBatch, rows: Ints, stored_at_ms: Ints) -> Ints:
    """Return the delivery times that units of delayed and timed messages have as tag codes."""
    ends = (batch.starts + batch.sizes).tolist()
    begins, times = batch.properties.tolist(), stored_at_ms.tolist()
    codes = [
        code_of(topic, batch.data[begins[row] : ends[row]], times[row]) for row in rows.tolist()
    ]
    return np.array(codes, dtype=np.int64)


def code_of(topic: str, properties: bytes, stored_at_ms: int) -> int:
    """Return the tag code of a record's unit: that of its tag, or its delivery time.

    Source: RocketMQ `CommitLog.checkMessageAndReturnSize`, `computeDeliverTimestamp`.
    """
    if topic == WHEEL_TOPIC:
        code = wheel_code(decode_properties(properties), stored_at_ms)
        return tag_code_of(properties) if code is None else code
    level = decode_properties(properties).get(DELAY, "") if topic == SCHEDULE_TOPIC else ""
    if level.isascii() and level.isdigit() and int(level) > 0:
        return stored_at_ms + level_delay_ms(int(level))
    return tag_code_of(properties)


def join_keys(runs: Sequence[KeyRun]) -> KeyRun:
    """Join the keys of successive batches."""
    if len(runs) == 1:
        return runs[0]
    counts = np.array([len(run.offsets) for run in runs], dtype=np.int64)
    firsts = (np.cumsum(counts) - counts).tolist()
    rows = np.concatenate([run.keys.rows + first for run, first in zip(runs, firsts, strict=True)])
    hashes = np.concatenate([run.keys.hashes for run in runs])
    return KeyRun(
        KeyRows(rows, hashes),
        np.concatenate([run.offsets for run in runs]),
        np.concatenate([run.stored_at_ms for run in runs]),
    )
