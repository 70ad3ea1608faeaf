"""Records of a pull as Arrow columns, with the checks and the second filter of `decode_records`."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model import properties
from ternmq_model.arrays import Ints
from ternmq_model.columns import column_names
from ternmq_model.columns.arrow import arrow, compute
from ternmq_model.columns.batches import batch_of_records, build_rows
from ternmq_model.columns.property_columns import read_properties
from ternmq_model.columns.record_validation import ValidRecords, find_records, unpack_bodies
from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.record.format import read_queue_offset

if TYPE_CHECKING:
    import pyarrow as pa

_NO_LIMIT: Final = 1 << 62


class PulledRows(NamedTuple):
    """Rows of the first records of a pull."""

    batch: "pa.RecordBatch"
    """Messages with a wanted tag."""

    inspected: int
    """Number of records up to the last inspected one: all, unless their decompressed bodies exceed
    one Arrow batch."""

    record_bytes: int
    """Length of the inspected records."""

    last_offset: QueueOffset
    """Queue offset of the last inspected record."""


def valid_records(data: bytes, sizes: NDArray[np.int32]) -> ValidRecords:
    """Return the contiguous records in `data`, at least one, with the checks of `decode_records`.

    Raises:
        CorruptRecord: A record is corrupt.
    """
    starts, lengths = _bounds(data, sizes)
    found, damaged = find_records(data, starts, lengths, None)
    if damaged or found is None:
        raise damaged[0].error
    return found


def tagged_records(found: ValidRecords, tags: Collection[str]) -> ValidRecords:
    """Return the records with one of `tags`."""
    layout = found.layout
    values = read_properties(found.view, layout.properties, layout.ends).values(properties.TAGS)
    return found.only(_have_tags(values, tags).to_numpy(zero_copy_only=False))


def columns_of_records(
    found: ValidRecords,
    broker_name: str,
    *,
    topics: Sequence[str] = (),
    reconsume_times: Sequence[int] = (),
) -> "pa.RecordBatch":
    """Return records, at least one, as rows with all columns.

    The body of a compressed message that cannot be decompressed is null.

    Args:
        found: The records.
        broker_name: Name of the broker of the records.
        topics: Topic of each row; empty = those of the records.
        reconsume_times: Number of attempts of each row; empty = those of the records.

    Raises:
        MissingPackage: A compressed body needs the extra `compression`.
    """
    bodies = unpack_bodies(found, _NO_LIMIT).with_nulls()
    batch: Any = batch_of_records(found, bodies.unpacked, broker_name)
    changed = {column_names.TOPIC: topics, column_names.RECONSUME_TIMES: reconsume_times}
    for name, values in changed.items():
        if values:
            at = batch.schema.get_field_index(name)
            field = batch.schema.field(at)
            batch = batch.set_column(at, field, arrow.array(values, type=field.type))
    changed_batch: pa.RecordBatch = batch
    return changed_batch


def _bounds(data: bytes, sizes: NDArray[np.int32]) -> tuple[Ints, Ints]:
    """Return the positions and lengths of contiguous records."""
    lengths = sizes.astype(np.int64)
    ends = np.cumsum(lengths)
    if int(ends[-1]) != len(data):
        raise CorruptRecord(PhysicalOffset(0), "record sizes do not add up to the records")
    return ends - lengths, lengths


def _have_tags(values: Any, tags: Collection[str]) -> Any:
    # The broker compares only hash codes, and different tags may have equal ones.
    return compute.is_in(values, arrow.array(sorted(tags), type=arrow.string()))


def decode_columns(
    data: bytes,
    sizes: NDArray[np.int32],
    queue: MessageQueue,
    *,
    tags: Collection[str] = (),
    columns: Sequence[str],
    check_crc: bool = True,
) -> PulledRows:
    """Return the messages of the contiguous records in `data` as rows, in their order.

    The body of a compressed message that cannot be decompressed is null.

    Args:
        data: Records of one queue, at least one.
        sizes: Length of each record. Their sum must be that of `data`.
        queue: Queue of the messages.
        tags: Wanted tags; empty = all messages.
        columns: Names of the columns, in this order.
        check_crc: True = the checksums of the bodies are verified.

    Raises:
        CorruptRecord: A record is corrupt.
        MissingPackage: A compressed body needs the extra `compression`.
    """
    starts, lengths = _bounds(data, sizes)
    needed = columns
    if tags and column_names.TAGS not in columns:
        needed = (*columns, column_names.TAGS)
    built = build_rows(
        data,
        starts,
        lengths,
        broker_name=queue.broker_name,
        columns=needed,
        check_crc=check_crc,
        is_null_allowed=True,
    )
    if built.damaged:
        raise built.damaged[0].error
    batch = built.batch
    if tags:
        batch = batch.filter(_have_tags(batch.column(column_names.TAGS), tags))
        batch = batch.select(list(columns))
    last = built.inspected - 1
    return PulledRows(
        batch,
        built.inspected,
        int(starts[last] + lengths[last]),
        read_queue_offset(data, int(starts[last])),
    )
