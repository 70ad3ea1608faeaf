"""`ternmq broker clean`, which is `ternmq cluster clean`, too."""

import click

from ternmq_client.admin.admin_client import AdminClient
from ternmq_console.cli.admin_query import ask, reserved_hours
from ternmq_console.cli.options import cluster_options, yes_option
from ternmq_console.cli.output import confirm_losses, print_record


@click.command()
@click.argument("broker")
@yes_option
@cluster_options
def clean(broker: str, *, yes: bool, nameserver: str, output: str) -> None:
    """Let BROKER delete what has expired now, without waiting for the hour.

    Expired is what is older than `store.file_reserved_hours` and than every topic's retention.
    What no checkpoint vouches for stays: just after a start of BROKER that is everything. So
    0 files deleted may mean that it is too early; ask again `store.checkpoint_interval_ms` later.
    """
    if not yes:
        confirm_losses(ask(nameserver, lambda admin: _expired(admin, broker)))
    reply = ask(nameserver, lambda admin: admin.clean_store(broker))
    print_record(
        {
            "broker": broker,
            "files_deleted": reply.files_deleted,
            "log_min_offset": reply.log_min_offset,
        },
        output,
    )


async def _expired(admin: AdminClient, broker: str) -> list[str]:
    """Return a line that tells what of a broker's messages a request to delete would take."""
    hours = await reserved_hours(admin, broker)
    return [
        f"{broker}: files of its log go whose newest message is older than {hours} h"
        " (store.file_reserved_hours) and than every topic's retention"
    ]
