"""Batches that wait in memory to be written to the log's files: appends without a page fault.

What waits is bounded. It is written by another thread, all that waits at once, and only then does
it count: nobody is answered, nothing is dispatched or read before.

Source: RocketMQ `TransientStorePool`, `CommitRealTimeService`.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from ternmq_model.errors import BrokerBusy
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode
from ternmq_store.disk.filesystem import File

_HEAD_BYTES = 8
"""Total size and magic of a record. Without them there is nothing for a scan to find."""


class BusyReason(enum.Enum):
    """Lack of an append that was refused as busy."""

    FILE = enum.auto()
    """The log's next file."""

    COMMIT = enum.auto()
    """That some of what waits in the pool is written."""

    NOTHING = enum.auto()
    """The sender is to hear of it at once."""


@dataclass(slots=True)
class PoolWrite:
    """Bytes that follow each other in one file. Owned by the pool until a task has it."""

    file: File
    position: int
    parts: list[bytes | memoryview]
    length: int = field(init=False)

    def __post_init__(self) -> None:
        self.length = sum(map(len, self.parts))

    def is_followed_by(self, other: "PoolWrite") -> bool:
        """Tell whether `other` goes where this one ends."""
        return self.file is other.file and self.position + self.length == other.position


@dataclass(frozen=True, slots=True)
class CommitTask:
    """Write what waits to the log's files: for a blocking thread."""

    writes: Sequence[PoolWrite]
    start: PhysicalOffset
    end: PhysicalOffset
    """Everything before it is in the files when `run` has returned."""

    stored_at_ms: int
    """Store time of the newest record."""

    def run(self) -> None:
        """Write, so that a process that is killed in between has written nothing.

        A scan from the front meets the first file first, so that one is written last, and of each
        file its first 8 bytes.

        Raises:
            OSError: Nobody knows any more what is in the files.
        """
        for write in reversed(self.writes):
            data = memoryview(b"".join(write.parts))
            if len(data) > _HEAD_BYTES:
                write.file.write(write.position + _HEAD_BYTES, data[_HEAD_BYTES:])
            write.file.write(write.position, data[:_HEAD_BYTES])


class TransientPool:
    """Pool of batches that are not yet in the log's files.

    Owned by `CommitLog`, on the store's thread. One task may be under way; what it writes stays in
    the pool until it is done, and for good when it failed.

    Args:
        bytes_max: How much may wait. A larger batch is taken when nothing else waits.
        fails_fast: A batch for which there is no room is not to be tried again.

    Attributes:
        busy_reason: Lack of the batch that was refused last.
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
        """Bytes that wait or are being written."""
        return self._bytes

    @property
    def is_idle(self) -> bool:
        """No task is under way."""
        return self._committing is None

    def check_room(self, length: int) -> None:
        """Refuse a batch of `length` bytes when too much waits.

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
        """Return up to where the log, which ends at `end`, is in its files."""
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
        """Let the log from `start` to `end`, behind all that waits, be written as `writes` say."""
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
        """Return the task of writing everything that waits, if anything does."""
        if self._committing is not None or not self._waiting:
            return None
        self._committing = CommitTask(
            tuple(self._waiting), self._start, self._end, self._newest_at_ms
        )
        self._waiting = []
        return self._committing

    def commit_done(self, task: CommitTask) -> None:
        """Take note that `task` has run and all of it is in the files."""
        self._committing = None
        self.stored_at_ms = task.stored_at_ms
        self._bytes -= sum(write.length for write in task.writes)
