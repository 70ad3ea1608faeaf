"""`ternmq health`: a check for people, and for containers every few seconds."""

import re
import socket
from typing import Final, NoReturn

import click
from click.core import ParameterSource

from ternmq_console.cli.exit_codes import UNREACHABLE, errors_as_exits
from ternmq_console.cli.options import HEALTH_VARIABLE, seconds
from ternmq_console.cli.output import print_line
from ternmq_model.address import Address, parse_address
from ternmq_model.default_nameserver import DEFAULT_NAMESERVER
from ternmq_model.errors import ConfigError
from ternmq_remoting import local_health

_TIMEOUT_S_MAX: Final = 3600.0


@click.command()
@click.argument(
    "address", default=DEFAULT_NAMESERVER, envvar=HEALTH_VARIABLE, metavar="[HOST:PORT]"
)
@click.option(
    "--timeout",
    type=seconds(0.001, _TIMEOUT_S_MAX),
    default=3.0,
    show_default=True,
    metavar="SECONDS",
    help=f"Longest wait for an answer, s, at most {_TIMEOUT_S_MAX:g}.",
)
@click.pass_context
def health(context: click.Context, address: str, timeout: float) -> None:
    """Check the health of the service at HOST:PORT: its event loop answers, and accepts calls.

    Without HOST:PORT, the address is $TERNMQ_HEALTH, or else the default one of a NameServer.

    Exit code: 0 healthy, 4 not healthy, 2 invalid address.
    """
    is_variable = context.get_parameter_source("address") is ParameterSource.ENVIRONMENT
    setting = HEALTH_VARIABLE if is_variable else "address"
    with errors_as_exits():
        if re.search("[,;]", address):
            raise ConfigError(setting, address, "must be one address: one service is asked")
        target = parse_address(address, setting=setting)
    try:
        _refuse_closed_port(target, timeout)
        is_serving = local_health.ask(target, timeout_s=timeout)
    except OSError as error:
        _leave(f"{address}: {error.strerror or 'no answer in time'}")
    if is_serving is None:
        _ask_by_grpc(target, timeout)
    elif not is_serving:
        _leave(f"{address}: the server is closing")
    print_line(f"{address} serves")


def _refuse_closed_port(target: Address, timeout_s: float) -> None:
    """Raise OSError if no service listens at the port.

    The check is cheap: containers check often while a service starts. A host name is not looked
    up here, since only gRPC's look-up has a time-out.
    """
    try:
        (found, *_) = socket.getaddrinfo(
            target.host, target.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
    except (socket.gaierror, UnicodeError):
        return
    with socket.socket(found[0], found[1]) as probe:
        probe.settimeout(timeout_s)
        probe.connect(found[4])


def _ask_by_grpc(target: Address, timeout_s: float) -> None:
    """Leave unless the service at the address answers a gRPC connection."""
    import asyncio

    from ternmq_remoting.system_environment import system_environment

    async def check() -> None:
        async with system_environment() as env:
            connection = await env.network.connect([target], timeout_s=timeout_s)
            await connection.close()

    with errors_as_exits():
        asyncio.run(check())


def _leave(text: str) -> NoReturn:
    print_line(f"ternmq: {text}", to_stderr=True)
    raise SystemExit(UNREACHABLE)
