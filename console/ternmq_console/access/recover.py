"""`ternmq user recover`: the way back when no administrator is left."""

from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click

from ternmq_console.access.issued_token import (
    credentials_written,
    issue_token,
    new_origin,
    print_token,
    token_options,
)
from ternmq_console.broker.epoch_directories import lock_nameserver
from ternmq_console.cli.exit_codes import errors_as_exits
from ternmq_console.cli.options import output_option, stopped_data_option, yes_option
from ternmq_console.cli.output import confirm, print_line
from ternmq_runtime.durable_file import read_newest
from ternmq_runtime.table_store import save_table
from ternmq_security.access.access_table import (
    AccessTable,
    Doubt,
    access_table_from_json,
    recovered,
)
from ternmq_security.access_store import FILE_NAME

_ANEW: Final = (
    "this NameServer has never known the users: the administrator begins a new table, which"
    " services with users do not take"
)


@click.command()
@click.argument("name")
@stopped_data_option("NameServer")
@token_options
@yes_option
@output_option
def recover(
    name: str,
    *,
    data: Path,
    lifetime_ms: int | None,
    path: Path | None,
    ca: Path | None,
    yes: bool,
    output: str,
) -> None:
    """Make the user NAME an administrator with a new token, and print it.

    A user of that name loses its other tokens, subjects and permissions. Other users stay. Of
    several NameServers, one is enough: it passes the change on when it runs again.
    """
    with errors_as_exits(), ExitStack() as stack:
        lock_nameserver(data, stack)
        file = data / FILE_NAME
        text, token = issue_token(name, lifetime_ms)
        present = read_newest(file, access_table_from_json) or AccessTable()
        if not present.users and present.doubt is not Doubt.NONE:
            print_line(_ANEW, to_stderr=True)
        changed = recovered(present, name, token, new_origin())
        if present.user(name) is not None and not yes:
            confirm(f"Replace the user {name} with its tokens, subjects and permissions?")
        stack.enter_context(credentials_written(path, text, ca))
        save_table(file, changed)
    print_line(
        "with several NameServers, this one is enough: start it, and it passes the change on",
        to_stderr=True,
    )
    print_token(name, text, token, path, output)
