"""`ternmq dlq …`: dead letters."""

from functools import partial
from typing import TypeVar

import click

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.dead_letters import DeadLetters, Redriven
from ternmq_client.admin.descriptions import BrokerList
from ternmq_client.admin.redrive import DeadLetter
from ternmq_console.cli.admin_query import ask, print_found, time_text
from ternmq_console.cli.options import cluster_options, yes_option
from ternmq_console.cli.output import Row, confirm, fields, print_record, print_rows

T = TypeVar("T")


@click.command(name="list")
@cluster_options
def list_(nameserver: str, output: str) -> None:
    """List groups with dead letters, and the number of waiting letters."""

    def row(one: DeadLetters) -> Row:
        return {
            **fields(one, "group", "waiting", "kept"),
            "last_died": time_text(one.last_died_at_ms),
        }

    found = ask(nameserver, lambda admin: admin.dead_letter_counts())
    print_found(found, row, ("group", "waiting", "kept", "last_died"), output)


@click.command()
@click.argument("group")
@click.option("--max", "maximum", type=click.IntRange(1), default=20, show_default=True)
@click.option("--handled", is_flag=True, help="Include redriven and dropped letters.")
@click.option("--hex", "as_hex", is_flag=True, help="Print all bodies in hexadecimal.")
@cluster_options
def show(
    group: str, maximum: int, handled: bool, as_hex: bool, nameserver: str, output: str
) -> None:
    """Show dead letters of GROUP, oldest first, with their source and content."""

    async def found(admin: AdminClient) -> BrokerList[DeadLetter]:
        letters = await admin.dead_letters(group, maximum=maximum, with_handled=handled)
        return await _of_known(admin, group, letters)

    letters = ask(nameserver, found)
    columns = ("message_id", "origin_topic", "tries", "died", "handled", "body")
    print_found(letters, partial(_row, as_hex=as_hex), columns, output)


@click.command()
@click.argument("group")
@click.option("--all", "is_all", is_flag=True, help="Send all waiting letters, in order.")
@click.option(
    "--message-id", "message_ids", multiple=True, help="Send this letter; may be repeated."
)
@click.option(
    "--to-group", is_flag=True, help="Send to the group alone, not to all groups of the topic."
)
@click.option("--dry-run", is_flag=True, help="Show the letters, and send none.")
@cluster_options
def redrive(
    group: str,
    is_all: bool,
    message_ids: tuple[str, ...],
    to_group: bool,
    dry_run: bool,
    nameserver: str,
    output: str,
) -> None:
    """Send dead letters of GROUP again to their first topic, each once.

    After an interruption, repeat the command: it sends no letter twice.
    """
    if is_all == bool(message_ids):
        raise click.UsageError("give either --all or --message-id")

    async def redriven(admin: AdminClient) -> list[Redriven]:
        done = await admin.redrive(
            group,
            message_ids=None if is_all else message_ids,
            to_group=to_group,
            dry_run=dry_run,
        )
        return await _of_known(admin, group, done)

    done = ask(nameserver, redriven)
    columns = ("message_id", "topic", "outcome", "new_message_id")
    print_rows([fields(one, *columns) for one in done], columns, output)


@click.command()
@click.argument("group")
@click.option(
    "--through", default="", metavar="ID", help="Drop letters up to this one, on its broker alone."
)
@click.option(
    "--delete", is_flag=True, help="Delete the letters with their files, including handled ones."
)
@yes_option
@cluster_options
def drop(group: str, through: str, delete: bool, yes: bool, nameserver: str, output: str) -> None:
    """Drop dead letters of GROUP, so that they are no longer shown or redriven.

    Dropped letters can be read until they expire, unless they are deleted.
    """
    if delete and through:
        raise click.UsageError("--delete applies to all letters: omit --through")
    if not yes:
        which = f"through {through}" if through else "all of them"
        what = "Delete" if delete else "Drop"
        confirm(f"{what} the dead letters of {group}, {which}?")

    async def deleted(admin: AdminClient) -> list[str]:
        return await _of_known(admin, group, await admin.delete_dead_letters(group))

    async def dropped(admin: AdminClient) -> int:
        return await _of_known(admin, group, await admin.drop_dead_letters(group, through=through))

    if delete:
        print_record({"group": group, "deleted_from": ask(nameserver, deleted)}, output)
        return
    print_record({"group": group, "dropped": ask(nameserver, dropped)}, output)


def _row(letter: DeadLetter, *, as_hex: bool) -> dict[str, object]:
    message = letter.message
    return {
        "message_id": letter.origin_message_id,
        "origin_topic": letter.origin_topic,
        "tries": message.reconsume_times,
        "died": time_text(message.stored_at_ms),
        "handled": letter.is_handled,
        "body": body_text(message.readable_body, as_hex=as_hex),
        "broker": message.queue.broker_name,
        "offset": message.queue_offset,
        "offset_message_id": message.offset_message_id,
        "born": time_text(message.born_at_ms),
        "properties": dict(message.properties),
    }


def body_text(body: bytes, *, as_hex: bool) -> str:
    """Return a body as printable text, else as `0x` and hexadecimal digits."""
    if not as_hex:
        try:
            text = body.decode()
        except UnicodeDecodeError:
            return "0x" + body.hex()
        if text.isprintable():
            return text
    return "0x" + body.hex()


async def _of_known(admin: AdminClient, group: str, found: T) -> T:
    """Return `found`. If it is empty, check that the group exists.

    Raises:
        GroupNotFound: The group does not exist.
    """
    if not found:
        await admin.describe_group(group)
    return found
