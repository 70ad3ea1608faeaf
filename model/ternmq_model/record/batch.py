"""Batches of records: their checks at arrival, and their completion for the log.

No value from a client is trusted: sizes, checksums, flags and properties are read from the bytes to
store. A batch costs a few passes of numpy, and checks of the properties of one record of each form.
A few short records are faster one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Ints
from ternmq_model.errors import CorruptRecord, IllegalMessage
from ternmq_model.names import TOPIC_BYTES_MAX
from ternmq_model.properties import PAIR_END_CODE
from ternmq_model.record.checksum import (
    CHECKSUM_BYTES,
    RESERVED_CHECKSUM,
    crc31_of_ranges,
    put_checksums,
    rows_with_reserved_checksum,
    strip_checksum,
)
from ternmq_model.record.fields import (
    QueueRows,
    cut_out,
    find_topics,
    queues_of,
    tag_codes_of,
    topic_name,
)
from ternmq_model.record.format import (
    BODY_BYTES_MAX,
    FLAG_COMPRESSION_MASK,
    MAGIC_V1,
    PROPERTIES_BYTES_MAX,
    Record,
    crc31,
    decode_record,
    host_flags,
    with_properties,
)
from ternmq_model.record.header_arrays import (
    Headers,
    header_type,
    put_headers,
    read_lengths,
    take_headers,
)
from ternmq_model.record.property_forms import find_forms
from ternmq_model.record.property_rules import (
    MARKS_OF_HALVES,
    marks_in,
    property_reason,
    routed_rows,
)
from ternmq_model.record.single import SingleRecord
from ternmq_model.response_code import ResponseCode

_FEW_RECORDS: Final = 6
_FEW_BYTES: Final = 16 << 10
"""Most bytes of records that are read one by one, which is faster than the passes."""


class RefusedRecord(NamedTuple):
    """Refused record with a response code and its remark."""

    row: int
    """Position of the record in its request or batch."""

    code: int
    remark: str


class _Form(NamedTuple):
    """Form of all records of a request."""

    flags: int
    """Bits of the sys flag that announce the hosts' lengths."""

    kind: "np.dtype[np.void]"
    is_checksummed: bool

    @property
    def added_bytes(self) -> int:
        """Bytes by which a record without space for its checksum grows."""
        return CHECKSUM_BYTES if self.is_checksummed else 0


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Checked, contiguous records without offsets, hosts and store time."""

    data: bytes
    starts: Ints
    sizes: Ints
    headers: Headers
    """Copies of the records' headers, to complete for the log."""
    tag_codes: Ints
    queues: tuple[QueueRows, ...]
    """Rows of each queue. Every row belongs to exactly one queue."""
    properties: Ints
    """Begin of each record's properties in `data`. They reach to the record's end."""
    is_checksummed: bool = False
    """True = every record ends with space for its checksum; False = none does."""
    routed: tuple[int, ...] = ()
    """Rows with properties of `ROUTING`, which may be stored in another queue first."""
    has_one_form: bool = False
    """True = the properties of all records are known to have one form. See `find_forms`."""

    def __len__(self) -> int:
        return len(self.sizes)

    def complete(
        self,
        target: memoryview,
        *,
        queue_offsets: Ints,
        physical_offsets: Ints,
        stored_at_ms: int,
        born_host: bytes | None,
        store_host: bytes,
    ) -> None:
        """Write the fields that the log sets, and the checksums, into `target`, a copy of `data`.

        `born_host` is that of all records; None = those in the headers.
        """
        headers = self.headers
        headers["queue_offset"] = queue_offsets
        headers["physical_offset"] = physical_offsets
        headers["stored_at_ms"] = stored_at_ms
        if born_host is not None:
            headers["born_host"] = np.void(born_host)
        headers["store_host"] = np.void(store_host)
        put_headers(target, self.starts, headers)
        if self.is_checksummed:
            put_checksums(np.frombuffer(target, dtype=np.uint8), self.starts, self.sizes)


Records = RecordBatch | SingleRecord


class CheckedRecords(NamedTuple):
    """Checked records of a client."""

    batch: RecordBatch | None
    """Valid records, in order; None = none."""
    indexes: Ints
    """Index of each row of the batch among the records of the request."""
    refused: Sequence[RefusedRecord]


def check_records(
    records: bytes,
    sizes: NDArray[np.int32],
    *,
    born_host_bytes: int,
    store_host_bytes: int,
    is_checksummed: bool = False,
) -> CheckedRecords:
    """Check every record of a request, and sort the valid ones by queue.

    The space for a checksum is added to or removed from records as `is_checksummed` requires.

    Args:
        records: Contiguous records.
        sizes: Lengths of the records, with the sum of `records`. Each record must have its length
            in its header.
        born_host_bytes: Length of BORNHOST in every record, 8 or 20.
        store_host_bytes: Length of STOREHOST in every record, 8 or 20.
        is_checksummed: True = stored records have a checksum.

    Raises:
        ValueError: The lengths are impossible. No record of the request is usable.
    """
    lengths = sizes.astype(np.int64)
    flags = host_flags(born_host_bytes, store_host_bytes)
    form = _Form(flags, header_type(flags), is_checksummed)
    if (
        not len(lengths)
        or int(lengths.min()) < form.kind.itemsize + 4
        or int(lengths.sum()) != len(records)
    ):
        raise ValueError("record sizes do not add up to the records")
    everyone = np.arange(len(lengths), dtype=np.int64)
    checked = _check(records, lengths, form)
    if isinstance(checked, RecordBatch):
        return CheckedRecords(checked, everyone, ())
    ends = np.cumsum(lengths)
    refused: list[RefusedRecord] = []
    for index in np.flatnonzero(~checked).tolist():
        record = records[ends[index] - lengths[index] : ends[index]]
        reason = _reason(record, form)
        refused.append(RefusedRecord(index, ResponseCode.MESSAGE_ILLEGAL, reason))
    indexes = np.flatnonzero(checked)
    if not len(indexes):
        return CheckedRecords(None, indexes, refused)
    kept = join_records(records, (ends - lengths)[indexes], lengths[indexes])
    again = _check(kept, lengths[indexes], form)
    assert isinstance(again, RecordBatch), "records that passed alone must pass together"
    return CheckedRecords(again, indexes, refused)


def join_records(data: bytes, starts: Ints, sizes: Ints) -> bytes:
    """Return contiguous copies of the records at `starts`."""
    begins = starts.tolist()
    return b"".join(
        [data[begin : begin + size] for begin, size in zip(begins, sizes.tolist(), strict=True)]
    )


def select_rows(batch: RecordBatch, queues: Sequence[QueueRows]) -> tuple[RecordBatch, Ints]:
    """Return a batch with only the rows of `queues`, a part of `batch.queues`, and the rows."""
    rows = np.sort(np.concatenate([queue.rows for queue in queues]))
    sizes = batch.sizes[rows]
    kept = RecordBatch(
        join_records(batch.data, batch.starts[rows], sizes),
        np.cumsum(sizes) - sizes,
        sizes,
        batch.headers[rows],
        batch.tag_codes[rows],
        tuple(queue._replace(rows=np.searchsorted(rows, queue.rows)) for queue in queues),
        batch.properties[rows] - batch.starts[rows] + (np.cumsum(sizes) - sizes),
        batch.is_checksummed,
        tuple(np.flatnonzero(np.isin(rows, batch.routed)).tolist()) if batch.routed else (),
    )
    return kept, rows


def batch_of(single: SingleRecord) -> RecordBatch:
    """Return a batch of one record."""
    return RecordBatch(
        single.data,
        single.starts,
        single.sizes,
        take_headers(single.data, single.starts, header_type(single.sys_flag)),
        np.array((single.tag_code,), dtype=np.int64),
        single.queues,
        np.array((single.properties_at,), dtype=np.int64),
        single.is_checksummed,
    )


def conform_checksums(batch: Records, *, is_checksummed: bool) -> Records:
    """Return `batch` with space for a checksum in every record, or in none.

    Raises:
        IllegalMessage: With the space the properties of a record are too long.
    """
    if batch.is_checksummed is is_checksummed:
        return batch
    if isinstance(batch, SingleRecord):
        batch = batch_of(batch)
    return _fit_checksums(batch, is_checksummed=is_checksummed)


def _fit_checksums(batch: RecordBatch, *, is_checksummed: bool) -> RecordBatch:
    room = RESERVED_CHECKSUM if is_checksummed else b""
    begins, ends = batch.starts.tolist(), (batch.starts + batch.sizes).tolist()
    pieces: list[bytes] = []
    sizes: list[int] = []
    for begin, at, end in zip(begins, batch.properties.tolist(), ends, strict=True):
        properties = strip_checksum(batch.data[at:end]) + room
        if len(properties) > PROPERTIES_BYTES_MAX:
            raise IllegalMessage(_too_long(len(properties)))
        pieces += with_properties(batch.data, begin, at, properties)
        sizes.append(at - begin + len(properties))
    lengths = np.array(sizes, dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    headers = batch.headers.copy()
    headers["total_bytes"] = lengths
    return replace(
        batch,
        data=b"".join(pieces),
        starts=starts,
        sizes=lengths,
        headers=headers,
        properties=starts + (batch.properties - batch.starts),
        is_checksummed=is_checksummed,
    )


def _too_long(properties_bytes: int) -> str:
    return (
        f"properties have {properties_bytes} bytes with their checksum, "
        f"at most {PROPERTIES_BYTES_MAX} fit"
    )


def _check(records: bytes, sizes: Ints, form: _Form) -> RecordBatch | NDArray[np.bool_]:
    """Return the batch; or a mask of the valid records if some are invalid."""
    if len(sizes) <= _FEW_RECORDS and len(records) <= _FEW_BYTES:
        return _check_few(records, sizes, form)
    kind = form.kind
    ends = np.cumsum(sizes)
    starts = ends - sizes
    headers = take_headers(records, starts, kind)
    view = np.frombuffer(records, dtype=np.uint8)
    body_bytes = headers["body_bytes"].astype(np.int64)
    flags = headers["sys_flag"]
    good = (
        (headers["total_bytes"] == sizes)
        & (headers["magic"] == MAGIC_V1)
        & (body_bytes >= 0)
        & (body_bytes <= np.minimum(sizes - kind.itemsize - 4, BODY_BYTES_MAX))
        & ((flags & ~FLAG_COMPRESSION_MASK) == form.flags)
        & (headers["queue_id"] >= 0)
        & (headers["reconsume_times"] == 0)
        & (headers["prepared_offset"] == 0)
    )
    if not good.all():
        return _check_each(records, starts, ends, good, form)
    bodies = starts + kind.itemsize
    topics = bodies + body_bytes + 1
    topic_bytes = view[topics - 1].astype(np.int64)
    properties = topics + topic_bytes + 2
    fits = (topic_bytes > 0) & (topic_bytes <= TOPIC_BYTES_MAX) & (properties <= ends)
    if not fits.all():
        return _check_each(records, starts, ends, fits, form)
    properties_bytes = read_lengths(view, properties)
    closed = (properties_bytes == 0) | (view[ends - 1] == PAIR_END_CODE)
    is_reserved = rows_with_reserved_checksum(records, properties, ends)
    fits = (
        (properties + properties_bytes == ends)
        & (properties_bytes + form.added_bytes * ~is_reserved <= PROPERTIES_BYTES_MAX)
        & closed
    )
    if not fits.all():
        return _check_each(records, starts, ends, fits, form)
    tails = ends - CHECKSUM_BYTES * is_reserved
    forms = find_forms(records, properties, tails)
    parts = cut_out(records, properties[forms.firsts], tails[forms.firsts])
    found = find_topics(records, topics, topic_bytes)
    names = [name for topic in found.names if (name := topic_name(topic)) is not None]
    marks = marks_in(b"".join(parts))
    if (
        len(names) < len(found.names)
        or (not marks <= MARKS_OF_HALVES and any(map(property_reason, parts)))
        or not (headers["body_crc"] == crc31_of_ranges(records, bodies, topics - 1)).all()
    ):
        return _check_each(records, starts, ends, np.ones(len(sizes), dtype=bool), form)
    queues = queues_of(names, found.of_rows, headers["queue_id"].astype(np.int64))
    batch = RecordBatch(
        records,
        starts,
        sizes,
        headers,
        forms.spread(tag_codes_of(parts)),
        queues,
        properties,
        form.is_checksummed,
        forms.rows_of(routed_rows(parts)) if marks else (),
        forms.of_rows is None,
    )
    if (is_reserved != form.is_checksummed).any():
        return _fit_checksums(batch, is_checksummed=form.is_checksummed)
    return batch


def _check_few(records: bytes, sizes: Ints, form: _Form) -> RecordBatch | NDArray[np.bool_]:
    """Return the result of `_check`, from record by record checks."""
    good: list[bool] = []
    names: dict[str, int] = {}
    topics: list[int] = []
    queue_ids: list[int] = []
    parts: list[bytes] = []
    properties: list[int] = []
    begin = 0
    for size in sizes.tolist():
        end = begin + size
        reason, decoded = _examine(records[begin:end], form)
        good.append(not reason)
        if decoded is not None:
            topics.append(names.setdefault(decoded.topic.decode(), len(names)))
            queue_ids.append(decoded.header.queue_id)
            parts.append(decoded.properties)
            properties.append(end - len(decoded.properties))
        begin = end
    if not all(good):
        return np.array(good)
    starts = np.cumsum(sizes) - sizes
    bare = [_without_checksum(part) for part in parts]
    batch = RecordBatch(
        records,
        starts,
        sizes,
        take_headers(records, starts, form.kind),
        tag_codes_of(bare),
        queues_of(
            tuple(names),
            np.array(topics, dtype=np.int64) if len(names) > 1 else None,
            np.array(queue_ids, dtype=np.int64),
        ),
        np.array(properties, dtype=np.int64),
        form.is_checksummed,
        routed_rows(bare),
    )
    if any((len(a) < len(b)) is not form.is_checksummed for a, b in zip(bare, parts, strict=True)):
        return _fit_checksums(batch, is_checksummed=form.is_checksummed)
    return batch


def _without_checksum(properties: bytes) -> bytes:
    """Return encoded properties without the space for a checksum at their end, if any."""
    return strip_checksum(properties) if properties.endswith(RESERVED_CHECKSUM) else properties


def _check_each(
    records: bytes,
    starts: Ints,
    ends: Ints,
    candidates: NDArray[np.bool_],
    form: _Form,
) -> NDArray[np.bool_]:
    good = candidates.copy()
    for index in np.flatnonzero(candidates).tolist():
        good[index] = not _reason(records[starts[index] : ends[index]], form)
    return good


def _reason(record: bytes, form: _Form) -> str:
    """Return the reason against storing the record; empty = none."""
    return _examine(record, form)[0]


def _examine(record: bytes, form: _Form) -> tuple[str, Record | None]:
    """Return the reason against storing the record, empty = none, and the decoded record."""
    try:
        decoded = decode_record(record)
    except CorruptRecord as error:
        return error.reason, None
    if decoded is None or decoded.header.magic != MAGIC_V1:
        return "only V1 records are accepted", None
    reason = _reason_of(decoded, len(record), form)
    return reason, None if reason else decoded


def _reason_of(decoded: Record, length: int, form: _Form) -> str:
    header = decoded.header
    if header.total_bytes != length:
        return f"total size {header.total_bytes} is not the record's length {length}"
    if header.body_bytes > BODY_BYTES_MAX:
        return f"body has {header.body_bytes} bytes, at most {BODY_BYTES_MAX} fit"
    if header.sys_flag & ~FLAG_COMPRESSION_MASK != form.flags:
        return f"sys flag {header.sys_flag:#x} has bits that a producer may not set"
    if header.body_crc != crc31(decoded.body):
        return "the body's checksum differs"
    if header.queue_id < 0 or header.reconsume_times or header.prepared_offset:
        return "queue id, reconsume times or prepared offset is not what a producer may set"
    if topic_name(decoded.topic) is None:
        return f"topic {decoded.topic!r} is not a legal name"
    if len(decoded.topic) > TOPIC_BYTES_MAX:
        return f"topic has {len(decoded.topic)} bytes, at most {TOPIC_BYTES_MAX} can be sent to"
    properties = _without_checksum(decoded.properties)
    if len(properties) + form.added_bytes > PROPERTIES_BYTES_MAX:
        return _too_long(len(properties) + form.added_bytes)
    return property_reason(properties)
