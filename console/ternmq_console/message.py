"""`ternmq message …`, and how a message is shown."""

import base64

import click

from ternmq_console.admin import ask, time_text
from ternmq_console.options import nameserver_option, output_option
from ternmq_console.output import print_record
from ternmq_model.stored_message import StoredMessage


@click.command()
@click.argument("message_id")
@nameserver_option
@output_option
def get(message_id: str, nameserver: str, output: str) -> None:
    """Show the message with the offset message id MESSAGE_ID.

    That id names broker and place; `ternmq consume --json` and `ternmq produce -o json` tell it.
    """
    message = ask(nameserver, lambda admin: admin.message(message_id))
    print_record(message_row(message), output)


def message_row(message: StoredMessage) -> dict[str, object]:
    """Return everything there is to say of a message. A body that is no text is given in base64."""
    try:
        body = {"body": message.body.decode()}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(message.body).decode()}
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
