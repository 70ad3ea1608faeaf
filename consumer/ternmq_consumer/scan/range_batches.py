"""Options of a scan, and the batches and measures of a range of a queue. Pure."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from ternmq_model.arrays import read_int32s
from ternmq_model.queue import MessageQueue
from ternmq_model.record.format import read_queue_offset
from ternmq_model.subscription import Subscription

RETRY_TIMEOUT_S: Final = 60.0
"""Default of the time without progress after which reading fails."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanOptions:
    """Options of a scan: the wanted messages of a range, and their form."""

    subscription: Subscription | None = None
    """Filter by tags or a condition; None = all messages."""

    stored_from_ms: int = 0
    """Least store time, Unix milliseconds; 0 = any."""

    stored_before_ms: int = 0
    """Store time before which messages count, Unix milliseconds; 0 = any."""

    keys: tuple[str, ...] = ()
    """Keys of which a message must have one; none = any message."""

    columns: tuple[str, ...] = ()
    """Columns, in this order; none = all (docs/reference/spark.md)."""

    batch_rows_max: int = 0
    """Rows of one batch; 0 = 10,000, which is also the most."""

    batch_bytes_max: int = 0
    """A batch ends with the message that reaches so many bytes; 0 = 8 MiB, which is also the most.
    """

    skips_damaged: bool = False
    """Damaged messages are passed over and counted; else the first one is an error."""

    created_log_offset: int | None = None
    """Log offset of the topic's creation, by `DescribeTopic`: a topic that was created again since
    counts as deleted. None = any. Brokers of earlier versions do not look at it."""

    retry_timeout_s: float = RETRY_TIMEOUT_S
    """Time without progress, while the broker is away, after which reading fails. The log and
    errors call it by the name of Spark's option, `retryTimeout`."""


class ScannedBatch(NamedTuple):
    """One whole record batch of a range, or only the progress of reading it."""

    schema: bytes
    """The Arrow IPC message of the schema; the same for all batches. Empty before the first."""

    data: bytes
    """The Arrow IPC message of the record batch; empty when there are no rows."""

    next_offset: int
    """Messages before it were looked at; wanted ones are in this batch or an earlier one."""

    damaged: int
    """Damaged messages of the range that were passed over so far."""


class PulledBatch(NamedTuple):
    """Batch of records of a range."""

    records: bytes
    """Records as they lie on disk, back to back. All are of the range."""

    record_sizes: bytes
    """Little-endian int32 each."""

    next_offset: int
    """Messages before it were looked at."""

    damaged: int
    """Damaged messages of the range that were passed over so far. Of a filtered range also some
    that lie behind it."""


class RangeToMeasure(NamedTuple):
    """A range of a queue whose length in bytes is wanted."""

    queue: MessageQueue
    begin: int
    """The first message; what is not kept any more counts nothing."""

    end: int
    """Offset behind the last message; at most the queue's end."""

    bytes_max: int = 0
    """The range ends with the message that reaches so many bytes; 0 = no limit."""


class MeasuredRange(NamedTuple):
    """End and length of a range."""

    end: int
    """Offset behind the last counted message."""

    bytes: int
    """Length of the records, as they lie in the log."""


def cut_records(records: bytes, record_sizes: bytes, end: int) -> tuple[bytes, bytes]:
    """Return those of records in a queue's order that come before the offset `end`."""
    sizes = read_int32s(record_sizes)
    count, length = len(sizes), len(records)
    while count:
        start = length - int(sizes[count - 1])
        if read_queue_offset(records, start) < end:
            break
        count, length = count - 1, start
    if length == len(records):
        return records, record_sizes
    return records[:length], record_sizes[: count * sizes.itemsize]


def split_schema(data: bytes) -> tuple[bytes, bytes]:
    """Return the schema that an Arrow IPC stream begins with, and what follows it.

    A message is a mark (4 bytes of 0xff), the length of its description as a little-endian int32,
    the description, and a body, which a schema does not have.
    """
    end = 8 + int.from_bytes(data[4:8], "little")
    return data[:end], data[end:]
