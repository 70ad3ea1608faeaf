"""What brokers say of topics and groups, put together over a cluster."""

from dataclasses import dataclass
from typing import Final

from ternmq_model.queue import MessageQueue
from ternmq_model.route import TopicConfig

NEVER_CONSUMED: Final = -1
"""The committed offset of a queue that a group never consumed."""


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """What one queue holds: messages from `min_offset` up to, without, `max_offset`."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_stored_at_ms: int
    """Store time of the newest message; 0 = none."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic over all its brokers."""

    topic: str
    configs: tuple[tuple[str, TopicConfig], ...]
    """Broker name and what it knows, sorted by broker name."""

    queues: tuple[QueueStatus, ...]
    """Sorted by queue."""


@dataclass(frozen=True, slots=True)
class Member:
    """One live member of a group."""

    client_id: str
    address: str
    subscriptions: tuple[tuple[str, str], ...]
    """Topic and expression."""

    connected_at_ms: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a group is in one queue."""

    queue: MessageQueue
    committed_offset: int
    """The next offset to consume; `NEVER_CONSUMED` = none was committed."""

    min_offset: int
    max_offset: int

    @property
    def lag(self) -> int:
        """Messages that wait for the group."""
        return self.max_offset - max(self.committed_offset, self.min_offset)


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group over all brokers."""

    group: str
    members: tuple[Member, ...]
    """Sorted by client id, each once."""

    progress: tuple[Progress, ...]
    """Sorted by queue."""
