"""`ternmq broker settings|set-permission|drain|undrain|clean`."""

from collections.abc import Sequence

import click

from ternmq_client.admin.admin_client import AdminClient
from ternmq_console.broker.replicas import lonely_note
from ternmq_console.cli.admin_query import ask, reserved_hours
from ternmq_console.cli.options import cluster_options, yes_option
from ternmq_console.cli.output import confirm_losses, fields, print_line, print_record, print_rows
from ternmq_console.retention_losses import settings_losses
from ternmq_model.errors import TernError

_COLUMNS = ("name", "value", "least", "most", "description")


@click.command()
@click.argument("broker")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="SECTION.NAME=VALUE",
    help="Change a setting until BROKER stops; may be repeated.",
)
@yes_option
@cluster_options
def settings(
    broker: str, changes: Sequence[str], *, yes: bool, nameserver: str, output: str
) -> None:
    """Show the settings of BROKER that may change while it runs, and change some with --set.

    Only numbers and switches may change, within the bounds shown. The command changes all given
    settings, or none. A change that deletes messages earlier needs a confirmation.
    """
    values = dict(map(_pair, changes))
    if values and not yes:

        async def losses(admin: AdminClient) -> list[str]:
            name = (await admin.master_of(broker)).broker_name
            return settings_losses({s.name: s.value for s in await admin.settings(name)}, values)

        confirm_losses(ask(nameserver, losses))

    async def question(admin: AdminClient) -> list[dict[str, object]]:
        name = (await admin.master_of(broker)).broker_name
        if values:
            await admin.update_settings(name, values)
        return [
            {
                **fields(one, "name", "value"),
                "least": one.least or None,
                "most": one.most or None,
                "description": one.description,
            }
            for one in await admin.settings(name)
            if not values or one.name in values
        ]

    print_rows(ask(nameserver, question), _COLUMNS, output)


@click.command()
@click.argument("broker")
@click.argument("permission", type=click.Choice(["rw", "r"]))
@cluster_options
def set_permission(broker: str, permission: str, nameserver: str, output: str) -> None:
    """Stop sends to BROKER (r), so that consumers can empty it, or permit sends again (rw).

    Name every NameServer: each stores the permission in memory, until it or BROKER restarts.
    """

    async def question(admin: AdminClient) -> int:
        if permission == "r":
            return await admin.wipe_write_permission(broker)
        return await admin.add_write_permission(broker)

    print_record({"broker": broker, "topics_changed": ask(nameserver, question)}, output)


@click.command()
@click.argument("broker")
@cluster_options
def drain(broker: str, nameserver: str, output: str) -> None:
    """Stop the acceptance of messages at the master of BROKER, before a stop or a switch-over.

    Producers send to other brokers of the topic, or wait within their send timeout, until a slave
    is promoted, or `undrain`. Consumers still read and commit; the master still stores failed,
    delayed and timed messages and ends transactions. A restart of the master ends the draining.
    """
    _set_draining(broker, True, nameserver, output)


@click.command()
@click.argument("broker")
@cluster_options
def undrain(broker: str, nameserver: str, output: str) -> None:
    """Resume the acceptance of messages at the master of BROKER, after `drain`."""
    _set_draining(broker, False, nameserver, output)


@click.command()
@click.argument("broker")
@yes_option
@cluster_options
def clean(broker: str, *, yes: bool, nameserver: str, output: str) -> None:
    """Delete expired files of BROKER at once, without waiting for the hour.

    A file is expired when it is older than `store.file_reserved_hours` and every topic's retention.
    Files beyond the checkpoint stay: directly after a start of BROKER these are all files. So the
    command may be too early if it deletes 0 files; repeat it `store.checkpoint_interval_ms` later.
    """
    if not yes:
        confirm_losses(ask(nameserver, lambda admin: _expired(admin, broker)))
    reply = ask(nameserver, lambda admin: admin.clean_store(broker))
    print_record({"broker": broker, **fields(reply, "files_deleted", "log_min_offset")}, output)


async def _expired(admin: AdminClient, broker: str) -> list[str]:
    hours = await reserved_hours(admin, broker)
    return [
        f"{broker}: it deletes log files whose newest message is older than {hours} h"
        " (store.file_reserved_hours) and than every topic's retention"
    ]


def _set_draining(broker: str, is_draining: bool, nameserver: str, output: str) -> None:
    async def question(admin: AdminClient) -> tuple[str, str]:
        name = (await admin.master_of(broker)).broker_name
        await admin.update_settings(name, {"broker.draining": str(is_draining).lower()})
        if not is_draining:
            return name, ""
        try:
            return name, lonely_note(await admin.member_views(broker=name))
        except TernError as error:
            return name, f"the slaves are unknown: {error}"  # it drains all the same

    name, note = ask(nameserver, question)
    print_record({"broker": name, "draining": is_draining}, output)
    if note:
        print_line(f"ternmq: {note}", to_stderr=True)


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not (separator and name):
        raise click.BadParameter(f"{text!r} is no SECTION.NAME=VALUE", param_hint="--set")
    return name, value
