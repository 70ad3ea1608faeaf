"""Group `ternmq broker`: runs a broker, or with a verb manages a running one."""

import click

from ternmq_console.cli.lazy_group import LazyGroup
from ternmq_console.services.commands import broker as service


@click.pass_context
def _run(context: click.Context, /, **options: object) -> None:
    """Run the service, unless a verb follows."""
    if context.invoked_subcommand is None:
        context.invoke(service, **options)


broker = LazyGroup(
    name="broker",
    help=f"{service.help} With a command: manage running brokers.",
    lazy={
        "status": (".broker.status:status", "Show the counters of the brokers' stores."),
        "ha": (".broker.replicas:ha", "Show the replication of a broker's slaves."),
        "promote": (".broker.replicas:promote", "Make a slave the master."),
        "repair-epoch": (
            ".broker.repair_epoch:repair_epoch",
            "Set back an epoch that no master began.",
        ),
        "forget-epoch": (
            ".broker.forget_epoch:forget_epoch",
            "Delete epochs of removed brokers from a NameServer.",
        ),
        "settings": (".broker.settings:settings", "Show or change settings at run time."),
        "set-permission": (
            ".broker.settings:set_permission",
            "Remove write permission of a broker, or restore it.",
        ),
        "drain": (
            ".broker.settings:drain",
            "Stop a master from accepting messages; producers wait or use others.",
        ),
        "undrain": (".broker.settings:undrain", "Accept messages at a drained master again."),
        "clean": (".broker.settings:clean", "Delete expired files of a broker now."),
    },
)
broker.params = [*service.params]
broker.callback = _run
broker.invoke_without_command = True
broker.no_args_is_help = False
