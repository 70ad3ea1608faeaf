"""Measured figures with their units and targets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

BACKLOG: Final = 500_000
"""Messages of 1 KiB that wait when a consumer starts."""

MODES: Final = ("async", "sync")
"""Durability of an answered send: in memory, or on disk."""


@dataclass(frozen=True, slots=True)
class Column:
    """Settings of the measured broker."""

    heading: str
    mode: str
    settings: tuple[str, ...]
    """As `--set` takes them; all else is as `ternmq dev` has it."""

    target_share: float
    """Part of every target that must be reached."""


COLUMNS: Final = tuple(
    column
    for mode in MODES
    for column in (
        Column(f"{mode} flush, index off", mode, ("store.index_enabled=false",), 1.0),
        Column(f"{mode} flush, everything on", mode, (), 0.75),
    )
)
"""The index is what the foundation was measured without; the checksum of whole records is on in
both."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table."""

    name: str
    """Also what `--only` takes; figures of one measurement share what stands before the dot."""

    text: str
    unit: str
    targets: Mapping[str, float]
    """By mode; none where nothing was promised."""

    at_most: bool = False
    """The target is an upper bound."""

    @property
    def measurement(self) -> str:
        """The measurement that this figure comes from."""
        return self.name.partition(".")[0]

    def target(self, column: Column) -> float | None:
        """Return what is promised of a column; None when nothing is."""
        target = self.targets.get(column.mode)
        if target is None:
            return None
        return target / column.target_share if self.at_most else target * column.target_share

    def is_reached(self, column: Column, value: float) -> bool:
        """Tell whether `value` is as good as promised; what has no target always is."""
        target = self.target(column)
        if target is None:
            return True
        return value <= target if self.at_most else value >= target


def either(asynchronous: float, synchronous: float | None = None) -> Mapping[str, float]:
    """Return targets; without the second one the same holds for both."""
    return {"async": asynchronous, "sync": asynchronous if synchronous is None else synchronous}


FIGURES: Final = (
    Figure("alone.p50", "send, one after the other, p50", "µs", either(400, 900), at_most=True),
    Figure("alone.p99", "send, one after the other, p99", "µs", {}, at_most=True),
    Figure("awaiting-16", "send, 16 awaiting senders", "msg/s", {}),
    Figure("awaiting-64", "send, 64 awaiting senders", "msg/s", either(80_000, 48_000)),
    Figure("awaiting-256", "send, 256 awaiting senders", "msg/s", {}),
    Figure("pipelined", "send, pipelined", "msg/s", either(120_000, 72_000)),
    Figure("send-many", "send_many", "msg/s", either(180_000, 108_000)),
    Figure("send-many-128", "send_many of 128 B", "msg/s", either(450_000, 270_000)),
    Figure("send-columns", "send_columns", "msg/s", {}),
    Figure("send-columns-128", "send_columns of 128 B", "msg/s", {}),
    Figure("push", "PushConsumer, batch listener", "msg/s", either(300_000)),
    Figure("pull", "PullConsumer", "msg/s", either(500_000)),
    Figure("push-columns", "PushConsumer, columns listener", "msg/s", {}),
    Figure("pull-columns", "poll_columns", "msg/s", {}),
    Figure("pull-bodies", "poll_columns, bodies alone", "msg/s", {}),
    Figure("idle.resident", "idle `ternmq dev`, resident", "MiB", either(120), at_most=True),
    Figure("idle.ready", "`ternmq dev`, command to ready", "ms", either(2000), at_most=True),
    Figure("idle.cpu", "idle `ternmq dev`, of one core", "%", {}, at_most=True),
    Figure("help", "`ternmq --help`", "ms", {"async": 300}, at_most=True),
)

SENDING: Final = tuple(
    figure.name.partition(".")[0]
    for figure in FIGURES
    if figure.name.startswith(("alone.p50", "awaiting", "pipelined", "send-"))
)
CONSUMING: Final = ("push", "pull", "push-columns", "pull-columns", "pull-bodies")
MEASUREMENTS: Final = tuple(dict.fromkeys(figure.measurement for figure in FIGURES))


def table(columns: Mapping[str, Mapping[str, float]]) -> str:
    """Return every figure that was measured, as a table in Markdown.

    Args:
        columns: Values by name of figure, by heading. The heading of one of `COLUMNS` gets a column
            of targets beside it; a value that missed its target is marked with "✗".
    """
    promised = {column.heading: column for column in COLUMNS}
    header = ["1 KiB messages, 8 queues"]
    for heading in columns:
        header += [heading, "target"] if heading in promised else [heading]
    rows = [header]
    for figure in FIGURES:
        if not any(figure.name in values for values in columns.values()):
            continue
        row = [f"{figure.text}, {figure.unit}"]
        for heading, values in columns.items():
            value, column = values.get(figure.name), promised.get(heading)
            is_missed = value is not None and column and not figure.is_reached(column, value)
            row.append("" if value is None else f"{number(value)}{' ✗' if is_missed else ''}")
            if column is not None:
                row.append(_target(figure, column))
        rows.append(row)
    return markdown(rows)


def number(value: float) -> str:
    """Return a figure as the tables show it."""
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _target(figure: Figure, column: Column) -> str:
    target = figure.target(column)
    return "" if target is None else f"{'≤' if figure.at_most else '≥'} {target:,.0f}"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return rows, the first of which is the header, as a table."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = [
        "| "
        + " | ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        + " |"
        for row in rows
    ]
    rule = [f"{'-' * (width + 1)}{':' if index else '-'}" for index, width in enumerate(widths)]
    return "\n".join([lines[0], f"|{'|'.join(rule)}|", *lines[1:]])
