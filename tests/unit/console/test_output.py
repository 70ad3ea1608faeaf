"""Tables for people, JSON for programs."""

import asyncio
import json
from collections.abc import AsyncGenerator

import pytest

from ternmq_console.output import print_names, print_record, print_rows


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
