"""`ternmq message print`: the messages that a topic keeps."""

import click

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.descriptions import BrokerList
from ternmq_console.cli.admin_query import ask
from ternmq_console.cli.exit_codes import leave_if_partial
from ternmq_console.cli.options import INT32, INT64, cluster_options, time_option
from ternmq_console.cli.output import print_rows
from ternmq_console.message.lookup import message_row
from ternmq_model.errors import refusal
from ternmq_model.response_code import ResponseCode
from ternmq_model.stored_message import StoredMessage
from ternmq_model.subscription import ALL_TAGS, parse_subscription

_COLUMNS = ("broker", "queue", "offset", "message_id", "tags", "keys", "stored", "body")
_PIECE = 32


@click.command(name="print")
@click.argument("topic")
@click.option("--tag", "expression", default=ALL_TAGS, help="Tags to print: 'a || b'.")
@time_option("--begin", help="The earliest store time.")
@time_option("--end", help="The latest store time.")
@click.option("--broker", default="", help="Only what this broker has.")
@click.option("--queue", type=INT32, help="Only the queue of this number.")
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
    """Print the messages that TOPIC keeps, queue after queue. No group's progress changes."""

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
                read = await admin.messages_at(one.queue, place, maximum=_PIECE)
                if not read:
                    break
                place = read[-1].queue_offset + 1
                found += [each for each in read if subscription.wants(each.tags)]
                if end is not None and read[-1].stored_at_ms > end:
                    break
        kept = [each for each in found if end is None or each.stored_at_ms <= end]
        lacking = [each for each in described.unreachable if name in ("", each.broker_name)]
        return BrokerList(kept[:maximum], lacking)

    found = ask(nameserver, question)
    print_rows([{"body": None, **message_row(each)} for each in found], _COLUMNS, output)
    leave_if_partial(found.unreachable)
