"""Descriptions of topics and groups, put together from the answers of a cluster's brokers."""

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
"""The committed offset of a queue that a group never consumed."""


@dataclass(frozen=True, slots=True)
class UnreachableBroker:
    """A broker that gave no answer, so that a result lacks what the broker has."""

    broker_name: str
    """Name of the broker."""

    addresses: tuple[str, ...]
    """Registered addresses of its members, the master's first; none of a broker that has left."""

    reason: str
    """Text of the last error."""

    def __str__(self) -> str:
        places = f" ({', '.join(self.addresses)})" if self.addresses else ""
        return f"broker {self.broker_name}{places}: {self.reason}"


class BrokerList(list[T]):
    """Items of a cluster's brokers, and the brokers that gave no answer.

    Args:
        found: What brokers that answered have.
        unreachable: Brokers that gave no answer.
    """

    def __init__(
        self, found: Iterable[T] = (), unreachable: Iterable[UnreachableBroker] = ()
    ) -> None:
        super().__init__(found)
        self.unreachable = tuple(unreachable)


class BrokersUnreachable(Unreachable):
    """A whole result is needed, and brokers gave no answer. The text names the first eight.

    Attributes:
        brokers: Each of them.
    """

    def __init__(self, brokers: Sequence[UnreachableBroker]) -> None:
        more = len(brokers) - _NAMED_MAX
        named = "; ".join(map(str, brokers[:_NAMED_MAX]))
        super().__init__(f"{named}; and {more} more" if more > 0 else named)
        self.brokers = tuple(brokers)


def require_all(unreachable: Iterable[UnreachableBroker]) -> None:
    """Refuse a partial result where a whole one is needed.

    Raises:
        BrokersUnreachable: A broker gave no answer.
    """
    if brokers := tuple(unreachable):
        raise BrokersUnreachable(brokers)


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """Offsets of one queue, which holds messages from `min_offset` up to, without, `max_offset`."""

    queue: MessageQueue
    """The queue."""

    min_offset: int
    """Offset of the oldest message."""

    max_offset: int
    """Offset that the next message will have."""

    last_stored_at_ms: int
    """Store time of the newest message; 0 = none."""


@dataclass(frozen=True, slots=True)
class TopicCreatedAt:
    """When a topic was created at one broker name."""

    broker_name: str
    """Name of the broker."""

    log_offset: int | None
    """End of the broker's log then: higher when the topic was deleted and created again. 0 =
    it was created before brokers noted that, by RocketMQ, or is the broker's own; None = the broker
    notes none."""

    at_ms: int
    """Unix milliseconds; 0 = not known."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic over all its brokers."""

    topic: str
    """Its name."""

    configs: tuple[tuple[str, TopicConfig], ...]
    """Broker name and what it knows, sorted by broker name."""

    queues: tuple[QueueStatus, ...]
    """Sorted by queue."""

    unreachable: tuple[UnreachableBroker, ...] = ()
    """Brokers that gave no answer: they may have the topic, too."""

    created: tuple[TopicCreatedAt, ...] = ()
    """Sorted by broker name."""


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """Outcome of the creation of one topic."""

    topic: str
    """Its name."""

    brokers: tuple[str, ...]
    """Names of those that have it as it is to be, sorted."""

    errors: Mapping[str, TernError]
    """Why others have not, by their names. Empty = it is created."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One live member of a group."""

    client_id: str
    """`host@instance` of the client."""

    address: str
    """`HOST:PORT` of the client as its broker sees it."""

    subscriptions: tuple[tuple[str, str], ...]
    """Topic and expression."""

    connected_at_ms: int
    """When its session began, Unix milliseconds."""


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
    """When its session began, Unix milliseconds."""


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """Progress of a group in one queue."""

    queue: MessageQueue
    """The queue."""

    committed_offset: int
    """The next offset to consume; `NEVER_CONSUMED` = none was committed."""

    min_offset: int
    """Offset of the oldest message."""

    max_offset: int
    """Offset that the next message will have."""

    version: int = 0
    """Number of resets and seeks of the offset."""

    consumed_stored_at_ms: int = 0
    """Store time of the message consumed last, Unix milliseconds; 0 = none, or no longer kept."""

    lag_ms: int = 0
    """Age of the next message in the queue; 0 = there is none."""

    @property
    def lag(self) -> int:
        """Messages that wait for the group."""
        return self.max_offset - max(self.committed_offset, self.min_offset)


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """Change of a group's offset in one queue."""

    queue: MessageQueue
    """The queue."""

    before: int
    """`NEVER_CONSUMED` = there was none."""

    after: int
    """The offset now."""


@dataclass(frozen=True, slots=True)
class ResetOutcome:
    """Outcome of a reset, or of a dry run of it."""

    changes: tuple[OffsetChange, ...]
    """Sorted by queue."""

    members_told: int
    """Over all brokers: a member counts once for each."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group over all brokers."""

    group: str
    """Name of the group."""

    members: tuple[GroupMember, ...]
    """Sorted by client id, each once."""

    progress: tuple[QueueProgress, ...]
    """Sorted by queue."""

    settings: tuple[tuple[str, GroupSettings], ...] = ()
    """Broker name and what it keeps, sorted by broker name."""

    unreachable: tuple[UnreachableBroker, ...] = ()
    """Brokers that gave no answer: they may know the group, too."""

    differences: tuple[str, ...] = ()
    """In what the members differ, as text: message model, and topics with what each wants. Empty =
    they subscribe alike, as they must."""
