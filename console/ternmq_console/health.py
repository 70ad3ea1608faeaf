"""`ternmq health`: for people, and for containers that ask every few seconds."""

import asyncio

import click

from ternmq_console.exits import errors_as_exits
from ternmq_console.options import DEFAULT_NAMESERVER
from ternmq_console.output import print_line
from ternmq_model.address import parse_address
from ternmq_remoting.system import system_environment


@click.command()
@click.argument("address", default=DEFAULT_NAMESERVER, metavar="[HOST:PORT]")
@click.option("--timeout", default=3.0, show_default=True, help="Seconds to wait.")
def health(address: str, timeout: float) -> None:
    """Tell whether the service at HOST:PORT serves; the NameServer's port by default.

    Exit code 0 when it does, 4 when it does not.
    """

    async def check() -> None:
        async with system_environment() as env:
            connection = await env.network.connect(
                [parse_address(address, setting="address")], timeout_s=timeout
            )
            await connection.close()

    with errors_as_exits():
        asyncio.run(check())
        print_line(f"{address} serves")
