"""Options of several verbs."""

import contextlib
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from ternmq_model.arguments import fault_of_time_ms
from ternmq_model.default_nameserver import DEFAULT_NAMESERVER, NAMESERVER_VARIABLE

F = TypeVar("F", bound=Callable[..., Any])

HEALTH_VARIABLE: Final = "TERNMQ_HEALTH"


def _integer_of(bits: int) -> Callable[[object], int]:
    """Return an integer type. Unlike those of `click.IntRange`, its bounds are not in the help."""
    most = (1 << bits - 1) - 1

    def integer(value: object) -> int:
        number: int = click.INT(value)
        if number > most:
            raise click.BadParameter(f"{number} does not fit: the largest is {most}.")
        if number < -most - 1:
            raise click.BadParameter(f"{number} does not fit: the smallest is {-most - 1}.")
        return number

    return integer


INT32: Final = _integer_of(32)
INT64: Final = _integer_of(64)
"""Numbers that fit into a request. The broker checks their meaning."""


def seconds(least: float, most: float) -> Callable[[object], float]:
    """Return a type for seconds between two bounds. Unlike `click.FloatRange` it refuses NaN."""

    def number(value: object) -> float:
        given: float = click.FLOAT(value)
        if not least <= given <= most:
            raise click.BadParameter(f"{value} is not between {least:g} and {most:g} seconds.")
        return given

    return number


_UNITS_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_DURATION: Final = re.compile(r"([0-9]{1,15})(d|h|m|s|ms)", re.ASCII)


def duration_ms(text: str) -> int:
    """Return the milliseconds of a duration such as 90m, 24h or 7d. `0` needs no unit.

    Raises:
        BadParameter: The text is no duration.
    """
    match = _DURATION.fullmatch("0s" if text == "0" else text)
    if match is None:
        raise click.BadParameter(f"{text!r} is no duration such as 90m, 24h or 7d")
    return int(match[1]) * _UNITS_MS[match[2]]


def duration_text(duration_ms: int) -> str:
    """Return milliseconds in the largest unit without a fraction: 24h rather than 1440m."""
    unit = next(unit for unit, in_ms in _UNITS_MS.items() if duration_ms % in_ms == 0)
    return f"{duration_ms // _UNITS_MS[unit]}{unit}"


def time_ms(text: str) -> int:
    """Return the Unix milliseconds of a time: ISO 8601, in UTC by default, or Unix milliseconds.

    Raises:
        BadParameter: The text is no time, a time before 1970, or a number in another unit.
    """
    with contextlib.suppress(ValueError, OverflowError, OSError):
        if text.isascii() and text.isdigit():
            at_ms = int(text)
            if fault := fault_of_time_ms(at_ms):
                raise click.BadParameter(f"{text} {fault}")
        else:
            at = datetime.fromisoformat(text)
            at_ms = round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
        if 0 <= at_ms < 1 << 62:
            return at_ms
    raise click.BadParameter(
        f"{text!r} is no time such as 2026-11-20T23:09:07Z, 2026-11-21T00:09:07+01:00 or"
        " 1795216147000"
    )


TIME_HELP: Final = "ISO 8601, in UTC unless it has an offset, or Unix milliseconds."


def time_option(*names: str, help: str, required: bool = False) -> Callable[[F], F]:
    """Return an option for a time, which becomes Unix milliseconds; None = not given."""
    text = f"{help} {TIME_HELP}"
    return click.option(*names, type=time_ms, metavar="TIME", required=required, help=text)


def nameserver_option(function: F) -> F:
    """Add `--nameserver`, which becomes the argument `nameserver`."""
    return click.option(
        "--nameserver",
        default=DEFAULT_NAMESERVER,
        envvar=NAMESERVER_VARIABLE,
        show_default=True,
        metavar="HOST:PORT",
        help=f"NameServers, separated by commas; also read from ${NAMESERVER_VARIABLE}.",
    )(function)


def placement_options(function: F) -> F:
    """Add `--cluster` and `--broker`, which become the arguments `cluster` and `brokers`."""
    function = click.option(
        "--broker",
        "brokers",
        multiple=True,
        help="Restrict the command to this broker; may be repeated.",
    )(function)
    return click.option(
        "--cluster", default="", help="Restrict the command to brokers of this cluster."
    )(function)


def yes_option(function: F) -> F:
    """Add `--yes`, which becomes the argument `yes`."""
    return click.option("--yes", is_flag=True, help="Skip the confirmation.")(function)


def stopped_data_option(whose: str) -> Callable[[F], F]:
    """Return the option `--data`: the directory of a stopped service, which becomes `data`."""
    return click.option(
        "--data",
        type=click.Path(path_type=Path),
        metavar="DIR",
        required=True,
        help=f"Data directory of a stopped {whose}.",
    )


def output_option(function: F) -> F:
    """Add `-o` and `--json`, which become the argument `output`."""
    function = click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        callback=_output,
        help="Form of the output: for people or for programs.",
    )(function)
    return click.option(
        "--json",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_note_json,
        help="Short form of -o json.",
    )(function)


def cluster_options(function: F) -> F:
    """Add `--nameserver`, and `-o` with `--json`: options of every verb that queries a cluster."""
    return nameserver_option(output_option(function))


_JSON: Final = "ternmq.json"


def _note_json(context: click.Context, _: click.Parameter, given: bool) -> None:
    context.meta[_JSON] = given


def _output(context: click.Context, _: click.Parameter, given: str) -> str:
    return "json" if context.meta.get(_JSON) else given
