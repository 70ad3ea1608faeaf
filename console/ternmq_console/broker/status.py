"""`ternmq broker status`."""

from collections.abc import Sequence
from typing import Final

import click

from ternmq_client.admin.replication import MemberView
from ternmq_console.cli.admin_query import ask, time_text
from ternmq_console.cli.exit_codes import errors_as_exits
from ternmq_console.cli.options import cluster_options
from ternmq_console.cli.output import print_record, print_rows
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
RATE_SPAN_S: Final = 60
"""Rates that are shown are of so long."""


@click.command()
@click.argument("broker", required=False)
@cluster_options
def status(broker: str | None, nameserver: str, output: str) -> None:
    """Show what the stores of all members have counted since they were opened, or all of BROKER's.

    A name stands for its master, or while that is away for the slave with the lowest id; an address
    for the member that is registered with it. Rates are those of the last minute.
    """
    views = ask(nameserver, lambda admin: admin.member_views(broker=broker, with_stores=True))
    if broker is None:
        print_rows([_row(view) for view in views], _COLUMNS, output)
        return
    with errors_as_exits():
        view = wanted_view(views, broker)
    print_record(_row(view), output)


def wanted_view(views: Sequence[MemberView], broker: str) -> MemberView:
    """Return the member that a name or an address stands for, of those of one broker name.

    Raises:
        Unreachable: It does not answer, or no member of the name does.
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
    return row | _counted(view.store)


def _counted(reply: admin_messages.DescribeStoreReply) -> dict[str, object]:
    minute = next(rate for rate in reply.rates if rate.span_s == RATE_SPAN_S)
    return {
        "opened": time_text(reply.opened_at_ms),
        "put_messages": reply.put_messages,
        "put_bytes": reply.put_bytes,
        "put_average_bytes": round(reply.put_average_bytes),
        "put_per_s": round(minute.put_messages),
        "puts": reply.puts,
        "puts_failed": reply.puts_failed,
        "put_longest_ms": reply.put_longest_ms,
        "put_times": {_bucket(each): each.puts for each in reply.put_times if each.puts},
        "gets_found": reply.gets_found,
        "gets_missed": reply.gets_missed,
        "got_messages": reply.got_messages,
        "got_per_s": round(minute.got_messages),
        "gets_from_disk": reply.gets_from_disk,
        "get_longest_ms": reply.get_longest_ms,
        "dispatch_behind_bytes": reply.dispatch_behind_bytes,
        "dispatch_behind_ms": reply.dispatch_behind_ms,
        "log_files": reply.log_files,
        "queues": reply.queues,
        "damaged_records": reply.bad_records,
        "wrong_units": reply.wrong_units,
        "mended_units": reply.mended_units,
        "verification": _verification(reply.verification),
        "clock": _clock(reply.clock),
        "passed": [_passed(each) for each in reply.passed],
        "damaged": [f"{each.start}-{each.end}: {each.reason}" for each in reply.damaged],
        "failure": reply.failure or None,
        "topics": {
            each.topic: {"messages": each.messages, "bytes": each.bytes} for each in reply.topics
        },
        "groups": [_behind(each) for each in reply.groups],
    }


def _bucket(times: admin_messages.PutTimes) -> str:
    return f"<{times.below_ms}ms" if times.below_ms else "more"


def _verification(told: admin_messages.StoreVerification) -> dict[str, object]:
    return {
        "bytes_per_s": told.bytes_per_s,
        "offset": told.offset,
        "end_offset": told.end_offset,
        "rounds": told.rounds,
        "round_ended": time_text(told.round_ended_at_ms) if told.round_ended_at_ms else None,
        "units_mended": told.units_mended,
        "entries_mended": told.entries_mended,
        "records_damaged": told.records_damaged,
    }


def _clock(told: admin_messages.BrokerClock) -> dict[str, object]:
    return {
        "step_ms": told.step_ms,
        "followed_in_s": round(told.follow_in_ms / 1000),
        "doubted_for_s": round(told.doubted_for_ms / 1000),
        "lead_ms": told.lead_ms,
    }


def _passed(message: admin_messages.PassedMessage) -> dict[str, object]:
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "offset": message.offset,
        "reason": message.reason,
        "groups": list(message.groups),
        "mended": time_text(message.mended_at_ms),
    }


def _behind(group: admin_messages.GroupBehind) -> dict[str, object]:
    return {
        "group": group.group,
        "topic": group.topic,
        "queue_id": group.queue_id,
        "behind_messages": group.messages,
        "behind_bytes": group.bytes,
        "read": time_text(group.read_at_ms),
    }
