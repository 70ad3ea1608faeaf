"""Filter of messages by the properties in their records. Pure.

Source: RocketMQ `MessageFilter.isMatchedByCommitLog`.
"""

from typing import Final, NamedTuple

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.record.format import read_properties
from ternmq_store.queues.read_request import RecordFilter

FILTER_PROPERTY_BYTES_MAX: Final = 512 << 10
"""Bytes of properties after which one read stops: they bound its cost."""


class FilteredRows(NamedTuple):
    """Result of a filter over messages in their order."""

    rows: Ints
    """Indices of messages that pass."""

    inspected: int
    """Count of inspected messages, from the first on."""


def passes(view: memoryview, position: int, size: int, record_filter: RecordFilter) -> bool:
    """Return whether the record at `position` passes; one that cannot be read does not."""
    properties = read_properties(view, position, size)
    return properties is not None and record_filter(properties)


def filter_rows(
    view: memoryview,
    base: int,
    starts: Ints,
    sizes: Ints,
    record_filter: RecordFilter,
    *,
    messages_max: int,
    bytes_max: int,
) -> FilteredRows:
    """Return the messages that pass the filter, in their order, up to the limits.

    Args:
        view: Log file that holds the records.
        base: Log offset of the first byte of `view`.
        starts: Log offsets of the records.
        sizes: Lengths of the records.
        record_filter: Condition on the encoded properties.
        messages_max: Most messages to return.
        bytes_max: Most bytes of their records; the first one may be longer.
    """
    found: list[int] = []
    count, free_bytes, property_bytes = len(starts), bytes_max, FILTER_PROPERTY_BYTES_MAX
    for row, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        if property_bytes <= 0:
            count = row
            break
        properties = read_properties(view, start - base, size)
        if properties is None:
            continue
        property_bytes -= len(properties)
        if not record_filter(properties):
            continue
        if len(found) == messages_max or (found and size > free_bytes):
            count = row
            break
        found.append(row)
        free_bytes -= size
    return FilteredRows(np.array(found, dtype=np.int64), count)
