"""`ternmq pipeline report`: state of a cluster as tables and a page."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from ternmq_console.cli.admin_query import time_text
from ternmq_console.cli.exit_codes import errors_as_exits, leave_if_partial
from ternmq_console.cli.options import cluster_options, duration_ms
from ternmq_console.cli.output import print_line, print_record, print_rows
from ternmq_pipeline.jobs.cluster_report.report_tables import TABLES, ClusterReport, rows_of
from ternmq_pipeline.jobs.report import report as make_report

_SHOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "topics": ("topic", "messages", "bytes", "in_per_s", "out_per_s", "in_24h", "last_stored"),
    "groups": ("group", "topic", "members", "lag", "lag_s", "out_per_s", "dead_24h", "is_slow"),
    "members": ("group", "client_id", "in_hand", "messages_per_s", "last_consumed", "is_slow"),
    "dead_letters": ("group", "waiting", "kept", "last_died"),
}
"""Columns on a terminal. JSON and the files have all columns."""

_RATES: Final = frozenset({"in_per_s", "out_per_s", "messages_per_s", "lag_s"})


@click.command()
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write one self-contained page with plots to FILE.",
)
@click.option(
    "--parquet",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write each table to a file in DIR.",
)
@click.option(
    "--hours",
    type=click.IntRange(1, 24 * 31),
    default=24,
    show_default=True,
    help="Number of past hours with hourly counts of messages.",
)
@click.option(
    "--slow-after",
    type=duration_ms,
    default="5m",
    show_default=True,
    metavar="DURATION",
    help="Waiting time of a message after which its group is slow.",
)
@cluster_options
def report(
    html: Path | None,
    parquet: Path | None,
    hours: int,
    slow_after: int,
    nameserver: str,
    output: str,
) -> None:
    """Show lag, rates, sizes, retries, dead letters and slow consumers, by group and topic.

    The report changes no state and reads no message.
    """
    with errors_as_exits():
        made = make_report(
            nameserver, html=html, parquet=parquet, hours=hours, slow_after_s=slow_after / 1000
        )
    if output == "json":
        print_record(report_document(made), output)
        leave_if_partial(made.unreachable)
        return
    for place, table in enumerate(_SHOWN):
        if place:
            print_line()
        print_line(table.replace("_", " ").upper())
        print_rows(_rows(made, table), _SHOWN[table], output)
    for path in (html, parquet):
        if path is not None:
            print_line(f"wrote {path}", to_stderr=True)
    leave_if_partial(made.unreachable)


def report_document(made: ClusterReport) -> dict[str, object]:
    """Return the JSON document of a report."""
    document: dict[str, object] = {
        "made": time_text(made.made_at_ms),
        "hours": made.hours,
        "slow_after_s": made.slow_after_ms / 1000,
        "brokers": list(made.brokers),
        "unreachable": [each.broker_name for each in made.unreachable],
    }
    return document | {table: _rows(made, table) for table in TABLES}


def _rows(made: ClusterReport, table: str) -> Sequence[dict[str, object]]:
    return [
        dict(_field(name, value) for name, value in asdict(row).items())
        for row in rows_of(made, table)
    ]


def _field(name: str, value: object) -> tuple[str, object]:
    if name.endswith("_at_ms"):
        return name.removesuffix("_at_ms"), time_text(value) if isinstance(value, int) else None
    return name, round(value, 3) if name in _RATES and isinstance(value, float) else value
