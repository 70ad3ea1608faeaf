"""Snapshot of a cluster's queues, as its brokers told them at one moment. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ternmq_model.queue import MessageQueue

if TYPE_CHECKING:
    from ternmq_consumer.offsets.offset_lookup import QueueRange


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The queues that are read, as their brokers told them."""

    ranges: Mapping[MessageQueue, "QueueRange"]
    """Offsets that each queue has. All brokers have answered."""

    missing: frozenset[str] = frozenset()
    """Topics and queues that options name and no broker has."""

    brokers: frozenset[str] = frozenset()
    """Names of all registered brokers, whether they have a topic that is read or not."""

    answered_by_slave: frozenset[str] = frozenset()
    """Brokers of which a slave answered. It may begin later than its master and be behind it: what
    it does not have is no loss."""

    stores: Mapping[str, str] = field(default_factory=dict[str, str])
    """Ids of the stores of these brokers: offsets of another store are other messages'."""

    created: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """Creation of each topic at each of these brokers, as the offset that the log ended with;
    a topic that was deleted and created again has a higher one. By topic and broker. One of
    `answered_by_slave` may tell a lower one than its master."""
