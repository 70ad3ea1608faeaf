"""Tolerance of latency faults: slow brokers are avoided for a time that follows from their latency.

Pure. Source: RocketMQ `MQFaultStrategy`, `LatencyFaultToleranceImpl`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple


class FaultRule(NamedTuple):
    """Isolations by latency in one version of RocketMQ."""

    latencies_ms: tuple[int, ...]
    """Limits of latency, ascending. The highest limit that a latency reaches counts."""

    isolations_ms: tuple[int, ...]
    """Isolation of each limit."""

    failure_latency_ms: int
    """Assumed latency of a failure."""

    def isolation_ms(self, latency_ms: int) -> int:
        """Return the isolation of a broker with a latency, ms; 0 = none."""
        for limit_ms, isolation_ms in zip(
            reversed(self.latencies_ms), reversed(self.isolations_ms), strict=True
        ):
            if latency_ms >= limit_ms:
                return isolation_ms
        return 0


FAULT_RULES: Final = {
    4: FaultRule(
        (50, 100, 550, 1000, 2000, 3000, 15_000),
        (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000),
        30_000,
    ),
    5: FaultRule(
        (50, 100, 550, 1800, 3000, 5000, 15_000),
        (0, 0, 2000, 5000, 6000, 10_000, 30_000),
        10_000,
    ),
}
"""Rules by RocketMQ's major version."""


@dataclass(slots=True)
class FaultItem:
    """Latency and isolation of one broker."""

    latency_ms: int
    """Latency of the newest answer, or the assumed latency of the newest failure."""

    until_ms: int
    """End of the time in which the broker is avoided."""


class LatencyFaultTolerance:
    """Latencies and isolations of brokers. Owned by one producer. Times are monotonic.

    Args:
        rule: One of `FAULT_RULES`.
    """

    def __init__(self, rule: FaultRule) -> None:
        self._rule = rule
        self._faults: dict[str, FaultItem] = {}
        self._turn = 0

    def answered(self, broker_name: str, latency_ms: int, *, now_ms: int) -> int:
        """Record an answer, and return the isolation of the broker, ms; 0 = none."""
        isolation_ms = self._rule.isolation_ms(latency_ms)
        self._faults[broker_name] = FaultItem(latency_ms, now_ms + isolation_ms)
        return isolation_ms

    def failed(self, broker_name: str, *, now_ms: int) -> int:
        """Record a failure, and return the isolation of the broker, ms."""
        return self.answered(broker_name, self._rule.failure_latency_ms, now_ms=now_ms)

    def isolated_ms(self, broker_name: str, *, now_ms: int) -> int:
        """Return the rest of the isolation of the broker, ms; 0 = available."""
        fault = self._faults.get(broker_name)
        return 0 if fault is None else max(0, fault.until_ms - now_ms)

    def pick_one_at_least(self, broker_names: Iterable[str], *, now_ms: int) -> str:
        """Return the broker to use when all are avoided: in turn, one of the better half.

        Args:
            broker_names: Names, at least one.
            now_ms: Monotonic time.

        Source:
            RocketMQ `LatencyFaultToleranceImpl.pickOneAtLeast`.
        """

        def rank(name: str) -> tuple[bool, int, int, str]:
            fault = self._faults.get(name, FaultItem(0, 0))
            return now_ms < fault.until_ms, fault.latency_ms, fault.until_ms, name

        ranked = sorted(set(broker_names), key=rank)
        self._turn += 1
        return ranked[self._turn % max(1, len(ranked) // 2)]
