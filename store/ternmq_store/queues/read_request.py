"""A read of a consume queue: its request, limits, status and result. Pure.

Reads, statistics and the broker share these values.

Source: RocketMQ `GetMessageResult`, `GetMessageStatus`.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model.offsets import QueueOffset
from ternmq_store.queues.ext_units import BitMapFilter

RecordFilter = Callable[[bytes], bool]
"""Predicate on a record's encoded properties. It may run in any thread."""


FILTER_UNITS_MAX: Final = 800
"""Messages that a read with a filter inspects, unless it may return more."""


def _no_sizes() -> NDArray[np.int32]:
    return np.zeros(0, dtype=np.int32)


class ReadStatus(enum.Enum):
    """Outcome of a read; RocketMQ's names and order."""

    FOUND = enum.auto()
    NO_MATCHED_MESSAGE = enum.auto()
    MESSAGE_WAS_REMOVING = enum.auto()
    OFFSET_FOUND_NULL = enum.auto()
    OFFSET_OVERFLOW_BADLY = enum.auto()
    OFFSET_OVERFLOW_ONE = enum.auto()
    OFFSET_TOO_SMALL = enum.auto()
    NO_MATCHED_LOGIC_QUEUE = enum.auto()
    NO_MESSAGE_IN_QUEUE = enum.auto()


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Result of a read.

    Attributes:
        status: Outcome of the read.
        next_offset: Queue offset at which the next read should begin.
        min_offset: Queue offset of the first message.
        max_offset: Queue offset behind the last message.
        pieces: Records of the messages as they lie in the log. Some are slices of the map: the
            caller copies them before its next call of the store.
        record_sizes: Lengths of the records.
        scanned: Count of inspected messages, with the returned ones.
        skipped: Count of inspected messages that are damaged, or whose units are.
        behind_bytes: Distance of the last inspected message from the end of the log.
        suggest_pull_from_slave: True if that distance is greater than the share of memory for the
            log, so that a slave, if there is one, should serve this reader.
    """

    status: ReadStatus
    next_offset: QueueOffset
    min_offset: QueueOffset
    max_offset: QueueOffset
    pieces: Sequence[bytes | memoryview] = ()
    record_sizes: NDArray[np.int32] = field(default_factory=_no_sizes)
    scanned: int = 0
    skipped: int = 0
    behind_bytes: int = 0
    suggest_pull_from_slave: bool = False

    @property
    def records(self) -> bytes:
        """The records back to back, copied."""
        return b"".join(self.pieces)

    @property
    def record_bytes(self) -> int:
        """Length of all records."""
        sizes = self.record_sizes
        return sizes.item() if len(sizes) == 1 else int(sizes.sum())


class ReadLimits(NamedTuple):
    """Limits of one read. The first message may be longer than `bytes_max`."""

    messages_max: int
    bytes_max: int

    def within(self, messages_max: int, bytes_max: int) -> "ReadLimits":
        """Return the lower of these and the given limits."""
        return ReadLimits(min(self.messages_max, messages_max), min(self.bytes_max, bytes_max))


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadRequest:
    """A read of one queue.

    Attributes:
        topic: Topic of the queue.
        queue_id: Number of the queue.
        offset: Number of the first message to read.
        hot: Limits of a read from memory.
        cold: Limits of a read from the disk.
        tag_codes: Only messages with one of these codes; None for all.
        record_filter: Condition on each message with such a code.
        record_filter_max: Most messages to which one read applies `record_filter`.
        bit_map_filter: Condition on bit maps beside the units, before a record is read.
        group: Name of the reading group; empty = no group.
    """

    topic: str
    queue_id: int
    offset: QueueOffset
    hot: ReadLimits
    cold: ReadLimits
    tag_codes: frozenset[int] | None = None
    record_filter: RecordFilter | None = None
    record_filter_max: int = FILTER_UNITS_MAX
    bit_map_filter: BitMapFilter | None = None
    group: str = ""

    @property
    def has_filter(self) -> bool:
        """True if a read may skip messages."""
        return self.tag_codes is not None or self.record_filter is not None

    def units_max(self, limits: ReadLimits) -> int:
        """Return the most messages that one read inspects."""
        if self.record_filter is not None:
            return self.record_filter_max
        most = limits.messages_max
        return max(FILTER_UNITS_MAX, most) if self.has_filter else most
