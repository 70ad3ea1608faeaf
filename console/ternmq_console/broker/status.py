"""`ternmq broker status`."""

from collections.abc import Sequence
from typing import Final

import click

from ternmq_client.admin.replication import MemberView
from ternmq_console.cli.admin_query import ask, time_text
from ternmq_console.cli.exit_codes import errors_as_exits
from ternmq_console.cli.options import cluster_options
from ternmq_console.cli.output import fields, print_record, print_rows
from ternmq_model.errors import Unreachable
from ternmq_protos.v1 import admin_pb2 as admin_messages

_COLUMNS = (
    "broker",
    "id",
    "status",
    "put_messages",
    "put_per_s",
    "put_longest_ms",
    "got_messages",
    "got_per_s",
    "gets_from_disk",
    "dispatch_behind_bytes",
    "damaged_records",
)
_PORT = ("handshakes", "first_messages", "addresses", "anonymous_bytes", "streams")
"""Connections that limits of the port closed, and calls that they refused."""

RATE_SPAN_S: Final = 60
"""Span of the printed rates, s."""


@click.command()
@click.argument("broker", required=False)
@cluster_options
def status(broker: str | None, nameserver: str, output: str) -> None:
    """Show counters of the stores of all members since their opening, or all values of BROKER.

    A name stands for its master, or for the slave with the lowest id while the master is away; an
    address stands for the member that registered it. Rates are those of the last minute. The counts
    of the port are those of its limits since the start of the process.
    """
    views = ask(nameserver, lambda admin: admin.member_views(broker=broker, with_stores=True))
    if broker is None:
        print_rows([_row(view) for view in views], _COLUMNS, output)
        return
    with errors_as_exits():
        view = wanted_view(views, broker)
    print_record(_row(view), output)


def wanted_view(views: Sequence[MemberView], broker: str) -> MemberView:
    """Return the member with an address, or the first member of a broker name that answers.

    Raises:
        Unreachable: The member, or every member of the name, does not answer.
    """
    addressed = [view for view in views if broker in map(str, view.member.endpoints)]
    wanted = addressed or views
    answered = next((view for view in wanted if view.store is not None), None)
    if answered is None:
        problems = "; ".join(view.problem for view in wanted)
        raise Unreachable(f"broker {views[0].data.broker_name}: no member answers: {problems}")
    return answered


def _row(view: MemberView) -> dict[str, object]:
    row: dict[str, object] = {
        **dict.fromkeys(_COLUMNS),
        "broker": view.data.broker_name,
        "id": view.member.broker_id,
        "status": "unreachable" if view.store is None else "serving",
    }
    if view.store is None:
        return row | {"problem": view.problem}
    row |= _counted(view.store)
    if view.broker is not None:
        row["port"] = fields(view.broker.port, *_PORT)
    return row


def _counted(reply: admin_messages.DescribeStoreReply) -> dict[str, object]:
    minute = next(rate for rate in reply.rates if rate.span_s == RATE_SPAN_S)
    verification, clock = reply.verification, reply.clock
    return {
        "opened": time_text(reply.opened_at_ms),
        **fields(reply, "put_messages", "put_bytes"),
        "put_average_bytes": round(reply.put_average_bytes),
        "put_per_s": round(minute.put_messages),
        **fields(reply, "puts", "puts_failed", "put_longest_ms"),
        "put_times": {_bucket(each): each.puts for each in reply.put_times if each.puts},
        **fields(reply, "gets_found", "gets_missed", "got_messages"),
        "got_per_s": round(minute.got_messages),
        **fields(reply, "gets_from_disk", "get_longest_ms", "dispatch_behind_bytes"),
        **fields(reply, "dispatch_behind_ms", "log_files", "queues"),
        "damaged_records": reply.bad_records,
        **fields(reply, "wrong_units", "mended_units"),
        "verification": {
            **fields(verification, "bytes_per_s", "offset", "end_offset", "rounds"),
            "round_ended": time_text(verification.round_ended_at_ms),
            **fields(verification, "units_mended", "entries_mended", "records_damaged"),
        },
        "clock": {
            "step_ms": clock.step_ms,
            "followed_in_s": round(clock.follow_in_ms / 1000),
            "doubted_for_s": round(clock.doubted_for_ms / 1000),
            "lead_ms": clock.lead_ms,
        },
        "passed": [_passed(each) for each in reply.passed],
        "damaged": [f"{each.start}-{each.end}: {each.reason}" for each in reply.damaged],
        "failure": reply.failure or None,
        "topics": {each.topic: fields(each, "messages", "bytes") for each in reply.topics},
        "groups": [_behind(each) for each in reply.groups],
    }


def _bucket(times: admin_messages.PutTimes) -> str:
    return f"<{times.below_ms}ms" if times.below_ms else "more"


def _passed(message: admin_messages.PassedMessage) -> dict[str, object]:
    return {
        **fields(message, "topic", "queue_id", "offset", "reason"),
        "groups": list(message.groups),
        "mended": time_text(message.mended_at_ms),
    }


def _behind(group: admin_messages.GroupBehind) -> dict[str, object]:
    return {
        **fields(group, "group", "topic", "queue_id"),
        "behind_messages": group.messages,
        "behind_bytes": group.bytes,
        "read": time_text(group.read_at_ms),
    }
