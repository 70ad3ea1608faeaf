"""`ternmq group list|describe`."""

from dataclasses import asdict

import click

from ternmq_console.cli.admin_query import ask, time_text
from ternmq_console.cli.exit_codes import leave_if_partial
from ternmq_console.cli.options import cluster_options
from ternmq_console.cli.output import print_line, print_record, print_rows
from ternmq_console.group.offsets import progress_row
from ternmq_model.names import is_system_group

_PROGRESS_COLUMNS = ("topic", "broker", "queue", "committed", "max_offset", "lag", "lag_s")
_SETTINGS_COLUMNS = (
    "broker",
    "consume_enabled",
    "broadcast_enabled",
    "consume_from_min_enabled",
    "retry_queues",
    "retries_max",
    "notify_members_changed",
)


@click.command(name="list")
@click.option("--with-system", is_flag=True, help="The system's own groups too.")
@cluster_options
def list_(with_system: bool, nameserver: str, output: str) -> None:
    """List groups that have members, offsets or settings."""
    groups = ask(nameserver, lambda admin: admin.groups())
    rows = [{"group": group} for group in groups if with_system or not is_system_group(group)]
    print_rows(rows, ("group",), output)
    leave_if_partial(groups.unreachable)


@click.command()
@click.argument("group")
@cluster_options
def describe(group: str, nameserver: str, output: str) -> None:
    """Show the members of GROUP, and how far it is in each queue."""
    found = ask(nameserver, lambda admin: admin.describe_group(group))
    members = [
        {
            "client_id": one.client_id,
            "address": one.address,
            "subscriptions": dict(one.subscriptions),
            "connected": time_text(one.connected_at_ms),
        }
        for one in found.members
    ]
    progress = [progress_row(one) for one in found.progress]
    settings = [{"broker": name, **asdict(kept)} for name, kept in found.settings]
    if output == "json":
        record = {"group": group, "settings": settings, "members": members, "progress": progress}
        print_record(record | {"differences": found.differences}, output)
    else:
        print_rows(settings, _SETTINGS_COLUMNS, output)
        print_line()
        print_rows(members, ("client_id", "address", "subscriptions", "connected"), output)
        print_line()
        if found.differences:
            print_rows(
                [{"members_differ": line} for line in found.differences],
                ("members_differ",),
                output,
            )
            print_line()
        print_rows(progress, _PROGRESS_COLUMNS, output)
    leave_if_partial(found.unreachable)
