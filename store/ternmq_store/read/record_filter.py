"""Filter of messages by their properties, which only their records have. Pure.

Source: RocketMQ `MessageFilter.isMatchedByCommitLog`.
"""

from typing import Final, NamedTuple

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.record.format import read_properties
from ternmq_store.queues.read_request import RecordFilter

FILTER_PROPERTY_BYTES_MAX: Final = 512 << 10
"""One read stops behind so many bytes of properties: what reading them costs at most."""


class FilteredRows(NamedTuple):
    """Result of a filter over messages in their order."""

    rows: Ints
    """Indices of messages that pass."""

    looked_at: int
    """Count of messages looked at, from the first on."""


def passes(view: memoryview, position: int, size: int, record_filter: RecordFilter) -> bool:
    """Return whether the record at `position` is wanted; one that cannot be read is not."""
    properties = read_properties(view, position, size)
    return properties is not None and record_filter(properties)


def keep_wanted(
    view: memoryview,
    base: int,
    starts: Ints,
    sizes: Ints,
    record_filter: RecordFilter,
    *,
    messages_max: int,
    bytes_max: int,
) -> FilteredRows:
    """Look at messages, in their order, until enough of them are wanted.

    Args:
        view: The file of the log that holds their records.
        base: Where it begins.
        starts: Where the records begin.
        sizes: How long they are.
        record_filter: Tells which are wanted.
        messages_max: Most that are wanted.
        bytes_max: Their length; the first one may be longer.
    """
    wanted: list[int] = []
    count, left, room = len(starts), bytes_max, FILTER_PROPERTY_BYTES_MAX
    for row, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        if room <= 0:
            count = row
            break
        properties = read_properties(view, start - base, size)
        if properties is None:
            continue
        room -= len(properties)
        if not record_filter(properties):
            continue
        if len(wanted) == messages_max or (wanted and size > left):
            count = row
            break
        wanted.append(row)
        left -= size
    return FilteredRows(np.array(wanted, dtype=np.int64), count)
