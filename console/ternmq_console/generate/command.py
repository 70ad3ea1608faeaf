"""`ternmq generate …`: files for Grafana and Prometheus."""

from pathlib import Path
from typing import Final

import click

from ternmq_console.cli.exit_codes import errors_as_exits
from ternmq_console.cli.output import print_line, print_lines
from ternmq_console.generate.alert_rules import RUNBOOKS, AlertThresholds, alert_rules, rules_text
from ternmq_console.generate.boards import BOARDS
from ternmq_console.generate.panels import board_json
from ternmq_model.printable_text import printable_json
from ternmq_runtime.settings.loader import load_settings

JOB: Final = "ternmq"
"""Name of the scrape job in the documentation."""


@click.command()
@click.option(
    "--out",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=".",
    show_default=True,
    metavar="DIR",
    help="Folder, made if it is missing.",
)
def grafana(folder: Path) -> None:
    """Write the boards cluster, topic, group and store: DIR/ternmq-NAME.json.

    Grafana 10 or later imports them, or finds them in a folder that it provisions. Existing files
    are replaced.
    """
    with errors_as_exits():
        folder.mkdir(parents=True, exist_ok=True)
        for board in BOARDS:
            _write(
                folder / f"ternmq-{board.name}.json", printable_json(board_json(board), indent=2)
            )


@click.command(name="prometheus-rules")
@click.option(
    "--out",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File to write or replace.  [default: standard output]",
)
@click.option(
    "--set",
    "given",
    multiple=True,
    metavar="alerts.NAME=VALUE",
    help="Threshold of docs/howto/observe.md, such as alerts.lag_s=10m; may be repeated.",
)
@click.option(
    "--job", default=JOB, show_default=True, help="Scrape job of all brokers and NameServers."
)
@click.option(
    "--runbooks",
    default=RUNBOOKS,
    show_default=True,
    metavar="URL",
    help="Page to link, with a heading for each alert.",
)
def prometheus_rules(file: Path | None, given: tuple[str, ...], job: str, runbooks: str) -> None:
    """Write alert rules for Prometheus."""
    with errors_as_exits():
        settings = load_settings({"alerts": AlertThresholds}, environ={}, flags=given)
        text = rules_text(alert_rules(settings[AlertThresholds], job), runbooks)
        if file is not None:
            _write(file, text.rstrip())
            return
    print_lines(text.splitlines())


def _write(file: Path, text: str) -> None:
    file.write_text(f"{text}\n", "utf-8")
    print_line(f"wrote {file}", to_stderr=True)
