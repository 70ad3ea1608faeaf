"""`ternmq message get|query`, and the row that shows a message."""

import base64
import contextlib
import re
from typing import Final

import click

from ternmq_client.admin.admin_client import AdminClient
from ternmq_console.cli.admin_query import ask, time_text
from ternmq_console.cli.exit_codes import leave_if_partial
from ternmq_console.cli.options import nameserver_option, output_option, time_option
from ternmq_console.cli.output import print_record, print_rows
from ternmq_model.errors import MessageNotFound, Unreachable, UsageError
from ternmq_model.stored_message import StoredMessage

_SHAPE: Final = re.compile("[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")
_COLUMNS: Final = ("broker", "queue", "offset", "message_id", "tags", "keys", "stored")


@click.command()
@click.argument("message_id")
@click.option("--topic", default="", help="Where to look for a unique key; left out, everywhere.")
@nameserver_option
@output_option
def get(message_id: str, topic: str, nameserver: str, output: str) -> None:
    """Show the message with the id MESSAGE_ID: an offset message id, or a unique key.

    An offset message id names broker and place, and is tried first; the unique key is what
    producers call the message id.
    """
    message = ask(nameserver, lambda admin: find_message(admin, message_id, topic))
    print_record(message_row(message), output)


async def find_message(admin: AdminClient, message_id: str, topic: str) -> StoredMessage:
    """Return the message with an id of either kind, the offset message id first.

    Raises:
        MessageNotFound: There is none.
    """
    if _SHAPE.fullmatch(message_id):
        with contextlib.suppress(MessageNotFound, UsageError, Unreachable):
            return await admin.message(message_id)
    found = await admin.query_messages(topic, message_id, is_unique_key=True)
    return found[-1]


@click.command()
@click.option("--topic", required=True, help="Where to look.")
@click.option("--key", required=True, help="A key of the messages, or a unique key.")
@time_option("--begin", help="The earliest store time.")
@time_option("--end", help="The latest store time.")
@click.option(
    "--max",
    "maximum",
    type=click.IntRange(1, 64),
    default=64,
    show_default=True,
    help="The newest so many.",
)
@nameserver_option
@output_option
def query(
    topic: str,
    key: str,
    begin: int | None,
    end: int | None,
    maximum: int,
    nameserver: str,
    output: str,
) -> None:
    """Show the messages of a topic that have a key, oldest first."""
    found = ask(
        nameserver,
        lambda admin: admin.query_messages(
            topic, key, begin_ms=begin or 0, end_ms=end or 0, maximum=maximum
        ),
    )
    print_rows([message_row(message) for message in found], _COLUMNS, output)
    leave_if_partial(found.unreachable)


def message_row(message: StoredMessage) -> dict[str, object]:
    """Return everything there is to say of a message. A body that is no text is given in base64."""
    try:
        body = {"body": message.readable_body.decode()}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(message.readable_body).decode()}
    return {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queue": message.queue.queue_id,
        "offset": message.queue_offset,
        "message_id": message.message_id,
        "offset_message_id": message.offset_message_id,
        "tags": message.tags,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "born": time_text(message.born_at_ms),
        "born_host": message.born_host,
        "stored": time_text(message.stored_at_ms),
        "store_host": message.store_host,
        "reconsume_times": message.reconsume_times,
        **body,
    }
