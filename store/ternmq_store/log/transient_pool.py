"""Batches that wait in memory for a write to the log's files: appends without a page fault.

Another thread writes all waiting batches, whose bytes are limited, at once. Before that, a batch is
not acknowledged, dispatched or read.

Source: RocketMQ `TransientStorePool`, `CommitRealTimeService`.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from ternmq_model.errors import BrokerBusy
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode
from ternmq_store.disk.file_content import write_records
from ternmq_store.disk.filesystem import File


class BusyReason(enum.Enum):
    """Reason why an append was refused as busy."""

    FILE = enum.auto()
    """The log's next file is not ready."""

    COMMIT = enum.auto()
    """The pool is full until its next commit."""

    NOTHING = enum.auto()
    """The pool is full, and the send fails at once."""


@dataclass(slots=True)
class PoolWrite:
    """Consecutive bytes of one file. Owned by the pool until a task has it."""

    file: File
    position: int
    parts: list[bytes | memoryview]
    length: int = field(init=False)

    def __post_init__(self) -> None:
        self.length = sum(map(len, self.parts))

    def is_followed_by(self, other: "PoolWrite") -> bool:
        """Return whether `other` begins where this write ends."""
        return self.file is other.file and self.position + self.length == other.position


@dataclass(frozen=True, slots=True)
class CommitTask:
    """Task of writing the waiting batches to the log's files, in a blocking thread."""

    writes: Sequence[PoolWrite]
    start: PhysicalOffset
    end: PhysicalOffset
    """Log offset below which all bytes are in the files when `run` has returned."""

    stored_at_ms: int
    """Store time of the newest record."""

    def run(self) -> None:
        """Write all batches so that a process killed meanwhile leaves no record.

        A scan meets the first file first: it is written last, and in each file the first 8 bytes.

        Raises:
            OSError: The content of the files is unknown from now on.
        """
        for write in reversed(self.writes):
            write_records(write.file, write.position, b"".join(write.parts))


class TransientPool:
    """Pool of batches that are not yet in the log's files.

    Owned by `CommitLog`, on the store's thread. One task may be under way; its bytes stay in the
    pool until it is done, and for good if it failed.

    Args:
        bytes_max: Limit of waiting bytes. A larger batch enters an empty pool.
        fails_fast: True = senders do not retry a batch that the full pool refuses.

    Attributes:
        busy_reason: Reason of the last refusal.
        stored_at_ms: Store time of the newest record that is in the files; 0 before the first.
    """

    def __init__(self, bytes_max: int, *, fails_fast: bool = False) -> None:
        self._bytes_max = bytes_max
        self._fails_fast = fails_fast
        self.busy_reason = BusyReason.FILE
        self._waiting: list[PoolWrite] = []
        self._start = PhysicalOffset(0)
        self._end = PhysicalOffset(0)
        self._committing: CommitTask | None = None
        self._bytes = 0
        self._newest_at_ms = 0
        self.stored_at_ms = 0

    @property
    def bytes(self) -> int:
        """Count of bytes that wait or are being written."""
        return self._bytes

    @property
    def is_idle(self) -> bool:
        """True while no task is under way."""
        return self._committing is None

    def check_space(self, length: int) -> None:
        """Refuse a batch of `length` bytes when the pool is full.

        Raises:
            BrokerBusy: Try again when a task is done.
        """
        self.busy_reason = BusyReason.FILE
        if self._bytes and self._bytes + length > self._bytes_max:
            self.busy_reason = BusyReason.NOTHING if self._fails_fast else BusyReason.COMMIT
            raise BrokerBusy(
                ResponseCode.SYSTEM_BUSY, f"{self._bytes} bytes wait to be written to the log"
            )

    def committed(self, end: PhysicalOffset) -> PhysicalOffset:
        """Return the log offset up to which a log that ends at `end` is in its files."""
        if self._committing is not None:
            return self._committing.start
        return self._start if self._waiting else end

    def put(
        self,
        writes: Sequence[PoolWrite],
        start: PhysicalOffset,
        end: PhysicalOffset,
        *,
        stored_at_ms: int,
    ) -> None:
        """Add the writes of the log from `start` to `end`."""
        self._newest_at_ms = stored_at_ms
        if not self._waiting:
            self._start = start
        self._end = end
        for write in writes:
            self._bytes += write.length
            last = self._waiting[-1] if self._waiting else None
            if last is None or not last.is_followed_by(write):
                self._waiting.append(write)
            else:
                last.parts += write.parts
                last.length += write.length

    def commit_due(self) -> CommitTask | None:
        """Return the task of writing all waiting batches; None = none waits or a task runs."""
        if self._committing is not None or not self._waiting:
            return None
        self._committing = CommitTask(
            tuple(self._waiting), self._start, self._end, self._newest_at_ms
        )
        self._waiting = []
        return self._committing

    def commit_done(self, task: CommitTask) -> None:
        """Record that `task` has run and all its bytes are in the files."""
        self._committing = None
        self.stored_at_ms = task.stored_at_ms
        self._bytes -= sum(write.length for write in task.writes)
