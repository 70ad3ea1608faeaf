"""`ternmq user …`, except the recovery of an administrator."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click

from ternmq_console.access.cluster_access import access_of, changed_access
from ternmq_console.access.issued_token import (
    credentials_written,
    issue_token,
    new_origin,
    print_token,
    token_options,
    token_row,
)
from ternmq_console.cli.exit_codes import errors_as_exits
from ternmq_console.cli.options import cluster_options, yes_option
from ternmq_console.cli.output import Row, confirm, print_line, print_record, print_rows
from ternmq_model.errors import UsageError
from ternmq_runtime.clock import SystemClock
from ternmq_security.access.access_table import AccessTable, first_administrator
from ternmq_security.access.user import TokenHash, User

_FIRST: Final = (
    "{name} becomes the first user, and administrator of everything. From then on callers without",
    "identity are refused, brokers and slaves included: they need users with replicate on cluster.",
    "To let callers without identity go on, first grant permissions to the user anonymous.",
)


@click.command()
@click.argument("name")
@click.option(
    "--subject",
    "subjects",
    multiple=True,
    metavar="TEXT",
    help="Subject of a certificate of the user, as `ternmq cert show` prints it; may be repeated.",
)
@click.option("--token/--no-token", "has_token", default=True, help="Make a token, or do not.")
@token_options
@yes_option
@cluster_options
def create(
    name: str,
    subjects: Sequence[str],
    *,
    has_token: bool,
    lifetime_ms: int | None,
    path: Path | None,
    ca: Path | None,
    yes: bool,
    nameserver: str,
    output: str,
) -> None:
    """Create the user NAME, and print a new token.

    The token is printed only once. The first user becomes administrator, after a confirmation.
    """
    with errors_as_exits(), ExitStack() as stack:
        text, tokens = "", tuple[TokenHash, ...]()
        if has_token:
            text, token = issue_token(name, lifetime_ms)
            stack.enter_context(credentials_written(path, text, ca))
            tokens = (token,)
        elif lifetime_ms is not None or path or ca:
            raise UsageError("--expires, --credentials-file and --ca need a token")
        user = User(name, tokens, tuple(subjects))
        is_first, origin = not access_of(nameserver).users, new_origin()
        if is_first and not yes:
            for line in _FIRST:
                print_line(line.format(name=name), to_stderr=True)
            confirm("Go on?")

        def change(table: AccessTable) -> AccessTable:
            return first_administrator(table, user, origin) if is_first else table.with_user(user)

        table = changed_access(nameserver, change)
    if tokens:
        print_token(name, text, tokens[0], path, output)
    else:
        print_record(_row(table, name), output)


@click.command("list")
@cluster_options
def list_(nameserver: str, output: str) -> None:
    """List users with the ids of their tokens, and the subjects of their certificates."""
    rows: list[Row] = [
        {
            "user": each.name,
            "tokens": [token.token_id for token in each.tokens],
            "subjects": each.subjects,
        }
        for each in access_of(nameserver).users
    ]
    print_rows(rows, ("user", "tokens", "subjects"), output)


@click.command()
@click.argument("name")
@cluster_options
def show(name: str, nameserver: str, output: str) -> None:
    """Show the tokens, subjects and permissions of the user NAME."""
    table = access_of(nameserver)
    with errors_as_exits():
        print_record(_row(table, name), output)


@click.command()
@click.argument("name")
@token_options
@cluster_options
def rotate(
    name: str,
    *,
    lifetime_ms: int | None,
    path: Path | None,
    ca: Path | None,
    nameserver: str,
    output: str,
) -> None:
    """Make a second token of the user NAME, and print it.

    The first one stays valid until `ternmq user revoke`. Two are valid at most.
    """
    with errors_as_exits():
        text, token = issue_token(name, lifetime_ms)
        now_ms = SystemClock().wall_ms()
        with credentials_written(path, text, ca):
            changed_access(nameserver, lambda table: table.with_token(name, token, now_ms))
    print_token(name, text, token, path, output)


@click.command()
@click.argument("name")
@click.argument("token_id")
@cluster_options
def revoke(name: str, token_id: str, nameserver: str, output: str) -> None:
    """Revoke the token TOKEN_ID of the user NAME. Open streams that show it end."""
    table = changed_access(nameserver, lambda table: table.without_token(name, token_id))
    print_record(_row(table, name), output)


@click.command()
@click.argument("name")
@cluster_options
def remove(name: str, nameserver: str, output: str) -> None:
    """Remove the user NAME with its tokens and permissions."""
    table = changed_access(nameserver, lambda table: table.without_user(name))
    print_record({"removed": name, "users": len(table.users)}, output)


@click.command()
@click.argument("name")
@click.option("--add", "added", multiple=True, metavar="TEXT", help="New subject; may be repeated.")
@click.option(
    "--remove", "removed", multiple=True, metavar="TEXT", help="Former subject; may be repeated."
)
@cluster_options
def subject(
    name: str, *, added: Sequence[str], removed: Sequence[str], nameserver: str, output: str
) -> None:
    """Change the subjects of certificates that identify the user NAME."""
    table = changed_access(
        nameserver, lambda table: table.with_subjects(name, added=added, removed=removed)
    )
    print_record(_row(table, name), output)


@click.command("deny-certificate")
@click.option("--subject", default="", metavar="TEXT", help="Subject of certificates.")
@click.option("--serial", default="", metavar="HEX", help="Serial number of a certificate.")
@cluster_options
def deny_certificate(*, subject: str, serial: str, nameserver: str, output: str) -> None:
    """Deny certificates, whoever they belong to; without options, list the denied ones."""
    table = changed_access(
        nameserver, lambda table: table.with_denied_certificate(subject=subject, serial=serial)
    )
    _print_denied(table, output)


@click.command("undeny-certificate")
@click.option("--subject", default="", metavar="TEXT", help="Denied subject.")
@click.option("--serial", default="", metavar="HEX", help="Denied serial number.")
@cluster_options
def undeny_certificate(*, subject: str, serial: str, nameserver: str, output: str) -> None:
    """Stop denying certificates."""
    if not subject and not serial:
        raise click.UsageError("give --subject or --serial")
    table = changed_access(
        nameserver, lambda table: table.without_denied_certificate(subject=subject, serial=serial)
    )
    _print_denied(table, output)


def _print_denied(table: AccessTable, output: str) -> None:
    denied = [("subject", each) for each in table.denied_subjects]
    denied += [("serial", each) for each in table.denied_serials]
    print_rows(
        [{"kind": kind, "denied": each} for kind, each in denied], ("kind", "denied"), output
    )


def _row(table: AccessTable, name: str) -> Row:
    user = table.existing(name)
    grants = [f"{each.effect} {each.action} {each.pattern}" for each in table.grants_of(name)]
    return {
        "user": name,
        "tokens": [token_row(each) for each in user.tokens],
        "subjects": user.subjects,
        "permissions": grants,
    }
