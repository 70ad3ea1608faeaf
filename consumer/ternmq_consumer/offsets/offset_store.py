"""Offset store of a consumer: the seam between owned queues and their offsets."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue


class QueriedOffset(NamedTuple):
    """Answer of an offset store to a query of one queue."""

    offset: QueueOffset
    is_kept: bool | None
    """True = the group has committed the offset; False = it is the broker's start offset of a new
    group; None = unknown, from a broker of an earlier version."""


class OffsetStore(Protocol):
    """Offsets of the queues that a consumer owns: `RemoteOffsetStore`, or `LocalOffsetStore`."""

    async def query(self, queue: MessageQueue) -> QueriedOffset | None:
        """Return the offset or start offset of `queue`; None = the consumer decides the start.

        Raises:
            TransportError: The broker does not answer.
            RefusedError: The broker refuses the request.
        """
        ...

    def epoch(self, queue: MessageQueue) -> int | None:
        """Return the broker's epoch at the time of the offset of `queue`; 0 = unknown.

        None = the broker stores the offset itself, so the offset belongs to the present epoch.
        """
        ...

    def begin(
        self, queue: MessageQueue, offset: QueueOffset, committed: QueueOffset | None
    ) -> None:
        """Add `queue`: consuming begins at `offset`, and `committed` is stored."""
        ...

    def has_begun(self, queue: MessageQueue) -> bool:
        """Return whether an offset of `queue` is stored, so that no later start skips messages."""
        ...

    def update(self, queue: MessageQueue, offset: QueueOffset) -> None:
        """Raise the offset of `queue` to `offset`: all messages below are finished."""
        ...

    def restart(self, queue: MessageQueue, offset: QueueOffset) -> None:
        """Set the offset of `queue`, also to a lower one."""
        ...

    def reset(self, queue: MessageQueue, offset: QueueOffset, version: int) -> bool:
        """Apply a reset of `queue` by another client. Return whether the reset is new."""
        ...

    def forget(self, queues: Iterable[MessageQueue]) -> None:
        """Remove these queues, committed or not."""
        ...

    def gone(self, queue: MessageQueue) -> None:
        """Drop a queue that its broker no longer has. A later queue with its name is new."""
        ...

    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> bool:
        """Make what was noted last; return whether all of it does. None = every queue."""
        ...
