"""Descriptions of topics and groups, merged from the answers of a cluster's brokers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from ternmq_model.errors import TernError, Unreachable
from ternmq_model.group_settings import GroupSettings
from ternmq_model.queue import MessageQueue
from ternmq_model.route import TopicConfig

T = TypeVar("T")

_NAMED_MAX: Final = 8

NEVER_CONSUMED: Final = -1
"""Committed offset of a queue that a group never consumed."""


@dataclass(frozen=True, slots=True)
class UnreachableBroker:
    """Broker that gave no answer, so that a result lacks its part."""

    broker_name: str
    """Name of the broker."""

    addresses: tuple[str, ...]
    """Registered addresses of its members, the master's first; empty for a broker that stopped."""

    reason: str
    """Text of the last error."""

    def __str__(self) -> str:
        addresses = f" ({', '.join(self.addresses)})" if self.addresses else ""
        return f"broker {self.broker_name}{addresses}: {self.reason}"


class BrokerList(list[T]):
    """Items of a cluster's brokers, with the brokers that gave no answer in `unreachable`.

    Args:
        found: Items of the brokers that answered.
        unreachable: Brokers that gave no answer.
    """

    def __init__(
        self, found: Iterable[T] = (), unreachable: Iterable[UnreachableBroker] = ()
    ) -> None:
        super().__init__(found)
        self.unreachable = tuple(unreachable)


class BrokersUnreachable(Unreachable):
    """Missing answers of brokers where a complete result is needed. The text names eight at most.

    Attributes:
        brokers: Brokers that gave no answer.
    """

    def __init__(self, brokers: Sequence[UnreachableBroker]) -> None:
        more = len(brokers) - _NAMED_MAX
        named = "; ".join(map(str, brokers[:_NAMED_MAX]))
        super().__init__(f"{named}; and {more} more" if more > 0 else named)
        self.brokers = tuple(brokers)


def require_all(unreachable: Iterable[UnreachableBroker]) -> None:
    """Refuse a partial result where a complete one is needed.

    Raises:
        BrokersUnreachable: A broker gave no answer.
    """
    if brokers := tuple(unreachable):
        raise BrokersUnreachable(brokers)


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """Offsets of one queue: its messages have `min_offset` up to, without, `max_offset`."""

    queue: MessageQueue
    """Queue of the topic."""

    min_offset: int
    """Offset of the oldest message."""

    max_offset: int
    """Offset that the next message will have."""

    last_stored_at_ms: int
    """Store time of the newest message, Unix milliseconds; 0 = the queue is empty."""


@dataclass(frozen=True, slots=True)
class TopicCreatedAt:
    """Creation of a topic on one broker."""

    broker_name: str
    """Name of the broker."""

    log_offset: int | None
    """End of the broker's log at the creation, which is higher after the topic was deleted and
    created again. 0 = the topic is the broker's own, or was created by RocketMQ or an older broker;
    None = the broker's version does not return it."""

    at_ms: int
    """Time of the creation, Unix milliseconds; 0 = not known."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """Settings and queues of one topic on all its brokers."""

    topic: str
    """Name of the topic."""

    configs: tuple[tuple[str, TopicConfig], ...]
    """Broker names and the topic's settings there, sorted by broker name."""

    queues: tuple[QueueStatus, ...]
    """Queues of all brokers, sorted."""

    unreachable: tuple[UnreachableBroker, ...] = ()
    """Brokers that gave no answer: they may have the topic, too."""

    created: tuple[TopicCreatedAt, ...] = ()
    """Creations, sorted by broker name."""


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """Outcome of the creation of one topic."""

    topic: str
    """Name of the topic."""

    brokers: tuple[str, ...]
    """Names of the brokers that have the topic with its new settings, sorted."""

    errors: Mapping[str, TernError]
    """Errors by the names of the other brokers; empty = every broker has the topic."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One live member of a consumer group."""

    client_id: str
    """`host@instance` of the client."""

    address: str
    """`HOST:PORT` of the client as its broker sees it."""

    subscriptions: tuple[tuple[str, str], ...]
    """Topics and filter expressions."""

    connected_at_ms: int
    """Start of the client's session, Unix milliseconds."""

    sql_topics: frozenset[str] = frozenset()
    """Topics whose expressions are SQL92 conditions; the others are tags."""

    is_broadcasting: bool = False
    """True for a member that gets all messages and keeps its offsets itself."""


@dataclass(frozen=True, slots=True)
class ProducerMember:
    """One live member of a producer group."""

    group: str
    """Name of the producer group."""

    client_id: str
    """`host@instance` of the client."""

    address: str
    """`HOST:PORT` of the client as its broker sees it."""

    connected_at_ms: int
    """Start of the client's session, Unix milliseconds."""


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """Progress of a consumer group in one queue."""

    queue: MessageQueue
    """Queue of a topic."""

    committed_offset: int
    """Offset of the next message to consume; `NEVER_CONSUMED` = none was committed."""

    min_offset: int
    """Offset of the oldest message."""

    max_offset: int
    """Offset that the next message will have."""

    version: int = 0
    """Number of resets and seeks of the offset."""

    consumed_stored_at_ms: int = 0
    """Store time of the message consumed last, Unix milliseconds; 0 = none, or deleted."""

    lag_ms: int = 0
    """Age of the next message in the queue, ms; 0 = no message waits."""

    @property
    def lag(self) -> int:
        """Number of messages that wait for the group."""
        return self.max_offset - max(self.committed_offset, self.min_offset)


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """Change of a group's offset in one queue."""

    queue: MessageQueue
    """Queue of a topic."""

    before: int
    """Offset before the change; `NEVER_CONSUMED` = none was committed."""

    after: int
    """Offset after the change."""


@dataclass(frozen=True, slots=True)
class ResetOutcome:
    """Outcome of a reset of offsets, or of its dry run."""

    changes: tuple[OffsetChange, ...]
    """Changes, sorted by queue."""

    members_told: int
    """Number of members that were notified, each counted once for every broker."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """Members, progress and settings of one consumer group on all brokers."""

    group: str
    """Name of the group."""

    members: tuple[GroupMember, ...]
    """Live members, sorted by client id, each once."""

    progress: tuple[QueueProgress, ...]
    """Progress in each queue, sorted by queue."""

    settings: tuple[tuple[str, GroupSettings], ...] = ()
    """Broker names and the group's settings there, sorted by broker name."""

    unreachable: tuple[UnreachableBroker, ...] = ()
    """Brokers that gave no answer: they may know the group, too."""

    differences: tuple[str, ...] = ()
    """Differences between the members' subscriptions as text: message model, and topics with their
    expressions. Empty = the members subscribe alike, as they must."""
