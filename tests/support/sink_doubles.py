"""Functions and a data source that let a test stop a write where it likes. Run by Spark's workers.

A gate is a path: who comes to it writes `PATH.reached` and waits until `PATH.open` is there.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Final, Self

from pyspark import TaskContext
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from ternmq_client.telemetry.telemetry import Telemetry
from ternmq_model.transaction import Resolution, TransactionState
from ternmq_pipeline.sink.staging import OpenStager, Stager
from ternmq_pipeline.sink.writer import (
    BatchWriter,
    StreamWriter,
    TopicSink,
    batch_writer,
    stream_writer,
)
from ternmq_producer.staging import StagedMessage, StagedMessages

PID_VARIABLE: Final = "SINK_DRIVER_PID"
"""Names the driver that `kills` ends: the leader of its process group."""

_PASSED_BY_ITSELF_S: Final = 60.0


def pass_gate(gate: Path) -> None:
    """Say that the gate is reached, and wait for it to open; a minute at most."""
    gate.with_suffix(".reached").touch()
    opened = gate.with_suffix(".open")
    pause = Event()
    for _ in range(round(_PASSED_BY_ITSELF_S / 0.05)):
        if opened.exists():
            return
        pause.wait(0.05)


def is_reached(gate: Path) -> bool:
    """Tell whether somebody came to the gate."""
    return gate.with_suffix(".reached").exists()


def open_gate(gate: Path) -> None:
    """Let pass who waits there, and all that come."""
    gate.with_suffix(".open").touch()


def _on(column: Column, marked: str, act: Callable[[], None]) -> Column:
    def look(value: str) -> str:
        if value == marked:
            act()
        return value

    return F.udf(look, "string", useArrow=False)(column)


def stops_at(column: Column, marked: str, gate: Path) -> Column:
    """Return `column`; whoever computes its value `marked` waits at the gate."""
    return _on(column, marked, lambda: pass_gate(gate))


def fails_at(column: Column, marked: str, *, attempts: int = 1 << 30) -> Column:
    """Return `column`; computing its value `marked` fails, the first `attempts` times."""

    def fail() -> None:
        task = TaskContext.get()
        if task is not None and task.attemptNumber() < attempts:
            raise ValueError("this row cannot be computed")

    return _on(column, marked, fail)


@dataclass(frozen=True)
class _HalfwayStager:
    """Commits half of what it is given, passes the gate, and commits the rest.

    With roll-backs it has no patience.
    """

    stager: Any
    gate: Path
    kills: bool

    def __enter__(self) -> Self:
        self.stager.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self.stager.__exit__(*raised)

    def stage(self, *arguments: Any, **named: Any) -> StagedMessages:
        stager: Stager = self.stager
        return stager.stage(*arguments, **named)

    def stage_columns(self, *arguments: Any, **named: Any) -> StagedMessages:
        stager: Stager = self.stager
        return stager.stage_columns(*arguments, **named)

    def states(
        self, staged: Sequence[StagedMessage], *, timeout_s: float
    ) -> list[TransactionState]:
        stager: Stager = self.stager
        return stager.states(staged, timeout_s=timeout_s)

    def end(
        self, staged: Sequence[StagedMessage], resolution: Resolution, *, timeout_s: float
    ) -> None:
        stager: Stager = self.stager
        if resolution is Resolution.ROLLBACK:
            stager.end(staged, resolution, timeout_s=1)
            return
        middle = len(staged) // 2
        stager.end(staged[:middle], resolution, timeout_s=timeout_s)
        self.gate.with_suffix(".reached").touch()
        if self.kills:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(os.environ[PID_VARIABLE]), signal.SIGKILL)
        pass_gate(self.gate)
        stager.end(staged[middle:], resolution, timeout_s=timeout_s)


@dataclass(frozen=True)
class HalfwaySink(TopicSink):
    """A sink whose commits stop in the middle."""

    gate: Path
    kills: bool

    def stagers(self, group: str, telemetry: Telemetry | None = None) -> OpenStager:
        """Open the producers that stop."""
        plain = TopicSink.stagers(self, group, telemetry)
        return lambda: _HalfwayStager(plain(), self.gate, self.kills)


class HalfwaySource(DataSource):
    """`format("halfway")`: the sink, whose commits reach the option `gate` in the middle.

    With the option `kills` the driver is killed there, the first time.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "halfway"

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of a DataFrame."""
        options, change = self._given()
        writer = batch_writer(options, schema, overwrite)
        return BatchWriter(change(writer.sink), writer.batch.query)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return the writer of micro-batches."""
        options, change = self._given()
        return StreamWriter(change(stream_writer(options, schema, overwrite).sink))

    def _given(self) -> tuple[dict[str, str], Callable[[TopicSink], HalfwaySink]]:
        options = dict(self.options)
        gate, kills = Path(options.pop("gate")), options.pop("kills", "") == "true"
        return options, lambda sink: HalfwaySink(sink.options, sink.layout, gate, kills)
