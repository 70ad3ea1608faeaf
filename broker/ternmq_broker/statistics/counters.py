"""Counters, and their samples, from which rates are computed. Pure.

A counter only rises. Samples are stored every 10 seconds, 10 minutes and hour: the increase over
the last minute, hour or day is the present value less the oldest sample of that span.

Source: RocketMQ `StatsItem`, `MomentStatsItem`.
"""

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple


class SamplingSpan(NamedTuple):
    """Span over which a rate is taken."""

    period_ms: int
    """Time between two samples."""

    samples: int
    """Number of stored samples: the oldest is this many periods old, less one."""


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
        """Return the sums of both."""
        return CounterValues(*(mine + its for mine, its in zip(self, other, strict=True)))

    def less(self, earlier: Sequence[int]) -> "CounterValues":
        """Return the increase since earlier values."""
        return CounterValues(
            *(present - before for present, before in zip(self, earlier, strict=True))
        )


class CounterIncrease(NamedTuple):
    """Values that were added to a counter over one span."""

    ms: int
    """Measured length of the span, shorter for a young broker."""

    sums: CounterValues


_ROW: Final = 1 + len(CounterValues._fields)


class Counter:
    """Messages of one queue, or of one group in it, that were put or got. One owner.

    Attributes:
        messages: Number of messages.
        bytes: Bytes of their records.
        calls: Number of batches or reads.
        ms: Duration of all calls.
        disk_messages: Messages that were read from the disk.
        disk_bytes: Bytes of these messages.
        behind_bytes: Distance of the last read message from the end of the log.
        behind_ms: Age of that message at its read.
        next_offset: Offset behind that message, if a group read it.
        is_system: True when the topic belongs to the broker.
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
        "next_offset",
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
        self.next_offset = 0
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
            now_ms: Monotonic clock.
        """
        kept, span = self._samples[place], SPANS[place]
        if len(kept) >= span.samples * _ROW:
            del kept[:_ROW]
        kept.extend((now_ms, *self.sums))

    def added(self, place: int, *, now_ms: int, begun_at_ms: int) -> CounterIncrease:
        """Return the increase over a span.

        Args:
            place: Index of the span in `SPANS`.
            now_ms: Monotonic clock.
            begun_at_ms: Begin of the span for a younger counter.
        """
        kept = self._samples[place]
        if len(kept) < SPANS[place].samples * _ROW:
            return CounterIncrease(now_ms - begun_at_ms, self.sums)
        return CounterIncrease(now_ms - kept[0], self.sums.less(kept[1:_ROW]))
