"""Waiting records of several queues, decoded together as one batch of columns."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ternmq_consumer.pull.fetched_queue import DECODED_BYTES_MAX, FetchedBatch, FetchedQueue
from ternmq_model.arrays import INT32_BYTES, read_int32s
from ternmq_model.columns.pulled_batch import decode_columns
from ternmq_model.errors import CorruptRecord, MissingPackage

if TYPE_CHECKING:
    import pyarrow as pa


class TakenColumns(NamedTuple):
    """Messages of the next replies of some queues."""

    batch: "pa.RecordBatch"
    record_bytes: int
    """Length of the records of all inspected messages."""

    queues: int
    """Number of the first queues whose messages were inspected."""


def take_columns(queues: Sequence[FetchedQueue], columns: Sequence[str]) -> TakenColumns:
    """Return the messages of the next replies as rows, queue by queue.

    The positions move past them. The filter may drop all rows. Replies whose decompressed bodies
    are too long for one Arrow batch are returned in parts.

    Args:
        queues: Queues with records that wait, and with one `filter_key`.
        columns: Names of the columns, in this order.

    Raises:
        CorruptRecord: The next reply of the first queue is corrupt. It is read again; the position
            stays.
        MissingPackage: A compressed body needs a package. Replies and positions stay.
    """
    parts: list[tuple[FetchedQueue, list[FetchedBatch]]] = []
    left = DECODED_BYTES_MAX
    for queue in queues:
        batches = queue.waiting_within(left)
        left -= sum(len(each.records) for each in batches)
        if parts and left < 0:
            break
        parts.append((queue, batches))
    first, batches = parts[0]
    if len(parts) > 1 or len(batches) > 1:
        with suppress(CorruptRecord, MissingPackage):
            return _take(parts, columns)
        # Replies before the refused one may be good.
    try:
        return _take([(first, batches[:1])], columns)
    except CorruptRecord:
        first.read_again()
        raise


def _take(
    parts: Sequence[tuple[FetchedQueue, Sequence[FetchedBatch]]], columns: Sequence[str]
) -> TakenColumns:
    """Return all rows of these replies as `take_columns`. An error leaves them all."""
    batches = [batch for _, part in parts for batch in part]
    data = batches[0].records
    if len(batches) > 1:
        data = b"".join([each.records for each in batches])
    first = parts[0][0]
    rows = decode_columns(
        data,
        read_int32s(b"".join([each.record_sizes for each in batches])),
        first.queue.broker_name,
        tags=first.tags,
        columns=columns,
        check_crc=first.check_crc,
    )
    for queue, part in parts:
        queue.check_offsets(part)
    left, inspected = rows.inspected, 0
    for queue, part in parts:
        if not left:
            break
        count = min(left, sum(len(each.record_sizes) for each in part) // INT32_BYTES)
        queue.pass_records(count)
        left -= count
        inspected += 1
    return TakenColumns(rows.batch, rows.record_bytes, inspected)
