"""`ternmq message …`, and how a message is shown."""

import base64
import re
from typing import Final

import click

from ternmq_console.admin import ask, time_text
from ternmq_console.exits import errors_as_exits
from ternmq_console.options import nameserver_option, output_option
from ternmq_console.output import print_record
from ternmq_model.errors import UsageError
from ternmq_model.stored_message import StoredMessage

_SHAPE: Final = re.compile("[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")
_PORT_MAX: Final = 0xFFFF


@click.command()
@click.argument("message_id", metavar="OFFSET_MESSAGE_ID")
@nameserver_option
@output_option
def get(message_id: str, nameserver: str, output: str) -> None:
    """Show the message with the id OFFSET_MESSAGE_ID.

    That id names broker and place; `ternmq consume --json` and `ternmq produce -o json` tell it.
    """
    with errors_as_exits():
        check_is_no_producers_id(message_id)
    message = ask(nameserver, lambda admin: admin.message(message_id))
    print_record(message_row(message), output)


def check_is_no_producers_id(message_id: str) -> None:
    """Check that `message_id` is not the id that a producer gave a message.

    That is as long as an offset message id and hexadecimal, too. But where the one has the store
    host's port, four bytes before the last eight, the other begins with the process id: too large
    a number for a port.

    Raises:
        UsageError: It is a producer's; the text says what to give instead.
    """
    if _SHAPE.fullmatch(message_id) and not 0 < int(message_id[-24:-16], 16) <= _PORT_MAX:
        raise UsageError(
            f"message id {message_id!r}: names no broker's port; this looks like a producer's"
            " message id: give the offset message id (`ternmq consume --json` shows it)"
        )


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
