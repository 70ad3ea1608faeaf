"""`ternmq cluster list|wipe-write-permission`."""

import click

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.replication import MemberView
from ternmq_console.broker.replicas import last_epoch
from ternmq_console.broker.status import RATE_SPAN_S
from ternmq_console.cli.admin_query import ask, time_text
from ternmq_console.cli.options import cluster_options
from ternmq_console.cli.output import print_record, print_rows
from ternmq_protos.v1 import admin_pb2 as admin_messages

_TOLD = (
    "role",
    "epoch",
    "version",
    "in_per_s",
    "out_per_s",
    "flush",
    "log_bytes",
    "disk",
)
"""Columns that a member tells itself."""

_COLUMNS = ("cluster", "broker", "id", "addresses", "status", *_TOLD)


@click.command(name="list")
@click.option("--cluster", default="", help="Only brokers of this cluster.")
@cluster_options
def list_(cluster: str, nameserver: str, output: str) -> None:
    """List the members of every broker name, masters and slaves, and how their stores stand.

    Rates are messages a second over the last minute. A member that is registered and does not
    answer is listed as unreachable.
    """

    async def question(admin: AdminClient) -> list[dict[str, object]]:
        return [_row(view) for view in await admin.member_views(cluster, with_stores=True)]

    print_rows(ask(nameserver, question), _COLUMNS, output)


@click.command()
@click.argument("broker")
@cluster_options
def wipe_write_permission(broker: str, nameserver: str, output: str) -> None:
    """Let nobody send to BROKER any more, so that it can be emptied and stopped.

    Name every NameServer: each keeps this for itself, in memory, until it or BROKER is restarted.
    """
    changed = ask(nameserver, lambda admin: admin.wipe_write_permission(broker))
    print_record({"broker": broker, "topics_changed": changed}, output)


def _row(view: MemberView) -> dict[str, object]:
    row: dict[str, object] = {
        "cluster": view.data.cluster,
        "broker": view.data.broker_name,
        "id": view.member.broker_id,
        "addresses": [str(address) for address in view.member.endpoints],
        "status": "unreachable" if view.problem else "serving",
        "problem": view.problem or None,
        **dict.fromkeys(_TOLD),
    }
    if view.status is not None:
        row |= {"role": view.status.role, "epoch": last_epoch(view.status)}
    if view.store is not None:
        minute = next(rate for rate in view.store.rates if rate.span_s == RATE_SPAN_S)
        row |= {"in_per_s": round(minute.put_messages), "out_per_s": round(minute.got_messages)}
    if view.broker is not None:
        row |= _broker(view.broker)
    return row


def _broker(status: admin_messages.DescribeBrokerReply) -> dict[str, object]:
    """Return what a broker tells of itself."""
    return {
        "version": status.version,
        "flush": status.flush_mode,
        "log_bytes": status.log_max_offset - status.log_min_offset,
        "disk": f"{status.disk_used_percent:.1f} % {status.disk_level}",
        "disk_used_percent": round(status.disk_used_percent, 1),
        "disk_level": status.disk_level,
        "started": time_text(status.started_at_ms),
        "log_min_offset": status.log_min_offset,
        "log_max_offset": status.log_max_offset,
        "log_flushed_offset": status.log_flushed_offset,
        "log_confirm_offset": status.log_confirm_offset,
        "dispatched_offset": status.dispatched_offset,
        **_waiting(status.waiting),
        **_transactions(status.transactions),
    }


def _transactions(told: admin_messages.OpenTransactions) -> dict[str, object]:
    """Return what a broker tells of its transactions."""
    return {
        "transactions_open": told.open,
        "transactions_committed": told.committed,
        "transactions_rolled_back": told.rolled_back,
        "transactions_asked": told.asked,
        "transactions_alone": told.alone,
        "transactions_parked": told.parked,
        "transactions_unreadable": told.unreadable,
        "transactions_staged": told.staged,
        "transactions_expired": told.expired,
    }


def _waiting(told: admin_messages.WaitingMessages) -> dict[str, object]:
    """Return what a broker tells of messages that are delivered later."""
    return {
        "delayed": told.delayed,
        "timed": told.timed,
        "waited_delivered": told.delivered,
        "waited_dropped": told.dropped,
        "timed_cancelled": told.cancelled,
        "timed_late_p50_ms": told.late_p50_ms,
        "timed_late_p99_ms": told.late_p99_ms,
        "timed_late_max_ms": told.late_max_ms,
    }
