"""Exit codes and the line that goes with them."""

import os
import subprocess
import sys

import pytest

from ternmq_client.admin.descriptions import UnreachableBroker, require_all
from ternmq_console.cli.exit_codes import errors_as_exits, exit_code
from ternmq_console.main import ternmq
from ternmq_model.errors import (
    AccessNotFound,
    CannotListen,
    ConfigError,
    ConnectionLost,
    IllegalName,
    SettingsError,
    StoreLocked,
    Unreachable,
    refusal,
)
from ternmq_model.response_code import ResponseCode


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("broker.port", -1, "must be 0 to 65535"), 2),
        (IllegalName("topic", "a b", "no blanks"), 2),
        (refusal(ResponseCode.INVALID_PARAMETER, "queue 9"), 2),
        (refusal(ResponseCode.MESSAGE_ILLEGAL, "too long"), 2),
        (refusal(ResponseCode.TOPIC_NOT_EXIST, "topic x"), 3),
        (refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "group x"), 3),
        (refusal(ResponseCode.QUERY_NOT_FOUND, "message x"), 3),
        (refusal(ResponseCode.BROKER_NOT_EXIST, "broker x"), 3),
        (AccessNotFound("no user 'x' exists"), 3),
        (FileNotFoundError(2, "No such file or directory", "x"), 3),
        (Unreachable("127.0.0.1:1"), 4),
        (ConnectionLost("127.0.0.1:1"), 4),
        (refusal(ResponseCode.SYSTEM_BUSY, "busy"), 1),
        (StoreLocked("data"), 1),
        (CannotListen("127.0.0.1:9876"), 1),
    ],
)
def test_error_has_the_exit_code_of_its_kind(error: Exception, code: int) -> None:
    assert exit_code(error) == code


def test_error_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught, errors_as_exits():
        raise Unreachable("127.0.0.1:1:\n  nobody listens")
    assert caught.value.code == 4
    assert capsys.readouterr().err == "ternmq: 127.0.0.1:1: nobody listens\n"


def test_error_inside_exception_groups_counts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught, errors_as_exits():
        raise ExceptionGroup("jobs", [ExceptionGroup("more", [StoreLocked("data is held")])])
    assert caught.value.code == 1
    assert "data is held" in capsys.readouterr().err


def test_all_bad_settings_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught, errors_as_exits():
        raise SettingsError(["one", "two"])
    assert caught.value.code == 2
    assert capsys.readouterr().err == "ternmq: one\nternmq: two\n"


def test_brokers_without_an_answer_are_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"b{number}" for number in range(300)]
    with pytest.raises(SystemExit) as caught, errors_as_exits():
        require_all(UnreachableBroker(name, ("h:1",), "silent") for name in names)
    assert caught.value.code == 4
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"ternmq: no answer from broker {name} (h:1): silent" for name in names]


def test_help_tells_that_an_answer_in_part_has_the_code_of_what_is_unreachable() -> None:
    assert "4 unreachable or printed in part" in (ternmq.help or "")


def test_bug_is_not_hidden() -> None:
    with pytest.raises(ExceptionGroup), errors_as_exits():
        raise ExceptionGroup("jobs", [ZeroDivisionError()])
    with pytest.raises(ZeroDivisionError), errors_as_exits():
        raise ZeroDivisionError


PRINTS = """
import click
from ternmq_console.cli.exit_codes import errors_as_exits
from ternmq_console.cli.lazy_group import LazyGroup

class Printing(LazyGroup):
    def get_command(self, ctx, cmd_name):
        return click.Command(cmd_name, callback=getattr(self, cmd_name))

    def caught(self):
        with errors_as_exits():
            print("nobody reads this", flush=True)

    def plain(self):
        click.echo("nobody reads this")

Printing(name="printing", help="", lazy={}).main()
"""


@pytest.mark.parametrize("verb", ["caught", "plain"])
def test_departed_reader_is_no_failure(verb: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(
            [sys.executable, "-c", PRINTS, verb],
            stdout=write_end,
            stderr=subprocess.PIPE,
            timeout=30,
        )
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (141, b"")
