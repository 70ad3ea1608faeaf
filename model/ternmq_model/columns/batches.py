"""Arrow record batches of records of the commit log, without a Python object for each record.

A row has the values of `StoredMessage`: the decompressed body, and the properties without the
checksum of the record. A missing tag is null, and missing keys are an empty list.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ternmq_model import properties
from ternmq_model.arrays import Ints
from ternmq_model.columns import column_names
from ternmq_model.columns.arrow import arrow, compute
from ternmq_model.columns.column_names import COLUMNS, check_columns
from ternmq_model.columns.property_columns import (
    LIST_TYPE,
    MAP_TYPE,
    PropertyColumns,
    key_lists,
    property_maps,
    read_properties,
)
from ternmq_model.columns.record_validation import (
    DamagedRow,
    ExpectedRecords,
    ValidRecords,
    find_records,
    unpack_bodies,
)
from ternmq_model.columns.slices import gather, gather_texts, numbers
from ternmq_model.message_id import host_text, offset_message_id
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.format import FLAG_BORN_HOST_V6, FLAG_STORE_HOST_V6

if TYPE_CHECKING:
    import pyarrow as pa

    from ternmq_model.columns.aligned_properties import AlignedProperties

BATCH_BYTES_MAX: Final = 8 << 20
"""Most bytes of records and decompressed bodies in one batch; a single message may exceed it."""

_TIMESTAMP: Final = arrow.timestamp("us", "UTC")
_TYPES: Final[dict[str, Any]] = {
    column_names.TOPIC: arrow.string(),
    column_names.BROKER_NAME: arrow.string(),
    column_names.QUEUE_ID: arrow.int32(),
    column_names.QUEUE_OFFSET: arrow.int64(),
    column_names.MESSAGE_ID: arrow.string(),
    column_names.KEYS: LIST_TYPE,
    column_names.TAGS: arrow.string(),
    column_names.BODY: arrow.binary(),
    column_names.PROPERTIES: MAP_TYPE,
    column_names.BORN_AT: _TIMESTAMP,
    column_names.STORED_AT: _TIMESTAMP,
    column_names.BORN_HOST: arrow.string(),
    column_names.RECONSUME_TIMES: arrow.int32(),
    column_names.SYS_FLAG: arrow.int32(),
}
_NUMBERS: Final = {
    column_names.QUEUE_ID: ("queue_id", np.int32),
    column_names.QUEUE_OFFSET: ("queue_offset", np.int64),
    column_names.RECONSUME_TIMES: ("reconsume_times", np.int32),
    column_names.SYS_FLAG: ("sys_flag", np.int32),
}
_TIMES: Final = {column_names.BORN_AT: "born_at_ms", column_names.STORED_AT: "stored_at_ms"}
_FROM_PROPERTIES: Final = frozenset(
    {column_names.MESSAGE_ID, column_names.KEYS, column_names.TAGS, column_names.PROPERTIES}
)
_EARLIEST_MS: Final = -62_135_596_800_000
_LATEST_MS: Final = 253_402_300_799_999
"""End of the year 9999, the latest time that a timestamp column can show, Unix ms."""

_HOST_BYTES: Final = 8
_HOST_V6_BYTES: Final = 20


class BuiltRows(NamedTuple):
    """Rows of some records."""

    batch: "pa.RecordBatch"
    rows: Ints
    """Indices of the records in the batch, in their order."""

    damaged: Sequence[DamagedRow]
    inspected: int
    """Number of the first records that are in the batch or damaged. It is less than their total if
    the decompressed bodies exceed the limit of a batch."""


def arrow_schema(columns: Sequence[str] = ()) -> "pa.Schema":
    """Return the schema of batches with `columns`, or with all columns if none is named.

    Raises:
        UsageError: A column does not exist.
    """
    schema: pa.Schema = arrow.schema(
        [arrow.field(name, _TYPES[name]) for name in check_columns(columns)]
    )
    return schema


def build_rows(
    view: bytes | memoryview,
    starts: Ints,
    sizes: Ints,
    *,
    broker_name: str,
    columns: Sequence[str] = COLUMNS,
    expected: ExpectedRecords | None = None,
    bytes_max: int = BATCH_BYTES_MAX,
) -> BuiltRows:
    """Return a batch of the records, and the damaged ones.

    Args:
        view: Buffer with the records. The batch does not refer to it.
        starts: Positions of the records in it.
        sizes: Lengths of the records, in total at most the bytes of a batch.
        broker_name: Name of the broker of the records.
        columns: Names of the columns, in this order.
        expected: Facts that the records must state. None = any.
        bytes_max: Limit of records and decompressed bodies in the batch.

    Raises:
        MissingPackage: A compressed body needs the extra `compression`.
    """
    starts, sizes = starts.astype(np.int64), sizes.astype(np.int64)
    found, damaged = find_records(view, starts, sizes, expected)
    inspected = len(starts)
    unpacked: Sequence[tuple[int, bytes | None]] = ()
    if found is not None and column_names.BODY in columns:
        bodies = unpack_bodies(found, bytes_max)
        unpacked = bodies.unpacked
        if bodies.rows < len(found.rows):
            inspected = int(found.rows[bodies.rows])
        if bodies.broken or inspected < len(starts):
            damaged += [DamagedRow(int(found.rows[row]), error) for row, error in bodies.broken]
            keep = np.arange(len(found.rows)) < bodies.rows
            keep[[row for row, _ in bodies.broken]] = False
            moved = np.cumsum(keep) - 1
            unpacked = [(int(moved[row]), body) for row, body in unpacked]
            found = found.only(keep)
    damaged = sorted((d for d in damaged if d.row < inspected), key=lambda each: each.row)
    if found is None or not len(found.rows):
        return BuiltRows(empty_batch(columns), starts[:0], damaged, inspected)
    batch = batch_of_records(found, unpacked, broker_name, columns)
    return BuiltRows(batch, found.rows, damaged, inspected)


def batch_of_records(
    found: ValidRecords,
    unpacked: Sequence[tuple[int, bytes | None]],
    broker_name: str,
    columns: Sequence[str] = COLUMNS,
) -> "pa.RecordBatch":
    """Return a batch of valid records, at least one.

    Args:
        found: The records.
        unpacked: Decompressed bodies by row, ascending; None = a null.
        broker_name: Name of the broker of the records.
        columns: Names of the columns, in this order.
    """
    made = _Columns(found, unpacked, broker_name)
    batch: pa.RecordBatch = arrow.RecordBatch.from_arrays(
        [made.column(name) for name in columns], schema=arrow_schema(columns)
    )
    return batch


def empty_batch(columns: Sequence[str] = ()) -> "pa.RecordBatch":
    """Return a batch without rows. See `arrow_schema` for `columns`."""
    batch: pa.RecordBatch = arrow.RecordBatch.from_pylist([], schema=arrow_schema(columns))
    return batch


def join_batches(batches: Sequence["pa.RecordBatch"]) -> "pa.RecordBatch":
    """Return the rows of batches with one schema as one batch. Several batches are copied."""
    joined: pa.RecordBatch = batches[0] if len(batches) == 1 else arrow.concat_batches(batches)
    return joined


class _Columns:
    """Builder of the columns of one batch from valid records."""

    def __init__(
        self, found: ValidRecords, unpacked: Sequence[tuple[int, bytes | None]], broker_name: str
    ) -> None:
        self._view = found.view
        self._layout = found.layout
        self._rows = len(found.rows)
        self._unpacked = unpacked
        self._broker_name = broker_name
        self._read: AlignedProperties | PropertyColumns | None = None

    def column(self, name: str) -> Any:
        """Return the column `name`."""
        headers = self._layout.headers
        if name in _NUMBERS:
            field, kind = _NUMBERS[name]
            return numbers(headers[field].astype(kind), _TYPES[name])
        if name in _TIMES:
            at_ms = np.clip(headers[_TIMES[name]].astype(np.int64), _EARLIEST_MS, _LATEST_MS)
            return numbers(at_ms * 1000, _TIMESTAMP)
        if name in _FROM_PROPERTIES:
            return self._of_properties(name)
        if name == column_names.TOPIC:
            begins = self._layout.topics
            return gather_texts(self._view, begins, begins + self._layout.topic_bytes)
        if name == column_names.BROKER_NAME:
            return arrow.repeat(arrow.scalar(self._broker_name, arrow.string()), self._rows)
        return self._bodies() if name == column_names.BODY else self._born_hosts()

    def _of_properties(self, name: str) -> Any:
        if self._read is None:
            layout = self._layout
            self._read = read_properties(self._view, layout.properties, layout.ends)
        if name == column_names.PROPERTIES:
            return property_maps(self._read)
        if name == column_names.KEYS:
            return key_lists(self._read.values(properties.KEYS))
        if name == column_names.TAGS:
            return self._read.values(properties.TAGS)
        found = self._read.values(properties.UNIQUE_KEY)
        return self._with_offset_ids(found) if found.null_count else found

    def _with_offset_ids(self, found: Any) -> Any:
        """Return message ids: unique keys of producers, else offset ids."""
        headers = self._layout.headers
        lacks = found.is_null()
        rows = np.flatnonzero(lacks.to_numpy(zero_copy_only=False))
        ids = [
            offset_message_id(host[: self._host_bytes(flag, FLAG_STORE_HOST_V6)], at)
            for host, flag, at in zip(
                headers["store_host"][rows].tolist(),
                headers["sys_flag"][rows].tolist(),
                map(PhysicalOffset, headers["physical_offset"][rows].tolist()),
                strict=True,
            )
        ]
        return compute.replace_with_mask(found, lacks, arrow.array(ids, type=arrow.string()))

    def _host_bytes(self, sys_flag: int, v6: int) -> int:
        return _HOST_V6_BYTES if sys_flag & v6 else _HOST_BYTES

    def _bodies(self) -> Any:
        begins, ends = self._layout.bodies, self._layout.body_ends
        if not self._unpacked:
            return gather(self._view, begins, ends)
        mask = np.zeros(self._rows, dtype=np.bool_)
        mask[[row for row, _ in self._unpacked]] = True
        stored = gather(self._view, begins, np.where(mask, begins, ends))
        unpacked = arrow.array([body for _, body in self._unpacked], type=arrow.binary())
        return compute.replace_with_mask(stored, arrow.array(mask), unpacked)

    def _born_hosts(self) -> Any:
        """Return the born hosts. Equal hosts share one text."""
        headers = self._layout.headers
        hosts = headers["born_host"]
        if hosts.dtype.itemsize == _HOST_BYTES:
            plain = np.ascontiguousarray(hosts).view(np.int64)
            if (plain == plain[:1]).all():
                return arrow.repeat(arrow.scalar(host_text(hosts[0].tobytes())), self._rows)
            _, firsts, codes = np.unique(plain, return_index=True, return_inverse=True)
            texts = [host_text(host) for host in hosts[firsts].tolist()]
            return arrow.array(texts, type=arrow.string()).take(arrow.array(codes))
        own = [
            host[: self._host_bytes(flag, FLAG_BORN_HOST_V6)]
            for host, flag in zip(hosts.tolist(), headers["sys_flag"].tolist(), strict=True)
        ]
        known = {host: host_text(host) for host in set(own)}
        return arrow.array([known[host] for host in own], type=arrow.string())
