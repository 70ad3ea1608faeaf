"""Records of a pull as Arrow columns, with the checks and the second filter of `decode_records`."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model.columns import column_names
from ternmq_model.columns.arrow import arrow, compute
from ternmq_model.columns.batches import build_rows
from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.record.format import read_queue_offset

if TYPE_CHECKING:
    import pyarrow as pa


class PulledRows(NamedTuple):
    """Rows of the first records of a pull."""

    batch: "pa.RecordBatch"
    """Messages with a wanted tag."""

    inspected: int
    """Number of records up to the last inspected one: all, unless their decompressed bodies exceed
    one Arrow batch."""

    record_bytes: int
    """Length of the inspected records."""

    first_offset: QueueOffset
    last_offset: QueueOffset
    """Queue offset of the last inspected record."""


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
    lengths = sizes.astype(np.int64)
    ends = np.cumsum(lengths)
    if int(ends[-1]) != len(data):
        raise CorruptRecord(PhysicalOffset(0), "record sizes do not add up to the records")
    starts = ends - lengths
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
        # The broker compares only hash codes, and different tags may have equal ones.
        wanted = arrow.array(sorted(tags), type=arrow.string())
        batch = batch.filter(compute.is_in(batch.column(column_names.TAGS), wanted))
        batch = batch.select(list(columns))
    last = built.inspected - 1
    return PulledRows(
        batch,
        built.inspected,
        int(ends[last]),
        read_queue_offset(data, 0),
        read_queue_offset(data, int(starts[last])),
    )
