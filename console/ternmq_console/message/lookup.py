"""`ternmq message get|query|query-by-offset`, and the row that shows a message."""

import base64
import contextlib
import re
from typing import Final

import click

from ternmq_client.admin.admin_client import AdminClient
from ternmq_console.cli.admin_query import ask, time_text
from ternmq_console.cli.exit_codes import leave_if_partial
from ternmq_console.cli.options import INT32, INT64, cluster_options, time_option
from ternmq_console.cli.output import print_record, print_rows
from ternmq_model.errors import MessageNotFound, Unreachable, UsageError, refusal
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.stored_message import StoredMessage

_SHAPE: Final = re.compile("[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")
_COLUMNS: Final = ("broker", "queue", "offset", "message_id", "tags", "keys", "stored")


@click.command()
@click.argument("message_id")
@click.option("--topic", default="", help="Where to look for a unique key; left out, everywhere.")
@cluster_options
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
@cluster_options
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


@click.command()
@click.argument("topic")
@click.option("--broker", required=True, help="Who has the queue.")
@click.option("--queue", type=INT32, required=True, help="The queue's number.")
@click.option("--offset", type=INT64, required=True, help="The message's place in it.")
@cluster_options
def query_by_offset(
    topic: str, broker: str, queue: int, offset: int, nameserver: str, output: str
) -> None:
    """Show the message at an offset of one queue of TOPIC."""

    async def question(admin: AdminClient) -> StoredMessage:
        name = (await admin.master_of(broker)).broker_name
        found = await admin.messages_at(MessageQueue(topic, name, queue), offset)
        if not found or found[0].queue_offset != offset:
            remark = f"queue {queue} of {topic!r} on {name} has no message {offset}"
            raise refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        return found[0]

    print_record(message_row(ask(nameserver, question)), output)


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
