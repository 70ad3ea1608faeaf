"""Tables for people, JSON for programs."""

import asyncio
import io
import json
import sys
from collections.abc import AsyncGenerator

import click
import pytest
from click.testing import CliRunner

from ternmq_console.cli.output import (
    PrintableStream,
    confirm,
    confirm_losses,
    make_output_visible,
    print_json,
    print_line,
    print_lines,
    print_names,
    print_raw,
    print_record,
    print_rows,
)
from ternmq_model.errors import Unreachable

HOSTILE = "x\x1b[2J\r\n\t\x9by"
SHOWN = r"x\x1b[2J\r\n\t\x9by"


def test_table_aligns_columns_and_right_aligns_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": "a", "max_offset": 5}, {"name": "long", "max_offset": 12_345}]
    print_rows(rows, ("name", "max_offset"), "table")
    assert capsys.readouterr().out.splitlines() == [
        "name  max offset",
        "a              5",
        "long       12345",
    ]


def test_empty_table_has_its_headings(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([], ("name",), "table")
    assert capsys.readouterr().out == "name\n"


def test_json_has_fields_the_table_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"name": "a", "more": [1]}], ("name",), "json")
    assert json.loads(capsys.readouterr().out) == [{"name": "a", "more": [1]}]


def test_record_is_shown_with_a_field_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_record({"topic": "T", "brokers": ["a", "b"], "last": None, "is_ok": True}, "table")
    assert capsys.readouterr().out.splitlines() == [
        "topic    T",
        "brokers  a, b",
        "last     ",
        "is ok    yes",
    ]


@pytest.mark.parametrize("names", [[], ["t"], ["t", 'a"b', "\u00fc"]])
@pytest.mark.parametrize("output", ["table", "json"])
def test_names_that_come_in_pages_are_printed_as_rows_are(
    names: list[str], output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def pages() -> AsyncGenerator[list[str]]:
        yield names[:2]
        yield []
        yield names[2:]

    asyncio.run(print_names(pages(), "topic", output))
    paged = capsys.readouterr().out
    print_rows([{"topic": name} for name in names], ("topic",), output)
    assert paged == capsys.readouterr().out


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize("pages_before", [0, 1])
def test_names_whose_pages_fail_leave_no_heading_and_no_open_document(
    pages_before: int, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def pages() -> AsyncGenerator[list[str]]:
        for _ in range(pages_before):
            yield ["a", "b"]
        raise Unreachable("ns:9876")

    with pytest.raises(Unreachable):
        asyncio.run(print_names(pages(), "topic", output))
    printed = capsys.readouterr().out
    if not pages_before:
        assert not printed
    elif output == "json":
        assert [row["topic"] for row in json.loads(printed)] == ["a", "b"]
    else:
        assert printed.split() == ["topic", "a", "b"]


def test_cells_fields_and_lines_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"a": HOSTILE, "n": 1}], ("n", "a"), "table")
    print_record({HOSTILE: [HOSTILE]}, "table")
    print_line(HOSTILE)
    print_lines([HOSTILE] * 300)
    lines = capsys.readouterr().out.split("\n")
    assert lines[:4] == ["n  a", f"1  {SHOWN}", f"{SHOWN}  {SHOWN}", SHOWN]
    assert lines[4:] == [*[SHOWN] * 300, ""]


def test_kept_characters_and_standard_error_are_used(capsys: pytest.CaptureFixture[str]) -> None:
    print_line("a\tb\x1b", keep="\t", to_stderr=True)
    assert capsys.readouterr() == ("", "a\tb\\x1b\n")


def test_json_is_parsed_to_the_same_texts(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({HOSTILE: HOSTILE})
    [line] = capsys.readouterr().out.split("\n")[:-1]
    assert line.isprintable()
    assert json.loads(line) == {HOSTILE: HOSTILE}


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "UTF8"])
def test_json_is_parsed_to_the_same_texts_whatever_the_encoding(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    make_output_visible()
    text = "\u00fc\u4e2d\U0001f468" + HOSTILE

    async def pages() -> AsyncGenerator[list[str]]:
        yield [text]

    print_json({text: text})
    asyncio.run(print_names(pages(), "topic", "json"))
    sys.stdout.flush()
    first, _, rest = raw.getvalue().decode().partition("\n")
    assert json.loads(first) == {text: text}
    assert json.loads(rest) == [{"topic": text}]
    assert ("\u00fc" in first) == (encoding == "UTF8")


def test_long_cell_does_not_widen_its_column(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"a": "x" * 1000, "b": "y"}, {"a": "z", "b": "y"}], ("a", "b"), "table")
    assert [len(line) for line in capsys.readouterr().out.splitlines()] == [4, 1003, 4]


def test_long_name_of_a_field_does_not_widen_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    print_record({"x" * 1000: "y", "z": "y"}, "table")
    print_record({"x" * 1000: "y"}, "table")
    assert [len(line) for line in capsys.readouterr().out.splitlines()] == [1003, 4, 1003]


def test_stream_shows_what_click_and_python_print_beside_us() -> None:
    @click.command()
    def command() -> None:
        make_output_visible()
        make_output_visible()
        print("a\x1b\tb\x9b\udc9b")
        sys.stderr.writelines(["\x07", "\u202e\n"])
        click.echo("\x1b[2J")
        assert not hasattr(sys.stdout, "buffer")
        assert sys.stdout.encoding == "utf-8"
        print_raw(b"\x1b\xff")

    done = CliRunner().invoke(command, color=True, catch_exceptions=False)
    assert done.stdout_bytes == b"a\\x1b\tb\\x9b\\udc9b\n\\x1b[2J\n\x1b\xff"
    assert done.stderr == "\\x07\\u202e\n"


@pytest.mark.parametrize("closed", [("stdout",), ("stderr",), ("stdout", "stderr")])
def test_closed_stream_stays_closed_and_only_raw_bytes_need_it(
    closed: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None if name in closed else io.StringIO())
    make_output_visible()
    print_line("a")
    print_line("b", to_stderr=True)
    print_json([])
    for name in closed:
        assert getattr(sys, name) is None
    if "stdout" in closed:
        with pytest.raises(click.UsageError, match="closed stream"):
            print_raw(b"")


@pytest.mark.parametrize(("told", "code"), [("y\n", 0), ("n\n", 1), ("", 1)])
def test_question_about_a_hostile_name_is_one_line(told: str, code: int) -> None:
    @click.command()
    def command() -> None:
        confirm_losses([HOSTILE, HOSTILE])
        confirm(f"Drop {HOSTILE}?")

    done = CliRunner().invoke(command, input="y\n" + told, color=True)
    assert done.exit_code == code
    lines = done.stderr.split("\n")
    assert lines[:2] == [SHOWN, SHOWN]
    assert [line.split(":")[0] for line in lines if "?" in line] == [
        "Go on? [y/N]",
        f"Drop {SHOWN}? [y/N]",
    ]


def test_question_is_answered_by_no_where_standard_input_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(click.Abort):
        confirm("Go on?")


def test_characters_that_the_encoding_lacks_are_escapes() -> None:
    raw = io.BytesIO()
    stream = PrintableStream(io.TextIOWrapper(raw, encoding="ascii"))
    stream.write("ä中\n")
    stream.flush()
    assert raw.getvalue() == b"\\xe4\\u4e2d\n"
