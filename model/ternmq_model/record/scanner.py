"""Scanner of many records in the log: positions, integrity, parts.

A record costs one step of a short loop over the lengths, a part of a few passes of numpy, and steps
of the loops for checksums and tags. Only a suspect record of these passes is checked alone, which
gives the exact error or clears it.

Source: RocketMQ `CommitLog.checkMessageAndReturnSize`.
"""

import enum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.batch import RecordBatch
from ternmq_model.record.checksum import crc31_of_ranges, match_checksums, verify_checksum
from ternmq_model.record.fields import (
    BatchTopics,
    QueueRows,
    cut_out,
    find_topics,
    queues_of,
    tag_codes_of,
    topic_name,
)
from ternmq_model.record.format import (
    BLANK_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    OVERHEAD_BYTES,
    decode_record,
    read_start,
)
from ternmq_model.record.header_arrays import Headers
from ternmq_model.record.integrity import check_record
from ternmq_model.record.layout import RecordLayout, lay_out

SCAN_BYTES_MAX: Final = 4 << 20
"""Bytes after which a scan ends, behind the record that reaches them."""


class Verify(enum.IntEnum):
    """Depth of a record's check."""

    NOTHING = 0
    """Check of the sizes and the offset only, for records that are known to be whole."""

    BODY = 1
    """Check of the body's checksum and of lost sectors too: all that RocketMQ's format allows."""

    WHOLE = 2
    """Check of a checksum of the whole record too, which must exist."""


class LogChunk(NamedTuple):
    """Records in a chunk of the log."""

    batch: RecordBatch | None
    """Valid records up to `end`; None = none. `data` is a copy of the records, to which all
    positions refer. The queues omit records with an illegal topic or a negative queue id or offset.
    If the lengths of hosts differ, shorter hosts in `headers` are padded by zeros."""

    end: int
    """Position behind the last valid record."""

    is_blank: bool
    """True = a blank record lies at `end`, after which the next file follows."""

    error: CorruptRecord | None
    """Error of the bytes at `end`; None = none."""


def scan_records(
    view: memoryview,
    position: int,
    limit: int,
    *,
    at: PhysicalOffset,
    records_max: int,
    verify: Verify,
) -> LogChunk:
    """Return the records in `view` from `position` on.

    Args:
        view: File of the log, or its rest up to the end: a record must leave space for a blank one,
            and a blank record must reach to the end.
        position: Begin of the first record.
        limit: Limit of the scan. A record that ends behind it is not checked.
        at: Physical offset of `position`.
        records_max: Most records.
        verify: Depth of the check.
    """
    starts, end, is_stopped = follow_lengths(view, position, limit, records_max)
    if starts:
        data = bytes(view[position:end])
        begins = np.array(starts, dtype=np.int64) - position
        layout = lay_out(data, begins, np.append(begins[1:], len(data)), at + begins)
        if isinstance(layout, int):
            row, batch = layout, None
        else:
            row, batch = _take(view, position, data, layout, at, verify)
        if row < len(starts):
            start = starts[row]
            error = _fault(view, start, PhysicalOffset(at + start - position), verify)
            assert error is not None, "what many at once fail, one alone fails"
            good = scan_records(
                view, position, start, at=at, records_max=records_max, verify=verify
            )
            return good if good.error else good._replace(error=error)
    else:
        batch = None
    error = None
    if is_stopped:
        error = _fault(view, end, PhysicalOffset(at + end - position), verify)
    return LogChunk(batch, end, is_stopped and error is None, error)


def follow_lengths(
    view: memoryview, position: int, limit: int, records_max: int
) -> tuple[list[int], int, bool]:
    """Follow the lengths of successive records, without other checks.

    Args:
        view: Bytes of the records.
        position: Begin of the first record.
        limit: End of the last record at most.
        records_max: Most records; none begins behind `SCAN_BYTES_MAX`.

    Returns:
        Apparent begins of records, the end of the last one, and whether no record can be there.
    """
    unpack, length = read_start, len(view)
    bytes_end = position + SCAN_BYTES_MAX
    starts: list[int] = []
    while position < limit and position < bytes_end and len(starts) < records_max:
        if position + BLANK_BYTES > length:
            return starts, position, True
        total, magic = unpack(view, position)
        if (
            (magic != MAGIC_V1 and magic != MAGIC_V2)
            or total < OVERHEAD_BYTES
            or position + total > length
        ):
            return starts, position, True
        if position + total > limit:
            break
        starts.append(position)
        position += total
    return starts, position, False


def _fault(
    view: memoryview, position: int, at: PhysicalOffset, verify: Verify
) -> CorruptRecord | None:
    """Return the error of the record or blank record at `position`; None = none."""
    try:
        if verify:
            record = check_record(view, position, at=at, next_file=True)
            if record is not None and verify is Verify.WHOLE:
                data = view[position : position + record.header.total_bytes]
                if not verify_checksum(data, record.properties):
                    return CorruptRecord(at, "the record's checksum is missing or differs")
        else:
            decode_record(view, position, at=at, check_crc=False)
    except CorruptRecord as error:
        # The traceback refers to the view, and so to the map of the file.
        return error.with_traceback(None)
    return None


def _take(
    view: memoryview,
    position: int,
    data: bytes,
    layout: RecordLayout,
    at: PhysicalOffset,
    verify: Verify,
) -> tuple[int, RecordBatch | None]:
    """Check and decode the records. Return the number of valid ones before the first invalid one.

    The batch is None if there is an invalid record.
    """
    parts = cut_out(data, layout.properties, layout.ends)
    topics = find_topics(data, layout.topics, layout.topic_bytes)
    if verify:
        suspects = _suspects(data, layout, parts, topics, len(view) - position)
        if verify is Verify.WHOLE:
            suspects |= ~match_checksums(data, layout.starts, layout.properties, layout.ends)
        for row in np.flatnonzero(suspects).tolist():
            start = int(layout.starts[row])
            if _fault(view, position + start, PhysicalOffset(at + start), verify):
                return row, None
    batch = RecordBatch(
        data,
        layout.starts,
        layout.ends - layout.starts,
        layout.headers,
        tag_codes_of(parts),
        _queues(layout.headers, topics),
        layout.properties,
    )
    return len(parts), batch


def _suspects(
    data: bytes, layout: RecordLayout, parts: list[bytes], topics: BatchTopics, room: int
) -> NDArray[np.bool_]:
    """Return a mask of the suspect records, which need a check of their own."""
    crcs = crc31_of_ranges(data, layout.bodies, layout.body_ends)
    suspects: NDArray[np.bool_] = (crcs != layout.headers["body_crc"]) & (
        layout.body_ends > layout.bodies
    )
    suspects |= layout.ends + BLANK_BYTES > room
    suspects |= layout.headers["queue_offset"] > layout.headers["physical_offset"] // OVERHEAD_BYTES
    if b"\0" in b"".join(parts):
        suspects |= np.array([b"\0" in part for part in parts])
    for number, topic in enumerate(topics.names):
        if b"\0" in topic:
            suspects |= True if topics.of_rows is None else topics.of_rows == number
    return suspects


def _queues(headers: Headers, topics: BatchTopics) -> tuple[QueueRows, ...]:
    """Return the rows of each queue, without records that cannot be in one."""
    queue_ids = headers["queue_id"].astype(np.int64)
    names = [topic_name(topic) for topic in topics.names]
    legal = [name or "" for name in names]
    fits = (queue_ids >= 0) & (headers["queue_offset"] >= 0)
    if not all(names):
        has_name = np.array([name is not None for name in names])
        fits &= has_name[0] if topics.of_rows is None else has_name[topics.of_rows]
    if fits.all():
        return queues_of(legal, topics.of_rows, queue_ids)
    rows = np.flatnonzero(fits)
    if not len(rows):
        return ()
    of_rows = None if topics.of_rows is None else topics.of_rows[rows]
    return tuple(
        queue._replace(rows=rows[queue.rows])
        for queue in queues_of(legal, of_rows, queue_ids[rows])
    )
