"""`ternmq transaction …`: open transactions."""

from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Final

import click

from ternmq_client.admin.descriptions import BrokersUnreachable, require_all
from ternmq_client.admin.open_transactions import OpenBatch, StagedRollback
from ternmq_console.cli.admin_query import ask, print_found
from ternmq_console.cli.exit_codes import FAILED, NOT_FOUND, errors_as_exits
from ternmq_console.cli.options import cluster_options, yes_option
from ternmq_console.cli.output import confirm_losses, fields, print_line, print_rows

_COLUMNS = ("query", "batch", "broker", "group", "topic", "rows", "age", "rolled_back_in")

_REPEAT: Final = "repeat the command for the rest; repeating is safe"

_query_help = "Query id of Spark, SPARK_QUERY of its rows; or another owner of staged rows."
_broker_option = click.option(
    "--broker",
    "brokers",
    multiple=True,
    metavar="BROKER",
    help="Restrict the command to this broker; may be repeated.",
)
_batch_option = click.option(
    "--batch",
    type=click.IntRange(0),
    metavar="N",
    help="Restrict the command to this batch of the query.",
)


@click.command(name="list")
@click.option("--query", default="", metavar="ID", help=_query_help)
@_batch_option
@_broker_option
@cluster_options
def list_(
    query: str, batch: int | None, brokers: tuple[str, ...], nameserver: str, output: str
) -> None:
    """List open transactions by batch, broker and producer group, the oldest first.

    Rows without a query belong to ordinary transactions, which brokers check at their producers.
    """
    if batch is not None and not query:
        raise click.UsageError("--batch needs --query")
    staged_for = name_of(query, batch)
    found = ask(
        nameserver, lambda admin: admin.open_transactions(staged_for=staged_for, brokers=brokers)
    )
    print_found(found, row_of, _COLUMNS, output)


@click.command()
@click.option("--query", required=True, metavar="ID", help=_query_help)
@_batch_option
@_broker_option
@click.option(
    "--force", is_flag=True, help="Roll back rows with activity in the last 3 minutes too."
)
@yes_option
@cluster_options
def rollback(
    query: str,
    batch: int | None,
    brokers: tuple[str, ...],
    force: bool,
    yes: bool,
    nameserver: str,
    output: str,
) -> None:
    """Roll back the staged rows of a query whose driver is gone, so that none is delivered.

    The command refuses rows with activity in the last 3 minutes: a row was stored, checked or
    committed, or a broker started. A repeat is safe.
    """
    if not query:
        raise click.UsageError("--query: must not be empty")
    staged_for = name_of(query, batch)
    known: dict[str, StagedRollback] = {}
    try:
        if not yes:
            _ask_first(staged_for, brokers, nameserver, force=force)
        done = ask(
            nameserver,
            lambda admin: admin.roll_back_staged(
                staged_for,
                brokers=brokers,
                force=force,
                progress=lambda one: known.update({one.broker_name: one}),
            ),
        )
    except KeyboardInterrupt:
        names = ", ".join(f"{one.rolled_back} on {one.broker_name}" for one in known.values())
        print_line(
            f"ternmq: interrupted; rolled back: {names or 'none'}; {_REPEAT}", to_stderr=True
        )
        raise SystemExit(FAILED) from None
    except SystemExit as left:
        # Without a NameServer its own line, the last one, says all there is to say.
        if isinstance(left.__context__, BrokersUnreachable):
            print_line(f"ternmq: {_REPEAT}, or name those that answer by --broker", to_stderr=True)
        raise
    if not done:
        print_line(f"ternmq: nothing is staged for {staged_for}", to_stderr=True)
        raise SystemExit(NOT_FOUND)
    rows = [
        {"broker": one.broker_name, **fields(one, "rolled_back", "already_ended")} for one in done
    ]
    print_rows(rows, ("broker", "rolled_back", "already_ended"), output)


def _ask_first(staged_for: str, brokers: Collection[str], nameserver: str, *, force: bool) -> None:
    found = ask(
        nameserver, lambda admin: admin.open_transactions(staged_for=staged_for, brokers=brokers)
    )
    with errors_as_exits():
        require_all(found.unreachable)
        if not force:
            for one in found:
                one.check_not_in_use()
    confirm_losses(losses(found))


def name_of(query: str, batch: int | None) -> str:
    """Return the `staged_for` of a query, or of one batch of the query."""
    return query if batch is None else f"{query}/{batch}"


def losses(found: Iterable[OpenBatch]) -> list[str]:
    """Return a line for each batch and broker of a rollback."""
    return [
        f"{one.broker_name}: {one.count} of {one.staged_for} for topic {one.topic}, staged "
        f"{_seconds(one.oldest_ms)} ago: never delivered"
        for one in found
    ]


def row_of(one: OpenBatch) -> dict[str, object]:
    """Return every column of a batch on a broker."""
    query, _, batch = one.staged_for.rpartition("/")
    is_batch = bool(query) and batch.isascii() and batch.isdigit() and batch == str(int(batch))
    return {
        "query": query if is_batch else one.staged_for or None,
        "batch": int(batch) if is_batch else None,
        "broker": one.broker_name,
        "group": one.group,
        "topic": one.topic,
        "rows": one.count,
        "age": _seconds(one.oldest_ms),
        "rolled_back_in": None if one.left_ms is None else _seconds(one.left_ms),
        "in_use": one.is_in_use,
        **fields(one, "oldest_ms", "quiet_ms", "left_ms"),
    }


def _seconds(time_ms: int) -> str:
    return str(timedelta(seconds=time_ms // 1000))
