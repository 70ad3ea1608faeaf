"""`ternmq message print|query-by-offset|trace|send`."""

from dataclasses import asdict

import click

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.descriptions import BrokerList
from ternmq_client.config import ClientConfig, nameserver_texts
from ternmq_client.tracing.trace_records import ConsumeBegan, ConsumeEnded, MessageSent, TraceRecord
from ternmq_console.cli.admin_query import ask, time_text
from ternmq_console.cli.exit_codes import errors_as_exits, leave_if_partial
from ternmq_console.cli.options import INT32, INT64, nameserver_option, output_option, time_option
from ternmq_console.cli.output import print_record, print_rows
from ternmq_console.message.lookup import message_row
from ternmq_model.errors import refusal
from ternmq_model.message import Message
from ternmq_model.names import TRACE_TOPIC
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.stored_message import StoredMessage
from ternmq_model.subscription import ALL_TAGS, parse_subscription
from ternmq_producer.blocking_producer import BlockingProducer

_COLUMNS = ("broker", "queue", "offset", "message_id", "tags", "keys", "stored", "body")
_TRACE_COLUMNS = ("time", "event", "group", "outcome", "took_ms", "client", "details")
_PIECE = 32
_TOOLS = "TOOLS_PRODUCER"


@click.command(name="print")
@click.argument("topic")
@click.option("--tag", "expression", default=ALL_TAGS, help="Tags to print: 'a || b'.")
@time_option("--begin", help="The earliest store time.")
@time_option("--end", help="The latest store time.")
@click.option("--broker", default="", help="Only what this broker has.")
@click.option("--queue", type=INT32, help="Only the queue of this number.")
@click.option("--offset", type=INT64, help="Begin at this offset of each queue.")
@click.option("--max", "maximum", type=click.IntRange(min=1), default=1000, show_default=True)
@nameserver_option
@output_option
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


@click.command()
@click.argument("topic")
@click.option("--broker", required=True, help="Who has the queue.")
@click.option("--queue", type=INT32, required=True, help="The queue's number.")
@click.option("--offset", type=INT64, required=True, help="The message's place in it.")
@nameserver_option
@output_option
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


@click.command()
@click.argument("message_id")
@click.option("--trace-topic", default=TRACE_TOPIC, show_default=True, help="Where traces are.")
@nameserver_option
@output_option
def trace(message_id: str, trace_topic: str, nameserver: str, output: str) -> None:
    """Show who sent the message MESSAGE_ID and who consumed it, when and with what outcome."""
    found = ask(nameserver, lambda admin: admin.trace(message_id, trace_topic=trace_topic))
    rows = timeline([(told.born_host, record) for told, record in found])
    print_rows(rows, _TRACE_COLUMNS, output)
    leave_if_partial(found.unreachable)


def timeline(traces: list[tuple[str, TraceRecord]]) -> list[dict[str, object]]:
    """Return a row for each thing that was done with a message. Pure.

    A listener's call is one row: it ends, or nobody knows how it ended.

    Args:
        traces: With the address of the client that sent each.
    """
    began = {one.request_id: one for _, one in traces if isinstance(one, ConsumeBegan)}
    ended = {one.request_id for _, one in traces if isinstance(one, ConsumeEnded)}
    rows: list[dict[str, object]] = []
    for client, one in traces:
        if isinstance(one, ConsumeBegan) and one.request_id in ended:
            continue
        row: dict[str, object] = {
            "time": time_text(one.at_ms),
            "event": _EVENTS.get(type(one).__name__, "transaction ended"),
            "group": one.group,
            "outcome": _outcome(one),
            "took_ms": getattr(one, "took_ms", None),
            "client": client,
        }
        details = {name: value for name, value in asdict(one).items() if name not in _SHOWN}
        if isinstance(one, ConsumeEnded) and one.request_id in began:
            details["retries"] = began[one.request_id].retries
        row["details"] = {name: value for name, value in details.items() if value is not None}
        rows.append(row)
    return rows


_EVENTS = {"MessageSent": "sent", "ConsumeBegan": "consuming", "ConsumeEnded": "consumed"}
_SHOWN = frozenset({"at_ms", "group", "took_ms", "message_id", "is_success", "request_id", "code"})
_OUTCOMES = {0: "ok", 1: "timed out", 2: "raised", 3: "nothing returned", 4: "again"}


def _outcome(record: TraceRecord) -> str:
    match record:
        case MessageSent():
            return "ok" if record.is_success else "not confirmed"
        case ConsumeBegan():
            return "not ended"
        case ConsumeEnded():
            return _OUTCOMES.get(record.code, str(record.code))
        case _:
            return record.state


@click.command()
@click.argument("topic")
@click.option("--body", required=True, help="The body, as text.")
@click.option("--key", "keys", multiple=True, help="A key; may be repeated.")
@click.option("--tag", default="", help="Its tag.")
@click.option("--broker", default="", help="Send it to this broker.")
@click.option("--queue", type=INT32, help="Send it to the queue of this number; with --broker.")
@click.option("--trace", is_flag=True, help="Trace it.")
@nameserver_option
@output_option
def send(
    topic: str,
    body: str,
    keys: tuple[str, ...],
    tag: str,
    broker: str,
    queue: int | None,
    trace: bool,
    nameserver: str,
    output: str,
) -> None:
    """Send one message to TOPIC, and show where it was stored."""
    if (queue is None) != (not broker):
        raise click.UsageError("--broker and --queue go together")
    wanted = None
    if queue is not None:
        name = ask(nameserver, lambda admin: admin.master_of(broker)).broker_name
        wanted = MessageQueue(topic, name, queue)
    with errors_as_exits():
        config = ClientConfig(nameservers=nameserver_texts(nameserver), trace=trace)
        with BlockingProducer(_TOOLS, client=config) as producer:
            result = producer.send(Message(topic, body.encode(), tags=tag, keys=keys), queue=wanted)
    print_record(
        {
            "status": result.status.name,
            "message_id": result.message_id,
            "broker": result.queue.broker_name,
            "queue": result.queue.queue_id,
            "offset": result.queue_offset,
        },
        output,
    )
