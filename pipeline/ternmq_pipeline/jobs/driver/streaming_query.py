"""Run of a streaming query to its end, with progress and an orderly stop."""

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
    """Run a query until it ends or is interrupted.

    Args:
        start: Function that starts the query.
        observe: Callback for each completed micro-batch.
        ends_batches: True = an interrupted query first finishes the present micro-batch, for a sink
            in which half a batch would be visible.

    Raises:
        PySparkException: The query ended with an error. Committed batches stay, and a new start
            continues behind them.
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
    """Stop a query. Return False if it had ended by itself.

    Args:
        query: Running query.
        ends_batches: True = stop right after the end of the next batch. After an earlier end
            another batch may be committing: it would be visible and repeated.
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
    """Reader of a query's progress."""

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
    """Return the job's counts of rows: numbers in rows of `DataFrame.observe`."""
    found: dict[str, int] = {}
    for row in (observed or {}).values():
        counts: dict[str, int | None] = row.asDict()
        found.update({name: count or 0 for name, count in counts.items()})
    return found
