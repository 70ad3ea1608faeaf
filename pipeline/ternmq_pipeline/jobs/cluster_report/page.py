"""The report as one page of HTML that needs nothing else: no script, no file, no network."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from html import escape
from typing import Final

from ternmq_model.printable_text import printable
from ternmq_pipeline.jobs.cluster_report import plots
from ternmq_pipeline.jobs.cluster_report.report_tables import TABLES, ClusterReport, Row, rows_of

_CSS: Final = """
:root { color-scheme: light dark; --page: #f4f6f8; --card: #fff; --edge: #e3e7ec; --text: #1f2733;
  --ink: #3a4350; --faint: #5f6a78; --line: #dfe3e8; --row: #eef1f4; --alarm: #c2413b;
  --head: #16324f; --shade: #0003; --c0: #2563a8; --c1: #e08a2b; --c2: #3f9a6b; --c3: #b8475b;
  --c4: #7a62b3; --c5: #4aa3b8; --c6: #8a6a4f; --c7: #b4bac2; }
@media screen and (prefers-color-scheme: dark) { :root { --page: #12161b; --card: #1b2129;
  --edge: #2c343e; --text: #e4e9ef; --ink: #c3ccd6; --faint: #98a4b1; --line: #36404b;
  --row: #28303a; --alarm: #ff8078; --head: #0f2438; --shade: #000a; --c0: #5b9ee6; --c3: #e0748a;
  --c4: #a78fe0; --c6: #b8957a; --c7: #7d8792; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); overflow-wrap: anywhere;
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main, header > div { max-width: 1560px; margin: 0 auto; padding: 0 24px; }
header { background: var(--head); color: #fff; padding: 26px 0 60px; }
h1 { font-size: 24px; margin: 0 0 4px; font-weight: 650; }
header p { margin: 0; color: #c6d3e1; }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin-top: -40px; }
.tile, section { background: var(--card); border: 1px solid var(--edge); border-radius: 8px; }
.tile { padding: 12px; flex: 1 1 104px; }
.tile b { display: block; font-size: 19px; font-weight: 650; white-space: nowrap; }
.tile span { color: var(--faint); font-size: 13px; }
.alarm b, td.alarm { color: var(--alarm); }
td.alarm { font-weight: 600; }
section { margin: 16px 0; padding: 18px 20px; min-width: 0; }
h2 { font-size: 16px; margin: 0 0 10px; font-weight: 650; }
h2 small { font-weight: 400; color: var(--faint); font-size: 13px; margin-left: 6px; }
figure { margin: 0; }
.pair { display: grid; gap: 0 16px;
  grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); }
.scroll { overflow-x: auto; background: linear-gradient(90deg, var(--card) 50%, transparent) local,
  linear-gradient(270deg, var(--card) 50%, transparent) 100% 0 local,
  linear-gradient(90deg, var(--shade), transparent) scroll,
  linear-gradient(270deg, var(--shade), transparent) 100% 0 scroll;
  background-repeat: no-repeat; background-size: 32px 100%, 32px 100%, 14px 100%, 14px 100%; }
figure .scroll { direction: rtl; } /* begins at the newest hour */
svg { direction: ltr; width: 100%; min-width: 680px; height: auto; display: block; }
svg text { font-family: inherit !important; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 18px; margin: 0 0 8px; padding: 0;
  list-style: none; font-size: 13px; }
.legend li { display: flex; gap: 6px; align-items: baseline; }
.legend i { flex: none; width: 12px; height: 12px; }
.bars { display: grid; gap: 6px 10px; grid-template-columns: fit-content(50%) 1fr max-content;
  align-items: center; font-size: 13px; }
.bars i { height: 18px; background: var(--c0); }
.bars i.alarm { background: var(--alarm); }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; font-weight: 600; color: var(--faint); font-size: 12.5px;
  border-bottom: 1px solid var(--line); padding: 6px 7px; vertical-align: bottom;
  overflow-wrap: normal; }
td { border-bottom: 1px solid var(--row); padding: 6px 7px; min-width: 14ch; }
.whole { white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; min-width: 0; }
td.number { white-space: nowrap; }
tr:last-child td { border-bottom: 0; }
.none { color: var(--faint); margin: 0; }
footer { color: var(--faint); font-size: 13px; padding: 4px 0 28px; }
@page { size: A4 landscape; margin: 10mm; }
@media print { body { background: none; } main, header > div { padding: 0; }
  header { background: none; color: inherit; padding: 0; } header p { color: inherit; }
  .tiles { margin-top: 12px; } tr, .tile, figure, .bars { break-inside: avoid; }
  h2 { break-after: avoid; } .bars i, .legend i { print-color-adjust: exact; }
  .scroll { overflow: visible; background: none; } table { font-size: 10px; }
  th { font-size: 9px; } th, td { padding: 3px 4px; } td { min-width: 0; } }
"""

BARS_MAX: Final = 12
"""Longer lists are in the tables."""

_TITLES: Final[Mapping[str, str]] = {
    "topics": "Topics",
    "groups": "Consumer groups",
    "members": "Live consumers",
    "dead_letters": "Dead letters",
    "traffic": "Messages by hour",
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


def page(report: ClusterReport) -> str:
    """Return the page. Every name in it is escaped: whoever makes topics does not make markup."""
    made = time_text(report.made_at_ms)
    return "\n".join(
        (
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>TernMQ, {made}</title><style>{_CSS}</style></head><body>",
            f"<header><div><h1>TernMQ report</h1><p>{made}, UTC throughout. "
            f"{_brokers(report)}</p></div></header><main>",
            _tiles(report),
            _slow(report),
            _section(f"Messages by hour<small>the last {report.hours} h, by topic</small>",
                     _traffic(report), "No message was stored in that time."),
            f'<div class="pair">{_lag(report)}{_sizes(report)}</div>',
            f'<div class="pair">{_rates(report)}{_letters(report)}</div>',
            *(_table(report, name) for name in TABLES if name != "traffic"),
            _footer(report),
            "</main></body></html>\n",
        )
    )  # fmt: skip


def time_text(at_ms: int) -> str:
    """Return Unix milliseconds as a reader of the page sees them, in UTC."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def _brokers(report: ClusterReport) -> str:
    names = ", ".join(map(_name, report.brokers))
    silent = ", ".join(_name(each.broker_name) for each in report.unreachable)
    missing = f" No answer from {silent}: what they have is missing." if silent else ""
    return f"Brokers: {names}.{missing}" if names else "No broker is registered."


def _footer(report: ClusterReport) -> str:
    patience = _patience(report)
    return (
        "<footer>Rates are over the last minute. What groups have read, sent back and given up is "
        "counted by brokers since they started. Sizes are those of records in the log. A group is "
        f"slow when a message has waited for it for {patience} or longer; a consumer when it holds "
        "messages of a queue of which none came or was finished for so long.</footer>"
    )


def _patience(report: ClusterReport) -> str:
    return plots.duration_text(report.slow_after_ms / 1000)


def _tiles(report: ClusterReport) -> str:
    sizes = [row.bytes for row in report.topics if row.bytes is not None]
    waiting = sum(row.waiting for row in report.dead_letters)
    told = (
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
    tiles = (
        f'<div class="tile{" alarm" if is_alarm else ""}"><b>{text}</b><span>{name}</span></div>'
        for name, text, is_alarm in told
    )
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _slow(report: ClusterReport) -> str:
    if not report.slow:
        return ""
    lines = "".join(
        f'<tr><td>{_name(row.group)}</td><td>{_name(row.topic)}</td><td class="number">'
        f'{row.lag:,}</td><td class="number alarm">{plots.duration_text(row.lag_s)}</td>'
        f'<td class="number">{row.members}</td></tr>'
        for row in report.slow
    )
    headings = _headings(("group", "topic"), ("waiting", "oldest waits", "members"))
    return (
        f"<section><h2>Slow<small>a message has waited for {_patience(report)} or longer</small>"
        f"</h2>{_framed('Slow', f'<table>{headings}{lines}</table>')}</section>"
    )


def _lag(report: ClusterReport) -> str:
    lags: dict[str, float] = {}
    for row in report.groups:
        lags[row.group] = max(lags.get(row.group, 0), row.lag_s)
    slow = sorted({row.group for row in report.slow})
    bars = _bars(lags, unit="seconds", alarmed=slow)
    return _section("How far groups are behind<small>oldest waiting message</small>", bars,
                    "No group is behind.")  # fmt: skip


def _sizes(report: ClusterReport) -> str:
    if any(row.bytes for row in report.topics):
        sizes: dict[str, float] = {row.topic: row.bytes or 0 for row in report.topics}
        bars = _bars(sizes, unit="bytes")
        return _section("What topics keep<small>size</small>", bars, "")
    counts: dict[str, float] = {row.topic: row.messages for row in report.topics}
    bars = _bars(counts, unit="messages")
    return _section("What topics keep<small>messages</small>", bars, "No topic keeps a message.")


def _rates(report: ClusterReport) -> str:
    bars = _bars({row.topic: row.in_24h for row in report.topics}, unit="messages")
    return _section("What topics got<small>messages, 24 h</small>", bars, "None got a message.")


def _letters(report: ClusterReport) -> str:
    waiting: dict[str, float] = {row.group: row.waiting for row in report.dead_letters}
    bars = _bars(waiting, unit="messages", alarmed=list(waiting))
    title = "Dead letters that wait<small>by group</small>"
    return _section(title, bars, "No dead letter waits.")


def _traffic(report: ClusterReport) -> str:
    """Return the plot, and its legend as text that wraps: names may be longer than a line."""
    svg = plots.traffic_svg(report.traffic)
    if not svg:
        return ""
    shown = plots.colours(list(plots.stacks(report.traffic)[1]))
    names = "".join(
        f'<li><i style="background:var(--c{number})"></i>{_name(name)}</li>'
        for name, number in shown.items()
    )
    return f'<ul class="legend">{names}</ul>{_framed("Messages by hour", svg)}'


def _bars(amounts: Mapping[str, float], *, unit: str, alarmed: Sequence[str] = ()) -> str:
    """Return a bar for each of the largest amounts; empty when there is none above 0.

    Args:
        amounts: By name.
        unit: What is counted: `bytes`, `seconds` or anything else.
        alarmed: Names whose bars are to be seen first.
    """
    chosen = plots.largest(amounts, BARS_MAX)
    bars = "".join(
        f"<span>{_name(name)}</span>"
        f'<i{_ALARM if name in alarmed else ""} style="width:{100 * each / chosen[0][1]:.1f}%"></i>'
        f'<span class="number">{plots.in_unit(each, unit)}</span>'
        for name, each in chosen
    )
    return f'<div class="bars">{bars}</div>' if bars else ""


def _section(title: str, plot: str, empty: str) -> str:
    body = f"<figure>{plot}</figure>" if plot else f'<p class="none">{empty}</p>'
    return f"<section><h2>{title}</h2>{body}</section>"


def _table(report: ClusterReport, name: str) -> str:
    rows = rows_of(report, name)
    if not rows:
        return _section(_TITLES[name], "", "None.")
    names = [field.name for field in fields(TABLES[name])]
    words = [each for each in names if any(isinstance(getattr(row, each), str) for row in rows)]
    head = "".join(
        f"<th{'' if each in words else _NUMBER}>{_HEADINGS.get(each, each.replace('_', ' '))}</th>"
        for each in names
    )
    lines = "".join(
        f"<tr>{''.join(_cell(row, each, is_word=each in words) for each in names)}</tr>"
        for row in rows
    )
    return (
        f"<section><h2>{_TITLES[name]}<small>{len(rows)}</small></h2>"
        f"{_framed(_TITLES[name], f'<table><tr>{head}</tr>{lines}</table>')}</section>"
    )


def _framed(title: str, wide: str) -> str:
    """Return what may be wider than the page in a frame of its own, which scrolls, by keys too."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">{wide}</div>'


def _name(text: str) -> str:
    """Return a text of somebody else's as one that neither is markup nor turns others around."""
    return escape(printable(text))


_ALARM: Final = ' class="alarm"'


_NUMBER: Final = ' class="number"'


def _headings(words: Sequence[str], numbers: Sequence[str]) -> str:
    told = "".join(f"<th>{each}</th>" for each in words)
    return f"<tr>{told}{''.join(f'<th{_NUMBER}>{each}</th>' for each in numbers)}</tr>"


def _cell(row: Row, name: str, *, is_word: bool) -> str:
    value: object = getattr(row, name)
    text = _name(_text(name, value))
    if name == "is_slow" and value:
        return f'<td class="number alarm">{text}</td>'
    if name == "address":
        return f'<td class="whole">{text}</td>'
    return f"<td>{text}</td>" if is_word else f"<td{_NUMBER}>{text}</td>"


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
