"""Options that many verbs share."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_NAMESERVER: Final = "127.0.0.1:9876"


def nameserver_option(function: F) -> F:
    """Add `--nameserver`, which becomes the argument `nameserver`."""
    return click.option(
        "--nameserver",
        default=DEFAULT_NAMESERVER,
        show_default=True,
        metavar="HOST:PORT",
        help="NameServer to ask; several separated by commas.",
    )(function)


def output_option(function: F) -> F:
    """Add `-o`, which becomes the argument `output`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="For people or for programs.",
    )(function)
