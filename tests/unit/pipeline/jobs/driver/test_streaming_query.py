import json
import os
import signal
from dataclasses import dataclass, field
from typing import Any

import pytest

from ternmq_pipeline.jobs.driver.batch_progress import BatchProgress
from ternmq_pipeline.jobs.driver.streaming_query import RunTotals, run


def test_totals_add_up() -> None:
    totals = RunTotals()
    totals.add(BatchProgress(0, 10, None, 1.0, None, {"left": 1}))
    totals.add(BatchProgress(1, 5, 3, 1.0, None, {"left": 2}))
    assert (totals.batches, totals.rows_in) == (2, 15)
    assert totals.observed == {"left": 3}


Thing = int | str
Moment = Thing | tuple[Thing, ...]


@dataclass
class Told:
    """Spark's progress of one micro-batch."""

    batchId: int
    rows: int
    timestamp: str = "2026-11-21T07:03:11.520Z"
    observedMetrics: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def json(self) -> str:
        told = {"batchId": self.batchId, "numInputRows": self.rows, "durationMs": {"addBatch": 9}}
        return json.dumps(told)


class Query:
    """A query of which each look that is waited for sees the next of some moments.

    Args:
        moments: What has happened by then, one thing or several: the number of a batch that is
            done, `idle` when no other one has begun, or Ctrl-C.
    """

    def __init__(self, *moments: Moment) -> None:
        self._moments = list(moments)
        self.recentProgress: list[Told] = []
        self.status = {"isTriggerActive": True}
        self.is_stopped = False

    @property
    def lastProgress(self) -> Told | None:
        return self.recentProgress[-1] if self.recentProgress else None

    def awaitTermination(self, timeout: float) -> bool:
        if self.is_stopped or not self._moments:
            return True
        moment = self._moments.pop(0)
        things = moment if isinstance(moment, tuple) else (moment,)
        self.status["isTriggerActive"] = "idle" not in things
        for thing in things:
            if isinstance(thing, int):
                self.recentProgress.append(Told(thing, 10))
            if thing == "ctrl-c":
                os.kill(os.getpid(), signal.SIGINT)
        return False

    def stop(self) -> None:
        self.is_stopped = True


@pytest.mark.parametrize(
    ("moments", "ends_batches", "batches"),
    [
        ((0, "ctrl-c", "busy", 1, "busy", 2), True, 2),
        ((0, "ctrl-c", "busy", "idle", "busy", 1), True, 1),
        (((0, "ctrl-c"), "busy", "busy", 1, 2), True, 2),
        (("ctrl-c", "busy", 0, 1), True, 1),
        ((0, "ctrl-c", "busy", 1, "busy", 2), False, 1),
        ((0, ("ctrl-c", 1), "busy", 2), False, 2),
    ],
)
def test_interruption_waits_for_a_batch_that_would_be_half_visible(
    moments: tuple[Moment, ...], ends_batches: bool, batches: int
) -> None:
    seen: list[BatchProgress] = []
    query: Any = Query(*moments)
    done = run(lambda: query, seen.append, ends_batches=ends_batches)
    assert query.is_stopped
    assert done.is_stopped
    assert (done.batches, done.rows_in) == (batches, batches * 10)
    assert [one.batch for one in seen] == list(range(batches))


def test_query_ending_while_an_interruption_waits_was_not_stopped() -> None:
    query: Any = Query(0, "ctrl-c", "busy")
    done = run(lambda: query, ends_batches=True)
    assert (done.batches, done.is_stopped, query.is_stopped) == (1, False, False)


def test_query_ending_by_itself_was_not_stopped() -> None:
    query: Any = Query(0, "busy", 1, "idle")
    done = run(lambda: query)
    assert (done.batches, done.rows_in, done.is_stopped) == (2, 20, False)
