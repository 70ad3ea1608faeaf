"""`ternmq broker forget-epoch`: removal of unused broker names from a NameServer."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from ternmq_console.broker.epoch_directories import open_epochs
from ternmq_console.cli.exit_codes import errors_as_exits
from ternmq_console.cli.options import output_option, stopped_data_option, yes_option
from ternmq_console.cli.output import confirm, print_rows
from ternmq_runtime.table_store import save_table


@click.command()
@click.argument("brokers", nargs=-1, required=True, metavar="BROKER...")
@stopped_data_option("NameServer")
@click.option(
    "--cluster", default="DefaultCluster", show_default=True, help="Cluster of every BROKER."
)
@yes_option
@output_option
def forget_epoch(
    brokers: Sequence[str], *, data: Path, cluster: str, yes: bool, output: str
) -> None:
    """Remove the epochs of broker names that will not return from a NameServer.

    The NameServer treats a name that returns as a new one, and no longer refuses its old masters.
    """
    with errors_as_exits(), ExitStack() as stack:
        path, table = open_epochs(data, stack)
        rows: list[dict[str, object]] = []
        for broker in dict.fromkeys(brokers):
            rows.append({"broker": broker, "forgets": table.get(cluster, broker) or None})
            table = table.repaired(cluster, broker, 0)
        print_rows(rows, ("broker", "forgets"), output)
        if any(row["forgets"] for row in rows):
            if not yes:
                confirm("Delete these epochs permanently?")
            save_table(path, table)
