"""`ternmq broker`: runs a broker, and with a verb behind it looks at one that runs."""

import click

from ternmq_console.cli.lazy_group import LazyGroup
from ternmq_console.services.commands import broker as service

_HERE = "ternmq_console"


@click.pass_context
def _run(context: click.Context, /, **options: object) -> None:
    """Run the service, unless a verb follows."""
    if context.invoked_subcommand is None:
        context.invoke(service, **options)


broker = LazyGroup(
    name="broker",
    help=f"{service.help} With a verb: look at brokers that run, and change their settings.",
    lazy={
        "status": (f"{_HERE}.broker.status:status", "Show what the brokers' stores have counted."),
        "ha": (f"{_HERE}.broker.replicas:ha", "Show how the slaves of a broker follow."),
        "promote": (f"{_HERE}.broker.replicas:promote", "Make a slave the master."),
        "repair-epoch": (
            f"{_HERE}.broker.repair_epoch:repair_epoch",
            "Set back an epoch that nobody began.",
        ),
        "forget-epoch": (
            f"{_HERE}.broker.forget_epoch:forget_epoch",
            "Let a NameServer forget brokers that will not come back.",
        ),
        "settings": (f"{_HERE}.broker.settings:settings", "Show or change settings at run time."),
        "set-permission": (
            f"{_HERE}.broker.settings:set_permission",
            "Let nobody send to a broker, or let it be sent to again.",
        ),
        "drain": (
            f"{_HERE}.broker.settings:drain",
            "Let a master take no more messages: producers wait, or send elsewhere.",
        ),
        "undrain": (f"{_HERE}.broker.settings:undrain", "Let a master take messages again."),
        "clean": (f"{_HERE}.broker.clean:clean", "Let a broker delete what has expired now."),
    },
)
broker.params = [*service.params]
broker.callback = _run
broker.invoke_without_command = True
broker.no_args_is_help = False
