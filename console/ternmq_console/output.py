"""Printing what a verb found: a table for people, one JSON document for programs."""

import json
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from textwrap import indent
from typing import cast

import click

Row = Mapping[str, object]


def print_rows(rows: Sequence[Row], columns: Sequence[str], output: str) -> None:
    """Print `rows` as a table with `columns`, or as a JSON list.

    Args:
        rows: Each has every column, and may have more that only JSON shows.
        columns: What the table shows, in this order.
        output: `table` or `json`.
    """
    if output == "json":
        click.echo(json.dumps(list(rows), ensure_ascii=False, indent=2))
        return
    cells = [[_text(row[column]) for column in columns] for row in rows]
    headings = [column.replace("_", " ") for column in columns]
    widths = [max(len(line[place]) for line in [headings, *cells]) for place in range(len(columns))]
    numeric = [
        bool(rows) and all(isinstance(row[column], int) for row in rows) for column in columns
    ]
    for line in [headings, *cells]:
        parts = [
            part.rjust(width) if is_number else part.ljust(width)
            for part, width, is_number in zip(line, widths, numeric, strict=True)
        ]
        click.echo("  ".join(parts).rstrip())


async def print_names(pages: AsyncIterable[Iterable[str]], column: str, output: str) -> None:
    """Print names as they come, as `print_rows` prints rows of that one column."""
    if output != "json":
        click.echo(column.replace("_", " "))
    is_first = True
    async for page in pages:
        for name in page:
            if output != "json":
                click.echo(name)
                continue
            row = json.dumps({column: name}, ensure_ascii=False, indent=2)
            click.echo(("[\n" if is_first else ",\n") + indent(row, "  "), nl=False)
            is_first = False
    if output == "json":
        click.echo("[]" if is_first else "\n]")


def print_record(record: Row, output: str) -> None:
    """Print one thing, a field a line, or as a JSON object."""
    if output == "json":
        click.echo(json.dumps(record, ensure_ascii=False, indent=2))
        return
    width = max(len(name) for name in record)
    for name, value in record.items():
        click.echo(f"{name.replace('_', ' ').ljust(width)}  {_text(value)}")


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        parts = cast("Mapping[object, object]", value)
        return " ".join(f"{name}={_text(part)}" for name, part in parts.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, cast("Sequence[object]", value)))
    return "" if value is None else str(value)
