"""Running a streaming query to its end: progress as it goes, a stop that leaves nothing half."""

import json
import signal
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from ternmq_model.errors import JobFailed
from ternmq_pipeline.jobs.progress import BatchProgress, batch_progress, reason_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

Observe = Callable[[BatchProgress], None]
"""Is told of each micro-batch that is done."""

_LOOK_S: Final = 0.5
_LOOK_WHEN_STOPPING_S: Final = 0.02


@dataclass(slots=True)
class Interruption:
    """Whether somebody wants the job to end: Ctrl-C, or a signal to terminate."""

    is_wanted: bool = False


@dataclass(slots=True)
class Totals:
    """What a query has done in one run."""

    batches: int = 0
    rows_in: int = 0
    observed: dict[str, int] = field(default_factory=dict[str, int])
    is_stopped: bool = False
    """It was interrupted, and goes on where it is when it is started again."""

    def add(self, one: BatchProgress) -> None:
        """Count a micro-batch."""
        self.batches += 1
        self.rows_in += one.rows_in
        for name, count in one.observed.items():
            self.observed[name] = self.observed.get(name, 0) + count


@contextmanager
def interruptions() -> Generator[Interruption]:
    """Note the first Ctrl-C or SIGTERM inside the block; a second one ends the job at once.

    In another thread than the main one nobody is told of signals.
    """
    noted = Interruption()

    def on_signal(_: int, __: FrameType | None) -> None:
        if noted.is_wanted:
            raise KeyboardInterrupt
        noted.is_wanted = True

    before: dict[signal.Signals, Any] = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, on_signal)
    except ValueError:
        before.clear()
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(
    start: "Callable[[], StreamingQuery]",
    job: str,
    observe: Observe | None = None,
    *,
    ends_batches: bool = False,
) -> Totals:
    """Run a query until it ends or somebody interrupts it.

    Args:
        start: Starts it.
        job: Its name, for errors.
        observe: Is told of each micro-batch.
        ends_batches: When it is interrupted, the micro-batch that is under way is finished first:
            for a sink in which half a batch would be seen.

    Raises:
        JobFailed: It ended with an error. What it had committed stays, and it goes on from there
            when it is started again.
    """
    from pyspark.errors import PySparkException

    with interruptions() as interruption:
        try:
            query: Any = start()
            watch = _Watch(query, observe)
            while not query.awaitTermination(
                _LOOK_WHEN_STOPPING_S if interruption.is_wanted else _LOOK_S
            ):
                news = watch.look()
                if interruption.is_wanted and (news or not ends_batches or watch.is_idle):
                    watch.totals.is_stopped = True
                    query.stop()
            watch.look()
        except PySparkException as error:
            raise JobFailed(f"{job}: {reason_of(str(error))}") from error
    return watch.totals


class _Watch:
    """Reads a query's progress as it comes."""

    def __init__(self, query: Any, observe: Observe | None) -> None:
        self._query = query
        self._observe = observe
        self._seen = -1
        self.totals = Totals()

    @property
    def is_idle(self) -> bool:
        """No micro-batch is under way."""
        return not self._query.status["isTriggerActive"]

    def look(self) -> bool:
        """Take what is new, and tell whether there was something."""
        news = False
        for told in self._query.recentProgress:
            document = json.loads(told.json)
            if document["batchId"] <= self._seen or "addBatch" not in document["durationMs"]:
                continue  # known, or nothing was there to be read
            self._seen = document["batchId"]
            one = batch_progress(document, _counts(told.observedMetrics))
            self.totals.add(one)
            news = True
            if self._observe is not None:
                self._observe(one)
        return news


def _counts(observed: Mapping[str, Any]) -> dict[str, int]:
    """Return what the job counts in its rows: numbers in rows of `DataFrame.observe`."""
    found: dict[str, int] = {}
    for row in (observed or {}).values():
        counts: dict[str, int | None] = row.asDict()
        found.update({name: count or 0 for name, count in counts.items()})
    return found
