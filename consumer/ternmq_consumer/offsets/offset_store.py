"""The seam between queues that a consumer owns and the store of their offsets."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue


class QueriedOffset(NamedTuple):
    """Answer of an offset store to a query of one queue."""

    offset: QueueOffset
    is_kept: bool | None
    """The group has committed it; else it is where the broker has a new group begin. None = a
    broker of an earlier version does not tell."""


class OffsetStore(Protocol):
    """Offsets of the queues that a consumer owns: `RemoteOffsetStore`, or `LocalOffsetStore`."""

    async def query(self, queue: MessageQueue) -> QueriedOffset | None:
        """Return how far the group is in `queue`, or is to begin; None = the consumer decides.

        Raises:
            TransportError: Who keeps it did not answer.
            RefusedError: It said no.
        """
        ...

    def epoch(self, queue: MessageQueue) -> int | None:
        """Return the epoch of the broker that the offset of `queue` was noted in; 0 = not known.

        None = the broker keeps the offset itself, so that it is of the present one.
        """
        ...

    def begin(
        self, queue: MessageQueue, offset: QueueOffset, committed: QueueOffset | None
    ) -> None:
        """Add `queue`: consuming begins at `offset`, and `committed` is stored."""
        ...

    def has_begun(self, queue: MessageQueue) -> bool:
        """Return whether an offset of `queue` is kept, so that no later start can pass it over."""
        ...

    def update(self, queue: MessageQueue, offset: QueueOffset) -> None:
        """Record that everything below `offset` is finished. A lower offset is ignored."""
        ...

    def restart(self, queue: MessageQueue, offset: QueueOffset) -> None:
        """Record that the queue continues at `offset`, even if that is lower than before."""
        ...

    def reset(self, queue: MessageQueue, offset: QueueOffset, version: int) -> bool:
        """Apply an offset of `queue` that another client set; return whether that is new."""
        ...

    def forget(self, queues: Iterable[MessageQueue]) -> None:
        """Remove these queues, committed or not."""
        ...

    def gone(self, queue: MessageQueue) -> None:
        """Forget a queue that its broker has no more: a later one of its name is another."""
        ...

    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> bool:
        """Make what was noted last; return whether all of it does. None = every queue."""
        ...
