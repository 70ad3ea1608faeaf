"""Plot of a report, as SVG for a page, drawn by matplotlib; texts of its numbers."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from io import StringIO
from typing import Any, Final, cast

from ternmq_pipeline.jobs.cluster_report.report_tables import HourRow

TOPICS_MAX: Final = 7
"""Most topics with a colour of their own. The others are summed."""

OTHERS: Final = "others"

_INK: Final = "#3a4350"
_LINE: Final = "#dfe3e8"
_COLOURS: Final = tuple(f"#00ff{number:02x}" for number in range(TOPICS_MAX + 1))
_OF_PAGE: Final[Mapping[str, str]] = {
    _INK: "ink",
    _LINE: "line",
    **{colour: f"c{number}" for number, colour in enumerate(_COLOURS)},
}
"""Colours of matplotlib, and the page's colours for them, which differ in dark mode."""

_STYLE: Final[Mapping[str, Any]] = {
    "svg.hashsalt": "traffic",
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
    """Return the largest amounts above 0 in descending order; equal ones by name."""
    found = sorted(amounts.items(), key=lambda each: (-each[1], each[0]))
    return [each for each in found[:count] if each[1] > 0]


def stacks(traffic: Sequence[HourRow]) -> tuple[list[int], dict[str, list[int]]]:
    """Return the hours, and the messages of the busiest topics in each hour.

    Topics beyond `TOPICS_MAX` are summed as `OTHERS`, the last name.
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


def colours(stacked: Sequence[str]) -> dict[str, int]:
    """Return the number of the page's colour for each name from `stacks`."""
    return {name: TOPICS_MAX if name == OTHERS else n for n, name in enumerate(stacked)}


def traffic_svg(traffic: Sequence[HourRow]) -> str:
    """Return bars for the hours, stacked by topic; empty = no messages.

    The bars have the page's colours: `--ink`, `--line`, and `--c0` and so on, by `colours`.
    """
    starts, found = stacks(traffic)
    if not found:
        return ""
    import matplotlib
    from matplotlib.figure import Figure

    # A type checker cannot follow the types of matplotlib.
    styled, made = cast("Any", matplotlib), cast("Any", Figure)
    with styled.rc_context(_STYLE):
        figure = made(figsize=(12.0, 3.9), layout="constrained")
        axes = figure.subplots()
        bottom = [0] * len(starts)
        for name, number in colours(list(found)).items():
            axes.bar(range(len(starts)), found[name], 0.8, bottom, color=_COLOURS[number])
            bottom = [a + b for a, b in zip(bottom, found[name], strict=True)]
        every = max(1, -(-len(starts) // 12))
        ticks = range(0, len(starts), every)
        axes.set_xticks(list(ticks), [_hour_text(starts[tick], every) for tick in ticks])
        axes.set_xlim(-0.6, len(starts) - 0.4)
        axes.grid(visible=False, axis="x")
        axes.yaxis.set_major_formatter(_tick)
        written = StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(written, format="svg", transparent=True, metadata=nothing)
    text = written.getvalue()
    for stand_in, name in _OF_PAGE.items():
        text = text.replace(stand_in, f"var(--{name})")
    return text[text.index("<svg") :]


def short(value: float) -> str:
    """Return the short text of a number: 950, 1.2 k, 34 M."""
    for factor, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor * 0.9995:
            part = value / factor
            return f"{part:.1f}".rstrip("0").rstrip(".") + f" {letter}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2f}".rstrip("0").rstrip(".")


def bytes_text(count: float) -> str:
    """Return a number of bytes with a suitable unit."""
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


def _tick(value: float, _: int) -> str:
    return short(value)


def _hour_text(start_ms: int, every: int) -> str:
    """Return the text of a tick, `every` hours apart: its hour, or the date of a new day."""
    at = datetime.fromtimestamp(start_ms / 1000, UTC)
    if every >= 24:
        return f"{at:%d %b}"
    return f"{at:%d %b %H:00}" if at.hour < every else f"{at:%H:00}"
