"""`ternmq cluster status`."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

import click

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.cluster_health import problems_of
from ternmq_client.admin.nameserver_admin import NameServerView
from ternmq_client.admin.replication import MemberView
from ternmq_console.broker.replicas import member_rows, table_rows
from ternmq_console.cli.admin_query import ask
from ternmq_console.cli.exit_codes import FAILED
from ternmq_console.cli.options import cluster_options
from ternmq_console.cli.output import print_line, print_lines, print_record, print_rows

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


@click.command()
@click.argument("broker", required=False)
@cluster_options
def status(broker: str | None, nameserver: str, output: str) -> None:
    """Tell whether the cluster, or BROKER alone, is as it should be: exit code 0, else 1.

    It is when every NameServer of --nameserver answers and tells the same, every broker name has a
    master, every member answers and has a disk that works and is not full, every slave follows and
    is not behind, and a sync_master has as many members in sync as it needs.
    """

    async def question(admin: AdminClient) -> tuple[list[NameServerView], list[MemberView]]:
        views = await admin.nameserver_views()
        return views, await admin.member_views(broker=broker, with_stores=True)

    nameservers, members = ask(nameserver, question)
    problems = problems_of(members, nameservers)
    rows = _member_rows(members)
    told = [
        {
            "nameserver": str(view.address),
            "answers": not view.problem,
            "brokers": len(view.brokers),
            "problem": view.problem or None,
        }
        for view in nameservers
    ]
    if output == "json":
        record = {"healthy": not problems, "problems": problems}
        print_record({**record, "nameservers": told, "members": rows}, output)
    else:
        print_rows(told, _NAMESERVER_COLUMNS, output)
        print_line()
        print_rows(table_rows(rows), _MEMBER_COLUMNS, output)
        print_line()
        print_lines(problems or ("healthy",))
    if problems:
        raise SystemExit(FAILED)


def _member_rows(views: Sequence[MemberView]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for data, members in groupby(views, key=lambda view: view.data):
        name = {"cluster": data.cluster, "broker": data.broker_name}
        rows += [{**name, **row} for row in member_rows(list(members))]
    return rows
