"""What is measured, in which unit, and what it should come to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

BACKLOG: Final = 500_000
"""Messages of 1 KiB that wait when a consumer starts."""

MODES: Final = ("async", "sync")
"""When a send is answered: once it is in memory, or once it is on disk."""


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

    def is_reached(self, mode: str, value: float) -> bool:
        """Tell whether `value` is as good as promised; what has no target always is."""
        target = self.targets.get(mode, value)
        return value <= target if self.at_most else value >= target


def _either(asynchronous: float, synchronous: float | None = None) -> Mapping[str, float]:
    """Return targets; without the second one the same holds for both."""
    return {"async": asynchronous, "sync": asynchronous if synchronous is None else synchronous}


FIGURES: Final = (
    Figure("alone.p50", "send, one after the other, p50", "µs", _either(400, 900), at_most=True),
    Figure("alone.p99", "send, one after the other, p99", "µs", {}, at_most=True),
    Figure("awaiting-16", "send, 16 awaiting senders", "msg/s", {}),
    Figure("awaiting-64", "send, 64 awaiting senders", "msg/s", _either(80_000, 48_000)),
    Figure("awaiting-256", "send, 256 awaiting senders", "msg/s", {}),
    Figure("pipelined", "send, pipelined", "msg/s", _either(120_000, 72_000)),
    Figure("send-many", "send_many", "msg/s", _either(180_000, 108_000)),
    Figure("send-many-128", "send_many of 128 B", "msg/s", _either(450_000, 270_000)),
    Figure("push", "PushConsumer, batch listener", "msg/s", _either(300_000)),
    Figure("pull", "PullConsumer", "msg/s", _either(500_000)),
    Figure("idle.resident", "idle `ternmq dev`, resident", "MiB", _either(120), at_most=True),
    Figure("idle.ready", "`ternmq dev`, command to ready", "ms", _either(2000), at_most=True),
    Figure("idle.cpu", "idle `ternmq dev`, of one core", "%", {}, at_most=True),
    Figure("help", "`ternmq --help`", "ms", {"async": 300}, at_most=True),
)

SENDING: Final = tuple(
    figure.name.partition(".")[0]
    for figure in FIGURES
    if figure.name.startswith(("alone.p50", "awaiting", "pipelined", "send-many"))
)
CONSUMING: Final = ("push", "pull")
MEASUREMENTS: Final = tuple(dict.fromkeys(figure.measurement for figure in FIGURES))


def table(columns: Mapping[str, Mapping[str, float]]) -> str:
    """Return every figure that was measured, as a table in Markdown.

    Args:
        columns: Values by name of figure, by heading. A heading that is a mode gets a column of
            targets beside it; a value that missed its target is marked with "✗".
    """
    header = ["1 KiB messages, 8 queues"]
    for heading in columns:
        header += [f"{heading} flush", "target"] if heading in MODES else [heading]
    rows = [header]
    for figure in FIGURES:
        if not any(figure.name in values for values in columns.values()):
            continue
        row = [f"{figure.text}, {figure.unit}"]
        for heading, values in columns.items():
            value = values.get(figure.name)
            is_missed = value is not None and not figure.is_reached(heading, value)
            row.append("" if value is None else f"{_number(value)}{' ✗' if is_missed else ''}")
            if heading in MODES:
                row.append(_target(figure, heading))
        rows.append(row)
    return _markdown(rows)


def _number(value: float) -> str:
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _target(figure: Figure, mode: str) -> str:
    target = figure.targets.get(mode)
    return "" if target is None else f"{'≤' if figure.at_most else '≥'} {target:,.0f}"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
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
