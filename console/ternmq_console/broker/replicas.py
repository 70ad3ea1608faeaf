"""`ternmq broker ha` and `ternmq broker promote`."""

from collections.abc import Mapping, Sequence
from typing import Final

import click

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.replication import MemberView
from ternmq_console.cli.admin_query import ask, time_text
from ternmq_console.cli.options import INT64, cluster_options, yes_option
from ternmq_console.cli.output import confirm, fields, print_line, print_record, print_rows
from ternmq_model.errors import TernError
from ternmq_protos.v1 import admin_pb2 as admin_messages
from ternmq_protos.v1 import replication_pb2 as replication

_MEMBER_COLUMNS: Final = (
    "id",
    "slave_id",
    "address",
    "role",
    "epoch",
    "connected",
    "in_sync",
    "safe_offset",
    "lag_bytes",
    "lag_s",
    "log_end",
    "confirm_offset",
    "flush",
    "problem",
)
_CHANGE_COLUMNS: Final = ("group", "topic", "queue", "before", "after")


@click.command()
@click.argument("broker")
@cluster_options
def ha(broker: str, nameserver: str, output: str) -> None:
    """Show the replication of BROKER: slaves in sync, their lag, and the epochs.

    The master waits for a slave in sync. `safe offset` is the acknowledged offset of a slave; the
    lag has the bytes that the master has beyond it, and the time since the slave had them all. `id`
    is the current id of a member, 0 for the master; `slave id` its id as a slave, also after the
    promotion of another member.
    """
    views = ask(nameserver, lambda admin: admin.member_views(broker=broker))
    rows = member_rows(views)
    if output == "json":
        print_record(_record(views, rows), output)
        return
    print_rows(table_rows(rows), _MEMBER_COLUMNS, output)
    for line in epoch_lines(views):
        print_line(line)


@click.command()
@click.argument("broker")
@click.option(
    "--broker-id",
    type=INT64,
    required=True,
    help="Id of the slave in `ternmq cluster list`.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Promote also in these cases: the master is alive, no NameServer or member knows the"
    " highest epoch, or another member has, or may have, a longer log. Records that only other"
    " members have are lost.",
)
@yes_option
@cluster_options
def promote(
    broker: str, broker_id: int, force: bool, yes: bool, nameserver: str, output: str
) -> None:
    """Make a slave of BROKER its master, in a new epoch from the end of the slave's log on.

    Records of the old master beyond that end are lost, but no acknowledged record if the master was
    a sync_master and the slave in sync. The old master follows after its return. Offsets of groups
    beyond the log's end are set to the end of their queue, and shown.

    The command returns when the new master serves clients and is registered.
    """
    if not yes:
        text = f"Make slave {broker_id} the master of {broker}?"
        confirm(f"{text} What its log lacks will be lost.")

    async def question(admin: AdminClient) -> admin_messages.PromoteReply:
        views = await admin.member_views(broker=broker)
        name = views[0].data.broker_name
        try:
            reply = await admin.promote(name, broker_id, is_forced=force)
        except TernError:
            if note := draining_note(views):
                print_line(f"ternmq: {note}", to_stderr=True)
            raise
        await admin.until_master(name, reply.epoch)
        return reply

    _print_promotion(broker, broker_id, ask(nameserver, question), output)


def draining_note(views: Sequence[MemberView]) -> str:
    """Return a hint for a failed promotion while the master drains; empty = no master drains."""
    draining = (view for view in views if view.status is not None and view.status.is_draining)
    for view in draining:
        name = view.data.broker_name
        return (
            f"{name} is still draining: `ternmq broker undrain {name}` makes its master accept"
            " messages"
        )
    return ""


def lonely_note(views: Sequence[MemberView]) -> str:
    """Return a warning about a draining master without slaves; empty = a slave follows."""
    if any(view.status is not None and view.status.following.is_connected for view in views):
        return ""
    return (
        "no slave follows it: no promotion is possible without loss, and senders wait for `undrain`"
    )


def member_rows(views: Sequence[MemberView]) -> list[dict[str, object]]:
    """Return a row for each member of a broker name, joined from the master's and its own reply."""
    master = next((view.status for view in views if view.is_master and view.status), None)
    followers = {} if master is None else {each.broker_id: each for each in master.followers}
    return [_row(view, followers) for view in views]


def table_rows(rows: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """Return the rows for a table: `in_sync` of a master has the number of members in sync."""
    return [
        {**row, "in_sync": f"{row['in_sync_now']}, needs {row['in_sync_replicas']}"}
        if "in_sync_now" in row
        else row
        for row in rows
    ]


def epoch_lines(views: Sequence[MemberView]) -> list[str]:
    """Return a line for each different list of epochs, with the ids of its members."""
    ids: dict[str, list[str]] = {}
    for view in views:
        if view.status is not None:
            epochs = ", ".join(f"{each.number} from {each.start}" for each in view.status.epochs)
            ids.setdefault(epochs or "none", []).append(str(view.member.broker_id))
    return [
        f"epochs of id{'s' * (len(those) > 1)} {', '.join(those)}: {epochs}"
        for epochs, those in ids.items()
    ]


def last_epoch(status: replication.ReplicationStatusReply) -> int:
    """Return the present epoch of a member; 0 = its log has none."""
    return status.epochs[-1].number if status.epochs else 0


def _row(
    view: MemberView, followers: Mapping[int, replication.FollowerStatus]
) -> dict[str, object]:
    status = view.status
    row: dict[str, object] = {**dict.fromkeys(_MEMBER_COLUMNS)}
    addresses = ", ".join(map(str, view.member.endpoints))
    row |= {"id": view.member.broker_id, "address": addresses, "problem": view.problem or None}
    seen = None if view.is_master else followers.get(view.member.broker_id)
    if status is None:
        return row | _seen(seen)
    row |= {
        "role": status.role,
        "slave_id": status.slave_id or None,
        "epoch": last_epoch(status),
        **fields(status, "safe_offset", "log_end", "log_start", "confirm_offset"),
        "dispatched_offset": status.dispatched_offset,
        "flush": status.flush_mode,
        **fields(status, "highest_epoch", "store_id"),
    }
    if status.is_draining:
        row["problem"] = "draining: sends to it wait"
    if status.is_fenced:
        row["problem"] = f"fenced by epoch {status.highest_epoch}"
    if view.is_master:
        return row | {
            "in_sync": status.in_sync_now >= status.in_sync_replicas,
            **fields(status, "in_sync_now", "in_sync_replicas"),
        }
    has_tables = status.following.metadata_age_ms >= 0
    following = status.following
    row |= {
        "connected": following.is_connected,
        "master": following.master,
        "lag_bytes": following.lag_bytes,
        "lag_s": following.lag_ms / 1000,
        "metadata_age_s": following.metadata_age_ms / 1000 if has_tables else None,
        "problem": following.problem or None,
        "in_sync": False,
    }
    return row | _seen(seen)


def _seen(seen: replication.FollowerStatus | None) -> dict[str, object]:
    """Return the master's view of a slave. It precedes the slave's own, which may be missing."""
    if seen is None:
        return {}
    return {
        "in_sync": seen.is_in_sync,
        **fields(seen, "safe_offset", "sent_offset", "lag_bytes"),
        "lag_s": seen.lag_ms / 1000,
        "counts_from": seen.counts_from,
        "connected_since": time_text(seen.connected_at_ms),
        "peer": seen.peer,
    }


def _record(views: Sequence[MemberView], rows: Sequence[Mapping[str, object]]) -> dict[str, object]:
    return {
        "cluster": views[0].data.cluster,
        "broker": views[0].data.broker_name,
        "members": list(rows),
        "epochs": {
            str(view.member.broker_id): [
                {"epoch": each.number, "start": each.start} for each in view.status.epochs
            ]
            for view in views
            if view.status is not None
        },
    }


def _print_promotion(
    broker: str, broker_id: int, reply: admin_messages.PromoteReply, output: str
) -> None:
    changes = [
        {
            "group": each.group,
            "topic": each.change.topic,
            "queue": each.change.queue_id,
            **fields(each.change, "before", "after"),
        }
        for each in reply.clamped
    ]
    record: dict[str, object] = {
        "broker": broker,
        "promoted_id": broker_id,
        **fields(reply, "epoch", "log_end", "confirm_offset"),
        "asked": list(reply.asked),
        "unreachable": list(reply.unreachable),
        "clamped": changes if output == "json" else len(changes),
    }
    print_record(record, output)
    if output != "json" and changes:
        print_rows(changes, _CHANGE_COLUMNS, output)
