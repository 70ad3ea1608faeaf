"""`ternmq message get|query|query-by-offset|print`, and the row that shows a message."""

import base64
import contextlib
import re
from typing import Final

import click

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.descriptions import BrokerList
from ternmq_console.cli.admin_query import ask, print_found, time_text
from ternmq_console.cli.options import INT32, INT64, cluster_options, time_option
from ternmq_console.cli.output import Row, print_record
from ternmq_model.errors import MessageNotFound, Unreachable, UsageError, refusal
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.stored_message import StoredMessage
from ternmq_model.subscription import ALL_TAGS, parse_subscription

_SHAPE: Final = re.compile("[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")
_COLUMNS: Final = ("broker", "queue", "offset", "message_id", "tags", "keys", "stored")
_PULLED_AT_ONCE: Final = 32


@click.command()
@click.argument("message_id")
@click.option(
    "--topic", default="", help="Topic of a unique key. Without it, every topic is searched."
)
@cluster_options
def get(message_id: str, topic: str, nameserver: str, output: str) -> None:
    """Show the message with the id MESSAGE_ID: an offset message id, or a unique key.

    An offset message id names broker and log offset, and is tried first; the unique key is the
    message id of producers.
    """
    message = ask(nameserver, lambda admin: find_message(admin, message_id, topic))
    print_record(message_row(message), output)


async def find_message(admin: AdminClient, message_id: str, topic: str) -> StoredMessage:
    """Return the message with an offset message id, else with a unique key.

    Raises:
        MessageNotFound: No message has the id.
    """
    if _SHAPE.fullmatch(message_id):
        with contextlib.suppress(MessageNotFound, UsageError, Unreachable):
            return await admin.message(message_id)
    found = await admin.query_messages(topic, message_id, is_unique_key=True)
    return found[-1]


@click.command()
@click.option("--topic", required=True, help="Topic of the messages.")
@click.option("--key", required=True, help="Key of the messages, or a unique key.")
@time_option("--begin", help="Earliest store time.")
@time_option("--end", help="Latest store time.")
@click.option(
    "--max",
    "maximum",
    type=click.IntRange(1, 64),
    default=64,
    show_default=True,
    help="Number of newest messages.",
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
    """Show the messages of a topic with a key, oldest first."""
    found = ask(
        nameserver,
        lambda admin: admin.query_messages(
            topic, key, begin_ms=begin or 0, end_ms=end or 0, maximum=maximum
        ),
    )
    print_found(found, message_row, _COLUMNS, output)


@click.command()
@click.argument("topic")
@click.option("--broker", required=True, help="Broker of the queue.")
@click.option("--queue", type=INT32, required=True, help="Number of the queue.")
@click.option("--offset", type=INT64, required=True, help="Offset of the message in the queue.")
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


@click.command(name="print")
@click.argument("topic")
@click.option("--tag", "expression", default=ALL_TAGS, help="Tags to print: 'a || b'.")
@time_option("--begin", help="Earliest store time.")
@time_option("--end", help="Latest store time.")
@click.option("--broker", default="", help="Print only messages of this broker.")
@click.option("--queue", type=INT32, help="Print only messages of the queue with this number.")
@click.option("--offset", type=INT64, help="Begin at this offset of each queue.")
@click.option("--max", "maximum", type=click.IntRange(min=1), default=1000, show_default=True)
@cluster_options
def print_(
    topic: str,
    expression: str,
    begin: int | None,
    end: int | None,
    broker: str,
    queue: int | None,
    offset: int | None,
    maximum: int,
    nameserver: str,
    output: str,
) -> None:
    """Print the stored messages of TOPIC, queue after queue, and change no group's offsets."""

    async def question(admin: AdminClient) -> BrokerList[StoredMessage]:
        subscription = parse_subscription(topic, expression)
        name = (await admin.master_of(broker)).broker_name if broker else ""
        found: list[StoredMessage] = []
        starts = dict(await admin.offsets_at(topic, begin)) if begin else {}
        described = await admin.describe_topic(topic)
        there = [one for one in described.queues if name in ("", one.queue.broker_name)]
        wanted = [one for one in there if queue in (None, one.queue.queue_id)]
        if not (wanted or described.unreachable):
            where = f"broker {name}" if name else "any broker"
            if not there:
                raise refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic!r} is not on {where}")
            remark = f"topic {topic!r} has no queue {queue} on {where}"
            raise refusal(ResponseCode.INVALID_PARAMETER, remark)
        for one in wanted:
            place = max(starts.get(one.queue, 0), offset or 0, one.min_offset)
            while place < one.max_offset and len(found) < maximum:
                read = await admin.messages_at(one.queue, place, maximum=_PULLED_AT_ONCE)
                if not read:
                    break
                place = read[-1].queue_offset + 1
                found += [each for each in read if subscription.wants(each.tags)]
                if end is not None and read[-1].stored_at_ms > end:
                    break
        kept = [each for each in found if end is None or each.stored_at_ms <= end]
        lacking = [each for each in described.unreachable if name in ("", each.broker_name)]
        return BrokerList(kept[:maximum], lacking)

    def row(message: StoredMessage) -> Row:
        return {"body": None, **message_row(message)}

    print_found(ask(nameserver, question), row, (*_COLUMNS, "body"), output)


def message_row(message: StoredMessage) -> dict[str, object]:
    """Return every column of a message. A body that is no UTF-8 text is in base64."""
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
