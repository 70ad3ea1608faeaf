"""Records of a pull as Arrow columns, with the checks of `decode_records` and the second filter."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model import properties
from ternmq_model.columns import column_names
from ternmq_model.columns.arrow import arrow, compute
from ternmq_model.columns.batches import BATCH_BYTES_MAX, batch_of_records
from ternmq_model.columns.column_names import COLUMNS
from ternmq_model.columns.property_columns import read_properties
from ternmq_model.columns.record_validation import ValidRecords, unpack_bodies
from ternmq_model.record.checksum import crc31_of_ranges
from ternmq_model.record.pulled_records import check_bodies, lay_out_pulled

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


def valid_records(data: bytes, sizes: NDArray[np.int32], *, check_crc: bool = True) -> ValidRecords:
    """Return the contiguous records in `data`, at least one, with the checks of `decode_records`.

    Args:
        data: The records.
        sizes: Length of each record. Their sum must be that of `data`.
        check_crc: True = the checksums of the bodies are verified.

    Raises:
        CorruptRecord: A record is corrupt.
    """
    layout = lay_out_pulled(data, sizes)
    if check_crc:
        check_bodies(layout, crc31_of_ranges(data, layout.bodies, layout.body_ends))
    return ValidRecords(data, layout, np.arange(len(sizes)))


def tagged_records(found: ValidRecords, tags: Collection[str]) -> ValidRecords:
    """Return the records with one of `tags`."""
    layout = found.layout
    values = read_properties(found.view, layout.properties, layout.ends).values(properties.TAGS)
    return found.only(_have_tags(values, tags).to_numpy(zero_copy_only=False))


def columns_of_records(
    found: ValidRecords,
    broker_name: str,
    *,
    bytes_max: int,
    topics: Sequence[str] = (),
    reconsume_times: Sequence[int] = (),
) -> "pa.RecordBatch":
    """Return the first records, at least one, as rows with all columns.

    The body of a compressed message that cannot be decompressed is null.

    Args:
        found: The records.
        broker_name: Name of the broker of the records.
        bytes_max: Limit of records and decompressed bodies; the first record may exceed it.
        topics: Topic of each row; empty = those of the records.
        reconsume_times: Number of attempts of each row; empty = those of the records.

    Raises:
        MissingPackage: A compressed body needs the extra `compression`.
    """
    batch: Any = _first_rows(found, broker_name, COLUMNS, bytes_max)
    changed = {column_names.TOPIC: topics, column_names.RECONSUME_TIMES: reconsume_times}
    for name, values in changed.items():
        if values:
            at = batch.schema.get_field_index(name)
            field = batch.schema.field(at)
            batch = batch.set_column(
                at, field, arrow.array(values[: batch.num_rows], type=field.type)
            )
    changed_batch: pa.RecordBatch = batch
    return changed_batch


def _first_rows(
    found: ValidRecords, broker_name: str, columns: Sequence[str], bytes_max: int
) -> "pa.RecordBatch":
    """Return the first records, at least one, as rows. Without bodies there is no limit."""
    if column_names.BODY not in columns:
        return batch_of_records(found, (), broker_name, columns)
    bodies = unpack_bodies(found, bytes_max).with_nulls()
    if bodies.rows < len(found.rows):
        found = found.only(np.arange(bodies.rows))
    return batch_of_records(found, bodies.unpacked, broker_name, columns)


def _have_tags(values: Any, tags: Collection[str]) -> Any:
    # The broker compares only hash codes, and different tags may have equal ones.
    return compute.is_in(values, arrow.array(sorted(tags), type=arrow.string()))


def decode_columns(
    data: bytes,
    sizes: NDArray[np.int32],
    broker_name: str,
    *,
    tags: Collection[str] = (),
    columns: Sequence[str],
    check_crc: bool = True,
) -> PulledRows:
    """Return the messages of the contiguous records in `data` as rows, in their order.

    The body of a compressed message that cannot be decompressed is null.

    Args:
        data: Records of queues of one broker, at least one.
        sizes: Length of each record. Their sum must be that of `data`.
        broker_name: Name of that broker.
        tags: Wanted tags; empty = all messages.
        columns: Names of the columns, in this order.
        check_crc: True = the checksums of the bodies are verified.

    Raises:
        CorruptRecord: A record is corrupt.
        MissingPackage: A compressed body needs the extra `compression`.
    """
    found = valid_records(data, sizes, check_crc=check_crc)
    needed = columns
    if tags and column_names.TAGS not in columns:
        needed = (*columns, column_names.TAGS)
    batch = _first_rows(found, broker_name, needed, BATCH_BYTES_MAX)
    count = batch.num_rows
    if tags:
        batch = batch.filter(_have_tags(batch.column(column_names.TAGS), tags))
        batch = batch.select(list(columns))
    return PulledRows(batch, count, int(found.layout.ends[count - 1]))
