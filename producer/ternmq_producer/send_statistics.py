"""Statistics of sends: the counters of a producer, and what applications get of them."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSends:
    """Counters of the sends to one broker since the producer was opened."""

    stored: int
    """Messages that it answered as stored."""

    failures: int
    """Attempts that failed, one for each message and attempt."""

    retries: int
    """Failed attempts that were followed by another one, here or elsewhere."""

    latency_ms: int
    """From the newest answered batch being written to its answer; −1 before the first."""

    isolated_ms: int
    """For how much longer it is avoided; 0 = not. See `latency_fault_tolerance`."""

    is_reachable: bool
    """False when it could not be reached when the client tried it last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendStatistics:
    """Counters of a producer since it was opened."""

    brokers: Mapping[str, BrokerSends]
    """Counters by broker name, sorted."""

    one_way_failures: int
    """One-way messages that were not stored, or whose result is unknown."""

    late_replies: int
    """Replies to requests without a waiting caller."""

    buffered_bytes: int
    """Memory that waiting and unanswered messages take."""


class LinkCounts:
    """The counters of one link. Owned by it."""

    __slots__ = ("failures", "latency_ms", "retries", "stored")

    def __init__(self) -> None:
        self.stored = 0
        self.failures = 0
        self.retries = 0
        self.latency_ms = -1
