"""Snapshot of a cluster's queues at one moment. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ternmq_model.queue import MessageQueue

if TYPE_CHECKING:
    from ternmq_consumer.offsets.offset_lookup import QueueRange


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Queues of a read, by the answers of their brokers."""

    ranges: Mapping[MessageQueue, "QueueRange"]
    """Offsets of each queue. All brokers have answered."""

    missing: frozenset[str] = frozenset()
    """Topics and queues that options name and that no broker has."""

    brokers: frozenset[str] = frozenset()
    """Names of all registered brokers, with or without topics of the read."""

    answered_by_slave: frozenset[str] = frozenset()
    """Brokers for which a slave answered. A slave may begin later than its master and lag behind:
    messages that it lacks are no loss."""

    stores: Mapping[str, str] = field(default_factory=dict[str, str])
    """Id of each broker's store. Equal offsets of two stores are different messages."""

    created: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """Creation of each topic, by topic and broker: the end of the broker's log at that moment. A
    topic that was deleted and created again has a higher one. A slave may have a lower one than
    its master."""
