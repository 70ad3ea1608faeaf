"""Families of metrics, and the counts of a histogram. Pure.

A name follows RocketMQ where it has the metric; its Prometheus port appends the unit.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Final

NODE_LABELS: Final = ("cluster", "node_type", "node_id")
"""Labels of every series of a service: its cluster, its role, and its own name."""

FOLDED_LABELS: Final = frozenset({"topic", "consumer_group", "queue_id", "language", "version"})
"""Labels whose values clients choose. Series above the limit share one value of them."""


class MetricKind(StrEnum):
    """Kind of a family, by its name in the text formats."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MetricFamily:
    """Metrics of one name: a series for each combination of label values."""

    name: str
    """Name without the `_total` of a counter and the `_bucket` of a histogram."""

    kind: MetricKind
    help: str
    """Sentence for readers of the text."""

    labels: tuple[str, ...] = ()
    """Names of the labels behind `NODE_LABELS`."""

    bounds: tuple[float, ...] = ()
    """Upper bounds of the buckets of a histogram, without infinity."""

    is_extreme: bool = False
    """True when the largest value stands for several series, and not the sum."""

    @property
    def sample_name(self) -> str:
        """Name of its samples; those of a histogram append a part to it."""
        return f"{self.name}_total" if self.kind is MetricKind.COUNTER else self.name


class HistogramCounts:
    """Counts of observed values by bucket. One owner.

    Args:
        bounds: Upper bounds of the buckets, ascending, without infinity.
    """

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """Count a value `count` times. A value at a bound belongs to the bucket below it."""
        self._counts[bisect_left(self._bounds, value)] += count
        self._sum += value * count

    def values(self) -> list[float]:
        """Return the number of values at or below each bound and of all, and their sum."""
        return [*accumulate(self._counts), self._sum]
