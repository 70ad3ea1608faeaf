"""The plots of a report: SVG texts to be laid into a page, drawn by matplotlib."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from io import StringIO
from typing import Any, Final, cast

from ternmq_pipeline.jobs.reporting.tables import HourRow

BARS_MAX: Final = 12
"""Longer lists are in the tables."""

TOPICS_MAX: Final = 7
"""Topics with a colour of their own; the others are put together."""

_ROWS_MIN: Final = 3
"""Places for bars that are always there, so that a single one is as thin as many are."""

OTHERS: Final = "others"

COLOURS: Final = (
    *("#2563a8", "#e08a2b", "#3f9a6b", "#b8475b", "#7a62b3", "#4aa3b8", "#8a6a4f"),
    "#b4bac2",
)
ALARM: Final = "#c2413b"
_INK: Final = "#3a4350"
_LINE: Final = "#dfe3e8"

_STYLE: Final[Mapping[str, Any]] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": _INK,
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": _LINE,
    "grid.linewidth": 0.8,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "text.parse_math": False,
    "axes.formatter.useoffset": False,
}


def largest(amounts: Mapping[str, float], count: int) -> list[tuple[str, float]]:
    """Return the largest amounts above 0, the largest first; equal ones by name."""
    found = sorted(amounts.items(), key=lambda each: (-each[1], each[0]))
    return [each for each in found[:count] if each[1] > 0]


def stacks(traffic: Sequence[HourRow]) -> tuple[list[int], dict[str, list[int]]]:
    """Return the hours, and for each of the busiest topics what it got in each of them.

    Topics beyond `TOPICS_MAX` are put together as `OTHERS`, which come last.
    """
    starts = sorted({row.hour_at_ms for row in traffic})
    place = {start: number for number, start in enumerate(starts)}
    sums: dict[str, float] = {}
    for row in traffic:
        sums[row.topic] = sums.get(row.topic, 0) + row.messages
    chosen = [topic for topic, _ in largest(sums, TOPICS_MAX)]
    found = {topic: [0] * len(starts) for topic in chosen}
    for row in traffic:
        if row.messages:
            name = row.topic if row.topic in chosen else OTHERS
            found.setdefault(name, [0] * len(starts))[place[row.hour_at_ms]] += row.messages
    return starts, found


def traffic_svg(traffic: Sequence[HourRow]) -> str:
    """Return bars for the hours, stacked by topic; empty when there was no message."""
    starts, found = stacks(traffic)
    if not found:
        return ""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        bottom = [0] * len(starts)
        colours = [COLOURS[-1] if name == OTHERS else COLOURS[n] for n, name in enumerate(found)]
        for (name, amounts), colour in zip(found.items(), colours, strict=True):
            axes.bar(range(len(starts)), amounts, 0.8, bottom, color=colour, label=name)
            bottom = [a + b for a, b in zip(bottom, amounts, strict=True)]
        every = max(1, -(-len(starts) // 12))
        ticks = range(0, len(starts), every)
        axes.set_xticks(list(ticks), [_hour_text(starts[tick], every) for tick in ticks])
        axes.set_xlim(-0.6, len(starts) - 0.4)
        axes.grid(visible=False, axis="x")
        axes.yaxis.set_major_formatter(_tick)
        figure.legend(loc="outside upper left", ncols=TOPICS_MAX + 1, frameon=False, fontsize=9)

    return _svg(draw, height=4.2, salt="traffic", width=12.0)


def bars_svg(
    amounts: Mapping[str, float], *, salt: str, unit: str, alarmed: Sequence[str] = ()
) -> str:
    """Return a bar for each of the largest amounts; empty when there is none above 0.

    Args:
        amounts: By name.
        salt: Keeps the ids inside this SVG apart from those of others on the page.
        unit: What is counted, such as `messages` or `bytes`.
        alarmed: Names whose bars are to be seen first.
    """
    chosen = largest(amounts, BARS_MAX)
    if not chosen:
        return ""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        names = [_cut(name) for name, _ in chosen]
        colours = [ALARM if name in alarmed else COLOURS[0] for name, _ in chosen]
        bars = axes.barh(range(len(chosen)), [each for _, each in chosen], 0.62, color=colours)
        axes.bar_label(bars, [in_unit(each, unit) for _, each in chosen], padding=4, fontsize=9)
        axes.set_yticks(range(len(chosen)), names)
        axes.set_ylim(max(len(chosen), _ROWS_MIN) - 0.5, -0.5)
        axes.margins(x=0.16)
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.spines["bottom"].set_visible(False)
        axes.tick_params(axis="x", labelbottom=False, length=0)

    return _svg(draw, height=0.5 + 0.34 * max(len(chosen), _ROWS_MIN), salt=salt)


def short(value: float) -> str:
    """Return a number as a reader takes it in: 950, 1.2 k, 34 M."""
    for factor, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor * 0.9995:
            part = value / factor
            return f"{part:.1f}".rstrip("0").rstrip(".") + f" {letter}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2f}".rstrip("0").rstrip(".")


def bytes_text(count: float) -> str:
    """Return a number of bytes in the unit that suits it."""
    for factor, unit in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count:.0f} B"


def duration_text(seconds: float) -> str:
    """Return a time in its two largest units: 3 d 4 h, 2 min 5 s, 0.4 s."""
    if seconds < 60:
        return f"{seconds:.1f}".rstrip("0").rstrip(".") + " s"
    whole = int(seconds)
    for large, in_s, small, of_large in (("d", 86_400, "h", 24), ("h", 3600, "min", 60)):
        if whole >= in_s:
            rest = whole % in_s * of_large // in_s
            return f"{whole // in_s} {large}" + (f" {rest} {small}" if rest else "")
    return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")


def in_unit(value: float, unit: str) -> str:
    """Return an amount with its unit: `bytes`, `seconds`, or anything that is counted."""
    if unit == "bytes":
        return bytes_text(value)
    if unit == "seconds":
        return duration_text(value)
    return short(value)


def _tick(value: float, _: int) -> str:
    return short(value)


def _hour_text(start_ms: int, every: int) -> str:
    """Return the text of one of the ticks, `every` hours apart: the day where a new one begins."""
    at = datetime.fromtimestamp(start_ms / 1000, UTC)
    if every >= 24:
        return f"{at:%d %b}"
    return f"{at:%d %b %H:00}" if at.hour < every else f"{at:%H:00}"


def _cut(name: str) -> str:
    return name if len(name) <= 34 else name[:20] + "…" + name[-13:]


def _svg(draw: Any, *, height: float, salt: str, width: float = 7.2) -> str:
    import matplotlib
    from matplotlib.figure import Figure

    # Their types say more about themselves than a checker can follow.
    styled, made = cast("Any", matplotlib), cast("Any", Figure)
    with styled.rc_context({**_STYLE, "svg.hashsalt": salt}):
        figure = made(figsize=(width, height), layout="constrained")
        draw(figure)
        written = StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(written, format="svg", transparent=True, metadata=nothing)
    text = written.getvalue()
    return text[text.index("<svg") :]
