"""Pauses of an event loop: how late it runs what is due."""

from typing import Final

from ternmq_runtime.metrics.families import HistogramCounts, MetricFamily, MetricKind
from ternmq_runtime.timers import Timers

LOOP_PAUSE: Final = MetricFamily(
    name="ternmq_loop_pause_seconds",
    kind=MetricKind.HISTOGRAM,
    help="Time by which the event loop ran a timer late, ten times a second.",
    bounds=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0),
)

_INTERVAL_S: Final = 0.1


class LoopPause:
    """Measures the pauses of the running loop until it is stopped. Owned by that loop."""

    def __init__(self, timers: Timers) -> None:
        self.counts: Final = HistogramCounts(LOOP_PAUSE.bounds)
        self._timers = timers
        self._plan()

    def stop(self) -> None:
        """End measuring."""
        self._next.cancel()

    def _plan(self) -> None:
        self._due_s = self._timers.now_s() + _INTERVAL_S
        self._next = self._timers.call_at(self._due_s, self._measure)

    def _measure(self) -> None:
        self.counts.observe(max(0.0, self._timers.now_s() - self._due_s))
        self._plan()
