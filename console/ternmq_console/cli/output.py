"""Output of all verbs: lines, tables for people, JSON documents for programs.

Names and bodies come from any sender of messages. They must not move the cursor of a terminal or
imitate lines of the console. So verbs print only by these functions, which escape unprintable
characters. A stream escapes the output of click and Python.
"""

import codecs
import io
import sys
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from itertools import islice
from textwrap import indent
from typing import Any, Final, TextIO, cast

import click

from ternmq_model.printable_text import printable, printable_json

Row = Mapping[str, object]

_LINES_AT_ONCE: Final = 256
_PADDED_MAX: Final = 120
"""Longest cell or field name that widens its column: one message must not widen a table."""


class PrintableStream:
    """Text stream that writes only printable text to another stream.

    The stream has no `buffer`, so click and verbs cannot bypass it.
    """

    def __init__(self, inner: TextIO) -> None:
        self.inner = inner
        if isinstance(inner, io.TextIOWrapper):
            # Characters that the terminal's encoding lacks are escapes, too, and no traceback.
            inner.reconfigure(errors="backslashreplace")

    def write(self, text: str | bytes) -> int:
        """Write `text`; line ends and tabs stay. Bytes are UTF-8, such as click's completions."""
        shown = text.decode() if isinstance(text, bytes) else text
        self.inner.write(printable(shown, keep="\n\t"))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the other stream, such as its encoding."""
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self.inner, name)


def make_output_visible() -> None:
    """Put a `PrintableStream` in front of standard output and error. Safe to repeat.

    A stream that the caller has closed stays None; click prints nothing there.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, PrintableStream):
            setattr(sys, name, PrintableStream(stream))


def print_line(text: str = "", *, keep: str = "", to_stderr: bool = False) -> None:
    """Print one line.

    Args:
        text: Text of the line, with any characters.
        keep: Unprintable characters that are not escaped, such as tabs.
        to_stderr: True = print on standard error.
    """
    click.echo(printable(text, keep=keep), err=to_stderr)


def print_lines(lines: Iterable[str]) -> None:
    """Print many lines, in portions of some hundred."""
    rest = map(printable, lines)
    while some := list(islice(rest, _LINES_AT_ONCE)):
        click.echo("\n".join(some))


def print_json(value: object, *, indent: int | None = None) -> None:
    """Print `value` as JSON, in one line unless it is indented."""
    click.echo(_json(value, indent=indent))


def _json(value: object, *, indent: int | None) -> str:
    # What an encoding lacks, the stream shows as an escape of Python's, which is no JSON.
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    is_utf_8 = codecs.lookup(encoding).name == "utf-8"
    return printable_json(value, indent=indent, ensure_ascii=not is_utf_8)


def confirm(question: str) -> None:
    """Ask on standard error, in one line.

    Raises:
        Abort: The answer is no, or standard input is closed.
    """
    if cast("TextIO | None", sys.stdin) is None:
        raise click.Abort
    click.confirm(printable(question), abort=True, err=True)


def confirm_losses(lines: Sequence[str]) -> None:
    """Print the losses and ask for a confirmation. Without losses, do not ask.

    Raises:
        Abort: The answer is no, or standard input is closed.
    """
    for line in lines:
        print_line(line, to_stderr=True)
    if lines:
        confirm("Go on?")


def print_raw(data: bytes) -> None:
    """Print bytes as they are.

    Raises:
        UsageError: Standard output is a terminal, or closed.
    """
    stream = cast("Any", sys.stdout)
    if stream is None or stream.isatty():
        where = "a terminal" if stream else "a closed stream"
        raise click.UsageError(f"raw bytes are not printed on {where}: use a file or a pipe")
    raw = getattr(stream, "inner", stream).buffer
    raw.write(data)
    raw.flush()


def fields(source: object, *names: str) -> dict[str, object]:
    """Return attributes of `source` by name, in the order of `names`."""
    return {name: getattr(source, name) for name in names}


def print_rows(rows: Sequence[Row], columns: Sequence[str], output: str) -> None:
    """Print `rows` as a table with `columns`, or as a JSON list.

    Args:
        rows: Rows with at least these columns. JSON has all of their columns.
        columns: Columns of the table, in order.
        output: `table` or `json`.
    """
    if output == "json":
        print_json(list(rows), indent=2)
        return
    cells = [[printable(_text(row[column])) for column in columns] for row in rows]
    headings = [column.replace("_", " ") for column in columns]
    widths = [
        max(len(line[place]) for line in [headings, *cells] if len(line[place]) <= _PADDED_MAX)
        for place in range(len(columns))
    ]
    numeric = [
        bool(rows) and all(isinstance(row[column], int) for row in rows) for column in columns
    ]
    for line in [headings, *cells]:
        parts = [
            part.rjust(width) if is_number else part.ljust(width)
            for part, width, is_number in zip(line, widths, numeric, strict=True)
        ]
        print_line("  ".join(parts).rstrip())


async def print_names(pages: AsyncIterable[Iterable[str]], column: str, output: str) -> None:
    """Print names page by page, in the form of `print_rows` with one column.

    After a failed page the JSON document is still complete; before the first page nothing is
    printed.
    """
    is_first = True
    if output != "json":
        async for page in pages:
            print_lines([column.replace("_", " "), *page] if is_first else page)
            is_first = False
        return
    try:
        async for page in pages:
            for name in page:
                row = indent(_json({column: name}, indent=2), "  ")
                click.echo(("[\n" if is_first else ",\n") + row, nl=False)
                is_first = False
        if is_first:
            click.echo("[]")
    finally:
        if not is_first:
            click.echo("\n]")


def print_record(record: Row, output: str) -> None:
    """Print a record with one field on each line, or as a JSON object."""
    if output == "json":
        print_json(record, indent=2)
        return
    width = max((len(name) for name in record if len(name) <= _PADDED_MAX), default=0)
    for name, value in record.items():
        print_line(f"{name.replace('_', ' ').ljust(width)}  {_text(value)}")


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        parts = cast("Mapping[object, object]", value)
        return " ".join(f"{name}={_text(part)}" for name, part in parts.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, cast("Sequence[object]", value)))
    return "" if value is None else str(value)
