"""`ternmq broker forget-epoch`: names that will not come back make room at NameServers."""

from collections.abc import Sequence
from typing import Final

import click

from ternmq_client.admin import AdminClient
from ternmq_client.administration.replication import NameServerEpoch
from ternmq_console.admin import ask
from ternmq_console.exits import errors_as_exits
from ternmq_console.options import nameserver_option, output_option
from ternmq_console.output import confirm, print_rows
from ternmq_model.errors import Unreachable, UsageError

_COLUMNS: Final = ("nameserver", "broker", "forgets", "problem")


@click.command()
@click.argument("brokers", nargs=-1, required=True, metavar="BROKER...")
@click.option("--cluster", default="DefaultCluster", show_default=True, help="Of every BROKER.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@nameserver_option
@output_option
def forget_epoch(
    brokers: Sequence[str], *, cluster: str, yes: bool, nameserver: str, output: str
) -> None:
    """Let every NameServer forget the epochs of broker names that will not come back.

    Refused while a member of such a name is registered anywhere. A name that comes back all the
    same is a new one to NameServers: they refuse no master of old any more.
    """
    with errors_as_exits():
        found = ask(nameserver, lambda admin: _look(admin, cluster, brokers))
        rows = [
            {
                "nameserver": str(each.address),
                "broker": name,
                "forgets": each.highest or None,
                "problem": each.problem or None,
            }
            for name, each in found
        ]
        print_rows(rows, _COLUMNS, output)
        doomed = [(name, each) for name, each in found if each.highest]
        if doomed and not yes:
            confirm("Forget these for good?")
        ask(nameserver, lambda admin: _forget(admin, cluster, doomed))
        if silent := sorted({str(each.address) for _, each in found if each.problem}):
            raise Unreachable(f"NameServer {', '.join(silent)} did not answer: repeat this for it")


async def _look(
    admin: AdminClient, cluster: str, brokers: Sequence[str]
) -> list[tuple[str, NameServerEpoch]]:
    """Return what each NameServer keeps of each name.

    Raises:
        UsageError: A member of one is registered.
    """
    for view in await admin.nameserver_views():
        there = {data.broker_name for data in view.brokers if data.cluster == cluster}
        if alive := sorted(there.intersection(brokers)):
            raise UsageError(
                f"broker {', '.join(alive)} is registered at NameServer {view.address}: the epoch"
                " of a broker that lives is not forgotten"
            )
    return [
        (name, each)
        for name in dict.fromkeys(brokers)
        for each in await admin.nameserver_epochs(cluster, name)
    ]


async def _forget(
    admin: AdminClient, cluster: str, doomed: Sequence[tuple[str, NameServerEpoch]]
) -> None:
    """Have NameServers forget, one after the other.

    Raises:
        RefusedError: One keeps another number by now, or a member has registered. Those before it
            have forgotten theirs.
        TransportError: One does not answer; likewise.
    """
    for name, each in doomed:
        await admin.repair_epoch(each, cluster, name, epoch=0)
