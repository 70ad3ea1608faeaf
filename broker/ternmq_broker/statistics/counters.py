"""Counters, and the samples of them that rates are made of. Pure.

A counter only rises. Every 10 seconds, 10 minutes and hour a sample of it is kept: what was added
over the last minute, hour or day is its present value less the oldest sample of that span.

Source: RocketMQ `StatsItem`, `MomentStatsItem`.
"""

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple


class SamplingSpan(NamedTuple):
    """Span over which a rate is taken."""

    period_ms: int
    """Between two samples."""

    samples: int
    """That are kept: the oldest is this many periods old, less one."""


MINUTE: Final = SamplingSpan(10_000, 7)
HOUR: Final = SamplingSpan(600_000, 7)
DAY: Final = SamplingSpan(3_600_000, 25)
SPANS: Final = (MINUTE, HOUR, DAY)


class CounterValues(NamedTuple):
    """Values of a counter at one time."""

    messages: int = 0
    bytes: int = 0
    calls: int = 0
    ms: int = 0
    disk_messages: int = 0
    disk_bytes: int = 0

    def plus(self, other: "CounterValues") -> "CounterValues":
        """Return both together."""
        return CounterValues(*(mine + its for mine, its in zip(self, other, strict=True)))

    def less(self, earlier: Sequence[int]) -> "CounterValues":
        """Return what was added since."""
        return CounterValues(
            *(present - before for present, before in zip(self, earlier, strict=True))
        )


class CounterIncrease(NamedTuple):
    """Values that were added to a counter over one span."""

    ms: int
    """The span as it was measured: less than wanted while the broker is young."""

    sums: CounterValues


_ROW: Final = 1 + len(CounterValues._fields)


class Counter:
    """Messages of one queue, or of one group in it, that were put or got. One owner.

    Attributes:
        messages: So many.
        bytes: Their records' length.
        calls: Batches or reads.
        ms: How long all of them took.
        disk_messages: Of the messages, those read from the disk.
        disk_bytes: Their length.
        behind_bytes: From the last message read to the end of the log; the last one counts.
        behind_ms: How long that message had lain there.
        is_system: The topic is the broker's own.
    """

    __slots__ = (
        "_samples",
        "behind_bytes",
        "behind_ms",
        "bytes",
        "calls",
        "disk_bytes",
        "disk_messages",
        "is_system",
        "messages",
        "ms",
    )

    def __init__(self, *, is_system: bool = False) -> None:
        self.messages = 0
        self.bytes = 0
        self.calls = 0
        self.ms = 0
        self.disk_messages = 0
        self.disk_bytes = 0
        self.behind_bytes = 0
        self.behind_ms = 0
        self.is_system = is_system
        self._samples = tuple(array("q") for _ in SPANS)

    @property
    def sums(self) -> CounterValues:
        """Values of the counters that only rise."""
        return CounterValues(
            self.messages, self.bytes, self.calls, self.ms, self.disk_messages, self.disk_bytes
        )

    def sample(self, place: int, *, now_ms: int) -> None:
        """Store a sample of the counter.

        Args:
            place: Index of the span in `SPANS`.
            now_ms: On the monotonic clock.
        """
        kept, span = self._samples[place], SPANS[place]
        if len(kept) >= span.samples * _ROW:
            del kept[:_ROW]
        kept.extend((now_ms, *self.sums))

    def added(self, place: int, *, now_ms: int, begun_at_ms: int) -> CounterIncrease:
        """Return what was added over a span.

        Args:
            place: Index of the span in `SPANS`.
            now_ms: On the monotonic clock.
            begun_at_ms: When the span begins for a counter that is younger.
        """
        kept = self._samples[place]
        if len(kept) < SPANS[place].samples * _ROW:
            return CounterIncrease(now_ms - begun_at_ms, self.sums)
        return CounterIncrease(now_ms - kept[0], self.sums.less(kept[1:_ROW]))
