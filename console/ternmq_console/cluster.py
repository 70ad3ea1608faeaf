"""`ternmq cluster list|status|wipe-write-permission`."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

import click

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.cluster_health import problems_of, warnings_of
from ternmq_client.admin.nameserver_admin import NameServerView
from ternmq_client.admin.replication import MemberView
from ternmq_console.broker.replicas import last_epoch, member_rows, table_rows
from ternmq_console.broker.status import RATE_SPAN_S
from ternmq_console.cli.admin_query import ask, time_text
from ternmq_console.cli.exit_codes import FAILED
from ternmq_console.cli.options import cluster_options
from ternmq_console.cli.output import fields, print_line, print_lines, print_record, print_rows
from ternmq_protos.v1 import admin_pb2 as admin_messages

_REPORTED = (
    "role",
    "epoch",
    "version",
    "in_per_s",
    "out_per_s",
    "flush",
    "log_bytes",
    "disk",
)
"""Columns from the replies of a member."""

_COLUMNS = ("cluster", "broker", "id", "addresses", "status", *_REPORTED)


_MEMBER_COLUMNS: Final = (
    "cluster",
    "broker",
    "id",
    "role",
    "epoch",
    "connected",
    "in_sync",
    "lag_bytes",
    "lag_s",
)
_NAMESERVER_COLUMNS: Final = ("nameserver", "answers", "brokers")
_LOG_FIELDS = (
    "log_min_offset",
    "log_max_offset",
    "log_flushed_offset",
    "log_confirm_offset",
    "dispatched_offset",
)
_WAITING = {
    "delayed": "delayed",
    "timed": "timed",
    "waited_delivered": "delivered",
    "waited_dropped": "dropped",
    "timed_cancelled": "cancelled",
    "timed_late_p50_ms": "late_p50_ms",
    "timed_late_p99_ms": "late_p99_ms",
    "timed_late_max_ms": "late_max_ms",
}
"""Columns of messages that are delivered later, with their fields."""

_TRANSACTIONS = (
    "open",
    "committed",
    "rolled_back",
    "asked",
    "alone",
    "parked",
    "unreadable",
    "staged",
    "expired",
)


@click.command(name="list")
@click.option("--cluster", default="", help="Restrict the list to brokers of this cluster.")
@cluster_options
def list_(cluster: str, nameserver: str, output: str) -> None:
    """List the members of every broker name, masters and slaves, with the state of their stores.

    Rates are messages a second over the last minute. A registered member that does not answer is
    listed as unreachable.
    """

    async def question(admin: AdminClient) -> list[dict[str, object]]:
        return [_row(view) for view in await admin.member_views(cluster, with_stores=True)]

    print_rows(ask(nameserver, question), _COLUMNS, output)


@click.command()
@click.argument("broker")
@cluster_options
def wipe_write_permission(broker: str, nameserver: str, output: str) -> None:
    """Stop sends to BROKER, so that consumers can empty it before a stop.

    Name every NameServer: each stores the permission in memory, until it or BROKER restarts.
    """
    changed = ask(nameserver, lambda admin: admin.wipe_write_permission(broker))
    print_record({"broker": broker, "topics_changed": changed}, output)


@click.command()
@click.argument("broker", required=False)
@cluster_options
def status(broker: str | None, nameserver: str, output: str) -> None:
    """Check the health of the cluster, or of BROKER alone: exit code 0 if healthy, else 1.

    A cluster is healthy if all NameServers of --nameserver answer and agree, every broker name has
    a master, every member answers and has a working disk with free space, every slave follows and
    is not behind, and a sync_master has its required number of members in sync. Warnings tell what
    is not safe about it, and do not count.
    """

    async def question(admin: AdminClient) -> tuple[list[NameServerView], list[MemberView]]:
        views = await admin.nameserver_views()
        return views, await admin.member_views(broker=broker, with_stores=True)

    nameservers, members = ask(nameserver, question)
    problems, warnings = problems_of(members, nameservers), warnings_of(members, nameservers)
    rows = _member_rows(members)
    nameserver_rows = [
        {
            "nameserver": str(view.address),
            "answers": not view.problem,
            "brokers": len(view.brokers),
            "problem": view.problem or None,
        }
        for view in nameservers
    ]
    if output == "json":
        record = {"healthy": not problems, "problems": problems, "warnings": warnings}
        print_record({**record, "nameservers": nameserver_rows, "members": rows}, output)
    else:
        print_rows(nameserver_rows, _NAMESERVER_COLUMNS, output)
        print_line()
        print_rows(table_rows(rows), _MEMBER_COLUMNS, output)
        print_line()
        print_lines(problems or ("healthy",))
        print_lines(f"warning: {text}" for text in warnings)
    if problems:
        raise SystemExit(FAILED)


def _member_rows(views: Sequence[MemberView]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for data, members in groupby(views, key=lambda view: view.data):
        name = {"cluster": data.cluster, "broker": data.broker_name}
        rows += [{**name, **row} for row in member_rows(list(members))]
    return rows


def _row(view: MemberView) -> dict[str, object]:
    row: dict[str, object] = {
        "cluster": view.data.cluster,
        "broker": view.data.broker_name,
        "id": view.member.broker_id,
        "addresses": [str(address) for address in view.member.endpoints],
        "status": "unreachable" if view.problem else "serving",
        "problem": view.problem or None,
        **dict.fromkeys(_REPORTED),
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
    return {
        "version": status.version,
        "flush": status.flush_mode,
        "log_bytes": status.log_max_offset - status.log_min_offset,
        "disk": f"{status.disk_used_percent:.1f} % {status.disk_level}",
        "disk_used_percent": round(status.disk_used_percent, 1),
        "disk_level": status.disk_level,
        "started": time_text(status.started_at_ms),
        **fields(status, *_LOG_FIELDS),
        **{column: getattr(status.waiting, name) for column, name in _WAITING.items()},
        **{f"transactions_{name}": getattr(status.transactions, name) for name in _TRANSACTIONS},
    }
