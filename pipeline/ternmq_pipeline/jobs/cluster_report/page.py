"""Report as one page of HTML without scripts, other files and network."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ternmq_model.printable_text import printable
from ternmq_pipeline.jobs.cluster_report import plots
from ternmq_pipeline.jobs.cluster_report.report_tables import TABLES, ClusterReport, Row, rows_of

BARS_MAX: Final = 12
"""Most bars of a list. The tables have the full lists."""

_TITLES: Final[Mapping[str, str]] = {
    "topics": "Topics",
    "groups": "Consumer groups",
    "members": "Live consumers",
    "dead_letters": "Dead letters",
}
_HEADINGS: Final[Mapping[str, str]] = {
    "in_per_s": "in/s",
    "out_per_s": "out/s",
    "in_24h": "in, 24 h",
    "out_24h": "out, 24 h",
    "sent_back_24h": "sent back, 24 h",
    "dead_24h": "given up, 24 h",
    "messages_per_s": "messages/s",
    "lag_s": "oldest waits",
    "bytes": "size",
    "is_slow": "slow",
    "is_retry": "retries",
    "last_stored_at_ms": "newest",
    "last_died_at_ms": "newest",
    "last_consumed_at_ms": "last consumed",
    "hour_at_ms": "hour",
}


Cell = tuple[str, str]
"""Text and CSS classes of a cell."""


@dataclass(frozen=True, slots=True)
class _Bar:
    name: str
    text: str
    percent: float
    is_alarm: bool


@dataclass(frozen=True, slots=True)
class _Chart:
    title: str
    note: str
    empty: str
    bars: Sequence[_Bar]


def page(report: ClusterReport) -> str:
    """Return the page. Names from the cluster are escaped, since they may contain markup."""
    # A local import: other formats of the report do not need the extra.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def shown(value: object) -> str:
        return value if isinstance(value, Markup) else printable(str(value))

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=shown,
    )
    return environment.get_template("page.html.j2").render(
        report=report,
        made=time_text(report.made_at_ms),
        silent=[each.broker_name for each in report.unreachable],
        slow_after=plots.duration_text(report.slow_after_ms / 1000),
        tiles=_tiles(report),
        slow_headings=[
            ("group", ""),
            ("topic", ""),
            ("waiting", "number"),
            ("oldest waits", "number"),
            ("members", "number"),
        ],
        slow=[
            (
                (row.group, ""),
                (row.topic, ""),
                (f"{row.lag:,}", "number"),
                (plots.duration_text(row.lag_s), "number alarm"),
                (str(row.members), "number"),
            )
            for row in report.slow
        ],
        svg=plots.traffic_svg(report.traffic),
        legend=plots.colours(list(plots.stacks(report.traffic)[1])),
        charts=_charts(report),
        tables=[
            (title, *_table(rows_of(report, name), TABLES[name])) for name, title in _TITLES.items()
        ],
    )


def time_text(at_ms: int) -> str:
    """Return the text of a time in UTC, from Unix milliseconds."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def _tiles(report: ClusterReport) -> Sequence[tuple[str, str, bool]]:
    sizes = [row.bytes for row in report.topics if row.bytes is not None]
    waiting = sum(row.waiting for row in report.dead_letters)
    return (
        ("topics", str(len(report.topics)), False),
        ("groups", str(len({row.group for row in report.groups})), False),
        ("messages kept", plots.short(sum(row.messages for row in report.topics)), False),
        ("size kept", plots.bytes_text(sum(sizes)) if sizes else "–", False),
        ("in/s", plots.short(sum(row.in_per_s for row in report.topics)), False),
        ("out/s", plots.short(sum(row.out_per_s for row in report.topics)), False),
        ("lag, messages", plots.short(sum(row.lag for row in report.groups)), False),
        ("slow groups", str(len({row.group for row in report.slow})), bool(report.slow)),
        ("dead letters wait", plots.short(waiting), bool(waiting)),
    )


def _charts(report: ClusterReport) -> Sequence[_Chart]:
    lags: dict[str, float] = {}
    for row in report.groups:
        lags[row.group] = max(lags.get(row.group, 0), row.lag_s)
    slow = {row.group for row in report.slow}
    waiting = {row.group: row.waiting for row in report.dead_letters}
    received = {row.topic: row.in_24h for row in report.topics}
    is_measured = any(row.bytes for row in report.topics)
    if is_measured:
        kept = _bars({row.topic: row.bytes or 0 for row in report.topics}, plots.bytes_text)
    else:
        kept = _bars({row.topic: row.messages for row in report.topics}, plots.short)
    return (
        _Chart(
            "Lag of groups",
            "oldest waiting message",
            "No group is behind.",
            _bars(lags, plots.duration_text, alarms=slow),
        ),
        _Chart(
            "Stored messages of topics",
            "size" if is_measured else "messages",
            "No topic has a stored message.",
            kept,
        ),
        _Chart(
            "Incoming messages of topics",
            "messages, 24 h",
            "No topic received a message.",
            _bars(received, plots.short),
        ),
        _Chart(
            "Dead letters that wait",
            "by group",
            "No dead letter waits.",
            _bars(waiting, plots.short, alarms=waiting.keys()),
        ),
    )


def _bars(
    amounts: Mapping[str, float],
    text_of: Callable[[float], str],
    *,
    alarms: Collection[str] = (),
) -> Sequence[_Bar]:
    chosen = plots.largest(amounts, BARS_MAX)
    return [
        _Bar(name, text_of(each), 100 * each / chosen[0][1], name in alarms)
        for name, each in chosen
    ]


def _table(rows: Sequence[Row], kind: type[Row]) -> tuple[Sequence[Cell], Sequence[Sequence[Cell]]]:
    """Return headings and rows. Numbers are aligned to the right."""
    names = [field.name for field in fields(kind)]
    kinds = {
        name: "" if any(isinstance(getattr(row, name), str) for row in rows) else "number"
        for name in names
    }
    headings = [(_HEADINGS.get(name, name.replace("_", " ")), kinds[name]) for name in names]
    return headings, [[_cell(row, name, kinds[name]) for name in names] for row in rows]


def _cell(row: Row, name: str, kind: str) -> Cell:
    value: object = getattr(row, name)
    if name == "is_slow" and value:
        kind = "number alarm"
    elif name == "address":
        kind = "whole"
    return _text(name, value), kind


def _text(name: str, value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else ""
    shown: Callable[[float], str] | None = _SHOWN.get(name)
    if isinstance(value, int | float) and name.endswith("_at_ms"):
        return time_text(int(value))
    if isinstance(value, int | float) and shown is not None:
        return shown(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


_SHOWN: Final[Mapping[str, Callable[[float], str]]] = {
    "bytes": plots.bytes_text,
    "lag_s": plots.duration_text,
    "in_per_s": plots.short,
    "out_per_s": plots.short,
    "messages_per_s": plots.short,
}
