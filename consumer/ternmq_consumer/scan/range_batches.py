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
    """Options of a scan: filter, columns, limits of batches, and timeout."""

    subscription: Subscription | None = None
    """Filter by tags or a condition; None = all messages."""

    stored_from_ms: int = 0
    """Least store time, Unix milliseconds; 0 = any."""

    stored_before_ms: int = 0
    """Store time before which messages count, Unix milliseconds; 0 = any."""

    keys: tuple[str, ...] = ()
    """Keys of which a message must have one; empty = any message."""

    columns: tuple[str, ...] = ()
    """Columns, in this order; empty = all (docs/reference/spark.md)."""

    batch_rows_max: int = 0
    """Most rows of one batch; 0 = 10,000, which is also the limit."""

    batch_bytes_max: int = 0
    """Bytes at which a batch ends, behind the message that reaches them; 0 = 8 MiB, the limit."""

    skips_damaged: bool = False
    """True = damaged messages are skipped and counted; else the first one is an error."""

    created_log_offset: int | None = None
    """Log offset of the topic's creation, by `DescribeTopic`: a topic that was created again since
    counts as deleted. None = any. Brokers of earlier versions ignore it."""

    retry_timeout_s: float = RETRY_TIMEOUT_S
    """Time without progress, while the broker is away, after which reading fails, s. The log and
    errors name it as Spark's option does, `retryTimeout`."""


class ScannedBatch(NamedTuple):
    """One complete record batch of a range, or only the progress of the scan."""

    schema: bytes
    """Arrow IPC message of the schema, equal for all batches. Empty before the first batch."""

    data: bytes
    """Arrow IPC message of the record batch; empty = there are no rows."""

    next_offset: int
    """Offset before which all matching messages are in this batch or an earlier one."""

    damaged: int
    """Count of damaged messages of the range that were skipped so far."""


class PulledBatch(NamedTuple):
    """Batch of records of a range."""

    records: bytes
    """Records of the range as they lie on disk, back to back."""

    record_sizes: bytes
    """Lengths of the records, each a little-endian int32."""

    next_offset: int
    """Offset before which all messages were inspected."""

    damaged: int
    """Count of damaged messages of the range that were skipped so far. With a filter, some of them
    may lie behind the range."""


class RangeToMeasure(NamedTuple):
    """Range of a queue to measure in bytes."""

    queue: MessageQueue
    begin: int
    """Offset of the first message; deleted messages count nothing."""

    end: int
    """Offset behind the last message; at most the queue's end."""

    bytes_max: int = 0
    """Bytes at which the range ends, with the message that reaches them; 0 = no limit."""


class MeasuredRange(NamedTuple):
    """End and length of a range."""

    end: int
    """Offset behind the last counted message."""

    bytes: int
    """Length of the records in the log."""


def cut_records(records: bytes, record_sizes: bytes, end: int) -> tuple[bytes, bytes]:
    """Return the records, in the order of their queue, before the offset `end`."""
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
    """Return the schema at the start of an Arrow IPC stream, and the bytes behind it.

    A message has a mark (4 bytes of 0xff), the length of its metadata as a little-endian int32, the
    metadata, and a body, which a schema lacks.
    """
    end = 8 + int.from_bytes(data[4:8], "little")
    return data[:end], data[end:]
