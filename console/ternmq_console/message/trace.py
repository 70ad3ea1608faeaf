"""`ternmq message trace`: the history of one message."""

from dataclasses import asdict

import click

from ternmq_client.admin.descriptions import BrokerList
from ternmq_client.tracing.trace_records import ConsumeBegan, ConsumeEnded, MessageSent, TraceRecord
from ternmq_console.cli.admin_query import ask, print_found, time_text
from ternmq_console.cli.options import cluster_options
from ternmq_model.names import TRACE_TOPIC

_TRACE_COLUMNS = ("time", "event", "group", "outcome", "took_ms", "client", "details")


@click.command()
@click.argument("message_id")
@click.option("--trace-topic", default=TRACE_TOPIC, show_default=True, help="Topic of the traces.")
@cluster_options
def trace(message_id: str, trace_topic: str, nameserver: str, output: str) -> None:
    """Show the producer and the consumers of the message MESSAGE_ID, with times and outcomes."""
    found = ask(nameserver, lambda admin: admin.trace(message_id, trace_topic=trace_topic))
    rows = timeline([(message.born_host, record) for message, record in found])
    print_found(BrokerList(rows, found.unreachable), dict, _TRACE_COLUMNS, output)


def timeline(traces: list[tuple[str, TraceRecord]]) -> list[dict[str, object]]:
    """Return a row for each event of a message. Pure.

    The begin and the end of a listener call are one row.

    Args:
        traces: Trace records, each with the address of its client.
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
