"""Records in the map of the log: those that one read takes, and a queue's newest in scalars.

A reader that keeps up asks for the newest message alone. Passes of numpy over its unit would cost
three times as much.
"""

from typing import Final, NamedTuple

from ternmq_model.record.format import OVERHEAD_BYTES
from ternmq_model.record.header_arrays import has_size_and_offset
from ternmq_store.log.commit_log import CommitLog
from ternmq_store.log.quarantine import DamagedRanges
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.read_request import ReadLimits, ReadRequest
from ternmq_store.read.message_selection import Selection, runs, take
from ternmq_store.read.record_filter import filter_rows

_EVERYTHING: Final = 1 << 62


class PlacedRecord(NamedTuple):
    """A record in the map of the log."""

    start: int
    """Log offset of the record."""

    data: memoryview
    """Bytes of the record: a slice of the map."""


def newest_record(
    request: ReadRequest,
    queue: ConsumeQueue,
    log: CommitLog,
    damaged: DamagedRanges,
    *,
    least: int,
) -> PlacedRecord | None:
    """Return the requested message if it is the queue's newest and needs no further look.

    Args:
        request: Request of the reader; the queue has a message at its offset.
        queue: Queue of the request.
        log: Log of the records.
        damaged: Damaged ranges of the log.
        least: Log offset from which on all records are in memory, and written by this process.

    Returns:
        None when there are more messages, a filter that needs more than the unit's tag code, or a
        record that is not in memory or may be damaged.
    """
    if request.offset + 1 != queue.end or len(damaged.starts):
        return None
    if request.record_filter is not None or request.bit_map_filter is not None:
        return None
    start, size, code = queue.unit(request.offset)
    if request.tag_codes is not None and (queue.ext is not None or code not in request.tag_codes):
        return None
    if start < max(least, log.start) or not OVERHEAD_BYTES <= size <= log.end - start:
        return None
    file = log.files.at(start)
    begin, end = start - file.base, start - file.base + size
    if end > file.file_bytes:
        return None
    if not has_size_and_offset(file.view, begin, size, request.offset):
        return None
    return PlacedRecord(start, file.view[begin:end])


def take_wanted(
    log: CommitLog, request: ReadRequest, chosen: Selection, end: int
) -> tuple[int, Selection]:
    """Return how many of the chosen messages a read inspects, and those that it returns.

    Args:
        log: Log of the records.
        request: Request of the reader, with its limits and its filter.
        chosen: Messages in memory by their units, at least one.
        end: Log offset behind the records in memory.
    """
    limits, file_bytes = request.hot, log.files.file_bytes
    keep = request.record_filter
    if keep is None:
        count = take(chosen.starts, chosen.sizes, limits, file_bytes=file_bytes, end=end)
        return count, chosen if count == len(chosen.starts) else chosen.only(slice(count))
    most = ReadLimits(len(chosen.starts), _EVERYTHING)
    count = take(chosen.starts, chosen.sizes, most, file_bytes=file_bytes, end=end)
    file = log.files.at(int(chosen.starts[0]))
    kept = filter_rows(
        file.view,
        file.base,
        chosen.starts[:count],
        chosen.sizes[:count],
        keep,
        messages_max=limits.messages_max,
        bytes_max=limits.bytes_max,
    )
    return kept.inspected, chosen.only(kept.rows)


def slices(log: CommitLog, kept: Selection) -> list[memoryview]:
    """Return the messages as slices of the map, one for records that follow each other."""
    if not len(kept.starts):
        return []
    file = log.files.at(int(kept.starts[0]))
    view = file.view
    return [view[begin:end] for begin, end in runs(kept.starts - file.base, kept.sizes)]
