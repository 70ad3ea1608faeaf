"""Run of a streaming query to its end: progress as it goes, a stop that leaves nothing half."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ternmq_pipeline.jobs.driver.batch_progress import BatchProgress, batch_progress
from ternmq_pipeline.jobs.driver.interruption import interruptions

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

Observe = Callable[[BatchProgress], None]
"""Callback for each completed micro-batch."""

_LOOK_S: Final = 0.5
_LOOK_WHEN_STOPPING_S: Final = 0.02


@dataclass(slots=True)
class RunTotals:
    """Totals of a query's run."""

    batches: int = 0
    last_batch: int = -1
    """Number of the last micro-batch; -1 = none."""

    rows_in: int = 0
    observed: dict[str, int] = field(default_factory=dict[str, int])
    is_stopped: bool = False
    """The run was interrupted; the next run resumes from the checkpoint."""

    def add(self, one: BatchProgress) -> None:
        """Count a micro-batch."""
        self.batches += 1
        self.last_batch = one.batch
        self.rows_in += one.rows_in
        for name, count in one.observed.items():
            self.observed[name] = self.observed.get(name, 0) + count


def run(
    start: "Callable[[], StreamingQuery]",
    observe: Observe | None = None,
    *,
    ends_batches: bool = False,
) -> RunTotals:
    """Run a query until it ends or somebody interrupts it.

    Args:
        start: Starts it.
        observe: Callback for each completed micro-batch.
        ends_batches: When it is interrupted, the micro-batch that is under way is finished first:
            for a sink in which half a batch would be seen.

    Raises:
        PySparkException: It ended with an error. What it had committed stays, and it goes on from
            there when it is started again.
    """
    with interruptions() as interruption:
        query: Any = start()
        watch = _Watch(query, observe)
        while not query.awaitTermination(_LOOK_S):
            watch.look()
            if interruption.is_wanted:
                watch.totals.is_stopped = _stop(query, ends_batches=ends_batches)
        watch.look()
    return watch.totals


def _stop(query: Any, *, ends_batches: bool) -> bool:
    """Stop a query, and tell whether that was needed: it may end by itself before.

    Args:
        query: That runs.
        ends_batches: Stop it right behind the next end of a batch. Behind one that is known already
            another batch may be so far that it is committed now: it would be seen, and repeated.
    """
    known = _newest(query)
    while ends_batches and query.status["isTriggerActive"] and _newest(query) == known:
        if query.awaitTermination(_LOOK_WHEN_STOPPING_S):
            return False
    query.stop()
    return True


def _newest(query: Any) -> tuple[int, str] | None:
    """Return the number and begin of the last micro-batch in a query's progress."""
    last = query.lastProgress
    return None if last is None else (last.batchId, last.timestamp)


class _Watch:
    """Reads a query's progress as it comes."""

    def __init__(self, query: Any, observe: Observe | None) -> None:
        self._query = query
        self._observe = observe
        self._seen = -1
        self._newest: tuple[int, str] | None = None
        self.totals = RunTotals()

    def look(self) -> None:
        """Count the micro-batches completed since the last call."""
        newest = _newest(self._query)
        if newest == self._newest:
            return  # to ask for the whole progress takes a second
        self._newest = newest
        for progress in self._query.recentProgress:
            document = json.loads(progress.json)
            if document["batchId"] <= self._seen or "addBatch" not in document["durationMs"]:
                continue  # known, or nothing was there to be read
            self._seen = document["batchId"]
            one = batch_progress(document, _counts(progress.observedMetrics))
            self.totals.add(one)
            if self._observe is not None:
                self._observe(one)


def _counts(observed: Mapping[str, Any]) -> dict[str, int]:
    """Return what the job counts in its rows: numbers in rows of `DataFrame.observe`."""
    found: dict[str, int] = {}
    for row in (observed or {}).values():
        counts: dict[str, int | None] = row.asDict()
        found.update({name: count or 0 for name, count in counts.items()})
    return found
