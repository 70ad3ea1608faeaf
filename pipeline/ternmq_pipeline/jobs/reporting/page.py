"""The report as one page of HTML that needs nothing else: no script, no file, no network."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from html import escape
from typing import Final

from ternmq_pipeline.jobs.reporting import plots
from ternmq_pipeline.jobs.reporting.tables import TABLES, Report, Row, rows_of

_CSS: Final = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #f4f6f8; color: #1f2733; line-height: 1.45;
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main, header > div { max-width: 1180px; margin: 0 auto; padding: 0 24px; }
header { background: #16324f; color: #fff; padding: 26px 0 60px; }
h1 { font-size: 24px; margin: 0 0 4px; font-weight: 650; }
header p { margin: 0; color: #c6d3e1; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(112px, 1fr)); gap: 12px;
  margin-top: -40px; }
.tile, section { background: #fff; border: 1px solid #e3e7ec; border-radius: 8px; }
.tile { padding: 12px; }
.tile b { display: block; font-size: 19px; font-weight: 650; white-space: nowrap; }
.tile span { color: #66717f; font-size: 13px; }
.alarm b, td.alarm { color: #c2413b; }
td.alarm { font-weight: 600; }
section { margin: 16px 0; padding: 18px 20px; min-width: 0; }
h2 { font-size: 16px; margin: 0 0 10px; font-weight: 650; }
h2 small { font-weight: 400; color: #66717f; font-size: 13px; margin-left: 6px; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(440px, 1fr)); gap: 0 16px;
  align-items: stretch; }
figure { margin: 0; }
svg { width: 100%; height: auto; display: block; }
svg text { font-family: inherit !important; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; font-weight: 600; color: #66717f; font-size: 12.5px;
  border-bottom: 1px solid #cfd6de; padding: 6px 10px; white-space: nowrap; }
td { border-bottom: 1px solid #eef1f4; padding: 6px 10px; overflow-wrap: break-word;
  min-width: 5ch; max-width: 38ch; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr:last-child td { border-bottom: 0; }
.none { color: #66717f; margin: 0; }
footer { color: #66717f; font-size: 13px; padding: 4px 0 28px; }
@media print { body { background: #fff; } section, .tile { break-inside: avoid; } }
"""

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


def page(report: Report) -> str:
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
                     plots.traffic_svg(report.traffic), "No message was stored in that time."),
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


def _brokers(report: Report) -> str:
    names = ", ".join(map(escape, report.brokers))
    silent = ", ".join(escape(each.broker_name) for each in report.unreachable)
    missing = f" No answer from {silent}: what they have is missing." if silent else ""
    return f"Brokers: {names}.{missing}" if names else "No broker is registered."


def _footer(report: Report) -> str:
    patience = _patience(report)
    return (
        "<footer>Rates are over the last minute. What groups have read, sent back and given up is "
        "counted by brokers since they started. Sizes are those of records in the log. A group is "
        f"slow when a message has waited for it for {patience} or longer; a consumer when it holds "
        "messages of a queue of which none came or was finished for so long.</footer>"
    )


def _patience(report: Report) -> str:
    return plots.duration_text(report.slow_after_ms / 1000)


def _tiles(report: Report) -> str:
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


def _slow(report: Report) -> str:
    if not report.slow:
        return ""
    lines = "".join(
        f'<tr><td>{escape(row.group)}</td><td>{escape(row.topic)}</td><td class="number">'
        f'{row.lag:,}</td><td class="number alarm">{plots.duration_text(row.lag_s)}</td>'
        f'<td class="number">{row.members}</td></tr>'
        for row in report.slow
    )
    headings = _headings(("group", "topic"), ("waiting", "oldest waits", "members"))
    return (
        f"<section><h2>Slow<small>a message has waited for {_patience(report)} or longer</small>"
        f'</h2><div class="scroll"><table>{headings}{lines}</table></div></section>'
    )


def _lag(report: Report) -> str:
    lags: dict[str, float] = {}
    for row in report.groups:
        lags[row.group] = max(lags.get(row.group, 0), row.lag_s)
    slow = sorted({row.group for row in report.slow})
    svg = plots.bars_svg(lags, salt="lag", unit="seconds", alarmed=slow)
    return _section("How far groups are behind<small>oldest waiting message</small>", svg,
                    "No group is behind.")  # fmt: skip


def _sizes(report: Report) -> str:
    if any(row.bytes for row in report.topics):
        sizes: dict[str, float] = {row.topic: row.bytes or 0 for row in report.topics}
        svg = plots.bars_svg(sizes, salt="sizes", unit="bytes")
        return _section("What topics keep<small>size</small>", svg, "")
    counts: dict[str, float] = {row.topic: row.messages for row in report.topics}
    svg = plots.bars_svg(counts, salt="sizes", unit="messages")
    return _section("What topics keep<small>messages</small>", svg, "No topic keeps a message.")


def _rates(report: Report) -> str:
    svg = plots.bars_svg({r.topic: r.in_24h for r in report.topics}, salt="in", unit="messages")
    return _section("What topics got<small>messages, 24 h</small>", svg, "None got a message.")


def _letters(report: Report) -> str:
    waiting: dict[str, float] = {row.group: row.waiting for row in report.dead_letters}
    svg = plots.bars_svg(waiting, salt="letters", unit="messages", alarmed=list(waiting))
    title = "Dead letters that wait<small>by group</small>"
    return _section(title, svg, "No dead letter waits.")


def _section(title: str, svg: str, empty: str) -> str:
    body = f"<figure>{svg}</figure>" if svg else f'<p class="none">{empty}</p>'
    return f"<section><h2>{title}</h2>{body}</section>"


def _table(report: Report, name: str) -> str:
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
        f'<div class="scroll"><table><tr>{head}</tr>{lines}</table></div></section>'
    )


_NUMBER: Final = ' class="number"'


def _headings(words: Sequence[str], numbers: Sequence[str]) -> str:
    told = "".join(f"<th>{each}</th>" for each in words)
    return f"<tr>{told}{''.join(f'<th{_NUMBER}>{each}</th>' for each in numbers)}</tr>"


def _cell(row: Row, name: str, *, is_word: bool) -> str:
    value: object = getattr(row, name)
    text = escape(_text(name, value))
    if name == "is_slow" and value:
        return f'<td class="number alarm">{text}</td>'
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
