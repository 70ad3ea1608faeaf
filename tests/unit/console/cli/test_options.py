import time

import click
import pytest
from click.testing import CliRunner

from ternmq_console.cli.admin_query import time_text
from ternmq_console.cli.options import (
    INT32,
    duration_ms,
    duration_text,
    nameserver_option,
    seconds,
    time_ms,
)
from ternmq_console.main import ternmq
from ternmq_model.default_nameserver import DEFAULT_NAMESERVER, NAMESERVER_VARIABLE


@pytest.mark.parametrize(
    ("text", "in_ms", "told"),
    [
        ("24h", 86_400_000, "1d"),
        ("90m", 5_400_000, "90m"),
        ("7d", 604_800_000, "7d"),
        ("1500ms", 1_500, "1500ms"),
        ("0", 0, "0d"),
    ],
)
def test_duration_is_parsed_and_shown_in_units(text: str, in_ms: int, told: str) -> None:
    assert duration_ms(text) == in_ms
    assert duration_text(in_ms) == told


@pytest.mark.parametrize("text", ["", "24", "h", "1.5h", "-1h", "24 h", "1w"])
def test_malformed_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="no duration"):
        duration_ms(text)


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-20T23:09:07.5",
        "2026-11-20T23:09:07.500Z",
        "2026-11-21T00:09:07.500+01:00",
        "1795216147500",
    ],
)
def test_time_without_an_offset_is_in_utc_wherever_the_shell_is(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert time_ms(text) == 1_795_216_147_500
        assert time_text(time_ms(text)) == "2026-11-20T23:09:07.500Z"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "line",
    [
        "group create G --retries 99999999999",
        "group create G --broker-id 99999999999",
        "group reset G --topic T --to-offset 99999999999999999999",
        "topic create T --queues 99999999999",
        "topic alter T --queues 99999999999",
        "message query-by-offset T --broker B --queue 99999999999 --offset 0",
        "message query-by-offset T --broker B --queue 0 --offset 99999999999999999999",
        "message print T --broker B --queue 99999999999",
    ],
)
def test_number_no_request_can_hold_is_refused_in_words(line: str) -> None:
    refused = CliRunner().invoke(ternmq, [*line.split(), "--nameserver", "127.0.0.1:1"])
    assert refused.exit_code == 2
    assert "does not fit: the largest is" in refused.stderr


def test_environment_names_the_nameserver_of_a_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    @click.command()
    @nameserver_option
    def verb(nameserver: str) -> None:
        asked.append(nameserver)

    monkeypatch.setenv(NAMESERVER_VARIABLE, "ns-1:9876,ns-2:9876")
    CliRunner().invoke(verb)
    CliRunner().invoke(verb, ["--nameserver", "other:1"])
    monkeypatch.delenv(NAMESERVER_VARIABLE)
    CliRunner().invoke(verb)
    assert asked == ["ns-1:9876,ns-2:9876", "other:1", DEFAULT_NAMESERVER]


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "-1", "0", "0.09", "60.1", "x", ""])
def test_seconds_are_a_number_within_bounds(text: str) -> None:
    with pytest.raises(click.BadParameter):
        seconds(0.1, 60.0)(text)
    assert seconds(0.1, 60.0)("0.1") == 0.1


def test_number_that_does_not_fit_is_told_from_the_end_that_it_is_beyond() -> None:
    with pytest.raises(click.BadParameter, match="the largest is 2147483647"):
        INT32("2147483648")
    with pytest.raises(click.BadParameter, match="the smallest is -2147483648"):
        INT32("-2147483649")


@pytest.mark.parametrize(
    ("text", "told"), [("1800000000", "1970-01-21"), ("1800000000000000000", "nanoseconds")]
)
def test_time_in_another_unit_is_refused_by_the_name_of_its_option(text: str, told: str) -> None:
    line = f"group reset G --topic T --to-time {text} --nameserver 127.0.0.1:1"
    refused = CliRunner().invoke(ternmq, line.split())
    assert refused.exit_code == 2
    assert "--to-time" in refused.stderr
    assert told in refused.stderr
