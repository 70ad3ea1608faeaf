"""The verbs that run services: `ternmq dev`, `ternmq nameserver`, `ternmq broker`."""

import asyncio
import contextlib
import dataclasses
import errno
import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from ternmq_broker.config import BrokerConfig, BrokerRole
from ternmq_console.cli.exit_codes import errors_as_exits, first_cause
from ternmq_console.cli.options import HEALTH_VARIABLE, NAMESERVER_VARIABLE
from ternmq_console.cli.output import print_lines
from ternmq_model.errors import CannotListen, SettingsError, TernError
from ternmq_nameserver.config import NameServerConfig
from ternmq_nameserver.server import NameServer
from ternmq_remoting.environment import Environment
from ternmq_remoting.system_environment import system_environment
from ternmq_runtime.lifecycle import Lifecycle
from ternmq_runtime.logs import LoggingSettings, configure_logging
from ternmq_runtime.service import run_until_signalled
from ternmq_runtime.settings.loader import LoadedSettings, load_settings
from ternmq_store.config import StoreConfig

if TYPE_CHECKING:
    from ternmq_broker.broker import Broker

F = TypeVar("F", bound=Callable[..., Any])

SECTIONS: Final = {
    "nameserver": NameServerConfig,
    "broker": BrokerConfig,
    "store": StoreConfig,
    "logging": LoggingSettings,
}
"""Every setting of every service: one file or environment may serve all of them."""

OTHER_VARIABLES: Final = (HEALTH_VARIABLE, NAMESERVER_VARIABLE)
"""Variables of the image that are no settings."""

DEV_DATA: Final = Path(".ternmq")
DEV_LOG_FILE_BYTES: Final = 64 << 20
DEV_INDEX_SLOTS: Final = 50_000
"""`ternmq dev` makes small files: it is for a laptop."""


class DevServices(Lifecycle):
    """A NameServer with a broker beside it, between `async with` and its end."""

    def __init__(self, settings: LoadedSettings, env: Environment) -> None:
        self._sections = dev_sections(settings)
        self._env = env

    async def _open(self, stack: AsyncExitStack) -> None:
        nameserver, broker, store = self._sections
        self.nameserver = await stack.enter_async_context(NameServer(nameserver, self._env))
        broker = dataclasses.replace(broker, nameservers=(str(self.nameserver.address),))
        self.broker = await stack.enter_async_context(new_broker(broker, store, self._env))


def new_broker(config: BrokerConfig, store: StoreConfig, env: Environment) -> "Broker":
    """Return a broker that does not run yet."""
    # 200 modules, which neither a NameServer nor the verbs behind `ternmq broker` need.
    from ternmq_broker.broker import Broker

    return Broker(config, store, env)


def dev_sections(settings: LoadedSettings) -> tuple[NameServerConfig, BrokerConfig, StoreConfig]:
    """Return the settings with the defaults of `ternmq dev` for what nobody set.

    Raises:
        SettingsError: The broker was told NameServers; it registers with the one beside it.
    """
    origins = settings.origins
    nameserver, broker = settings[NameServerConfig], settings[BrokerConfig]
    store = settings[StoreConfig]
    if "broker.nameservers" in origins:
        told, origin = ",".join(broker.nameservers), origins["broker.nameservers"]
        rule = "`dev` registers with its own NameServer; leave it out, or run `ternmq broker`"
        raise SettingsError([f"broker.nameservers={told!r}: {rule} ({origin})"])
    if "nameserver.data" not in origins:
        nameserver = dataclasses.replace(nameserver, data=DEV_DATA / "nameserver")
    if "broker.data" not in origins:
        broker = dataclasses.replace(broker, data=DEV_DATA / "broker")
    if "broker.force_master" not in origins:
        # Whoever removes its data begins anew, whatever the NameServer beside it remembers.
        broker = dataclasses.replace(broker, force_master=True)
    if "store.commit_log_file_bytes" not in origins:
        store = dataclasses.replace(store, commit_log_file_bytes=DEV_LOG_FILE_BYTES)
    if not {"store.index_slots", "store.index_entries"} & set(origins):
        store = dataclasses.replace(
            store, index_slots=DEV_INDEX_SLOTS, index_entries=4 * DEV_INDEX_SLOTS
        )
    return nameserver, broker, store


@contextlib.contextmanager
def hint_at(*options: str) -> Generator[None]:
    """Add to the error of a port that is taken which options choose another.

    Raises:
        CannotListen: With the hint, if that was the reason.
    """
    try:
        yield
    except (TernError, ExceptionGroup) as error:
        cause = first_cause(error)
        if not isinstance(cause, CannotListen) or os.strerror(errno.EADDRINUSE) not in str(cause):
            raise
        hint = f"(choose another: {' / '.join(options)}, 0 = any free)"
        raise CannotListen(f"{cause} {hint}") from error


def service_options(function: F) -> F:
    """Add the options that every service has."""
    for option in (
        click.option(
            "--set",
            "given",
            multiple=True,
            metavar="SECTION.NAME=VALUE",
            help="Any setting of docs/reference/config.md; may be repeated.",
        ),
        click.option(
            "--config",
            type=click.Path(path_type=Path, dir_okay=False),
            help="TOML file with settings.  [default: $TERNMQ_CONFIG]",
        ),
        click.option("--listen", metavar="HOST", help="Host to listen on.  [default: 127.0.0.1]"),
        click.option(
            "--data", metavar="DIR", type=click.Path(path_type=Path), help="Directory of the data."
        ),
    ):
        function = option(function)
    return function


@click.command()
@service_options
@click.option("--port-nameserver", type=int, help="Port; 0 takes a free one.  [default: 9876]")
@click.option("--port-broker", type=int, help="Port; 0 takes a free one.  [default: 10911]")
def dev(
    data: Path | None,
    listen: str | None,
    config: Path | None,
    given: Sequence[str],
    port_nameserver: int | None,
    port_broker: int | None,
) -> None:
    """Run a NameServer and a broker in one process, until Ctrl-C.

    The data lies in ./.ternmq unless --data or a setting says otherwise. Once both serve, their
    addresses are printed on standard output; the log goes to standard error.
    """
    flags = [
        *_flag("nameserver.data", data and data / "nameserver"),
        *_flag("broker.data", data and data / "broker"),
        *_flag("nameserver.listen", listen),
        *_flag("broker.listen", listen),
        *_flag("nameserver.port", port_nameserver),
        *_flag("broker.port", port_broker),
    ]
    with errors_as_exits():
        settings = _settings(config, [*flags, *given])

        def addresses(services: DevServices) -> list[str]:
            return [
                f"nameserver {services.nameserver.address}",
                f"broker {settings[BrokerConfig].name} {services.broker.address}",
            ]

        with hint_at("--port-nameserver", "--port-broker"):
            sys.exit(_run(settings, lambda env: DevServices(settings, env), addresses))


@click.command()
@service_options
@click.option("--port-nameserver", type=int, help="Port; 0 takes a free one.  [default: 9876]")
def nameserver(
    data: Path | None,
    listen: str | None,
    config: Path | None,
    given: Sequence[str],
    port_nameserver: int | None,
) -> None:
    """Run a NameServer, until Ctrl-C.

    Key-value settings are kept in --data; without it they are lost when the process ends.
    """
    flags = [
        *_flag("nameserver.data", data),
        *_flag("nameserver.listen", listen),
        *_flag("nameserver.port", port_nameserver),
    ]
    with errors_as_exits():
        settings = _settings(config, [*flags, *given])

        def addresses(service: NameServer) -> list[str]:
            return [f"nameserver {service.address}"]

        with hint_at("--port-nameserver"):
            sys.exit(
                _run(settings, lambda env: NameServer(settings[NameServerConfig], env), addresses)
            )


@click.command()
@service_options
@click.option("--port-broker", type=int, help="Port; 0 takes a free one.  [default: 10911]")
@click.option("--name", help="The broker's name.  [default: broker-a]")
@click.option(
    "--nameserver",
    "nameservers",
    metavar="HOST:PORT",
    help="Every NameServer, separated by commas.  [default: 127.0.0.1:9876]",
)
@click.option(
    "--broker-id",
    type=int,
    metavar="N",
    help="0 starts as the master, any other as a slave of the same --name.  [default: 0]",
)
@click.option(
    "--role",
    type=click.Choice([role.value for role in BrokerRole]),
    help="What it is as the master.  [default: async_master]",
)
@click.option(
    "--force-master",
    is_flag=True,
    help="Start as master though nobody confirms that there is no newer one.",
)
def broker(
    data: Path | None,
    listen: str | None,
    config: Path | None,
    given: Sequence[str],
    port_broker: int | None,
    name: str | None,
    nameservers: str | None,
    broker_id: int | None,
    role: str | None,
    force_master: bool,
) -> None:
    """Run a broker, until Ctrl-C."""
    flags = [
        *_flag("broker.data", data),
        *_flag("broker.listen", listen),
        *_flag("broker.port", port_broker),
        *_flag("broker.name", name),
        *_flag("broker.nameservers", nameservers),
        *_flag("broker.broker_id", broker_id),
        *_flag("broker.role", role),
        *_flag("broker.force_master", "true" if force_master else None),
    ]
    with errors_as_exits():
        settings = _settings(config, [*flags, *given])

        def addresses(service: "Broker") -> list[str]:
            return [f"broker {settings[BrokerConfig].name} {service.address}"]

        with hint_at("--port-broker"):
            sys.exit(
                _run(
                    settings,
                    lambda env: new_broker(settings[BrokerConfig], settings[StoreConfig], env),
                    addresses,
                )
            )


ServiceT = TypeVar("ServiceT", bound=AbstractAsyncContextManager[Any])


def _run(
    settings: LoadedSettings,
    make: Callable[[Environment], ServiceT],
    addresses: Callable[[ServiceT], Sequence[str]],
) -> int:
    """Run the service until a signal and return the exit code."""
    configure_logging(settings[LoggingSettings])

    async def serve() -> int:
        async with system_environment() as env:
            service = make(env)

            def announce() -> None:
                print_lines(addresses(service))

            return await run_until_signalled(service, on_ready=announce)

    return asyncio.run(serve())


def _settings(config: Path | None, flags: Sequence[str]) -> LoadedSettings:
    return load_settings(
        SECTIONS, toml_path=config, environ=os.environ, flags=flags, reserved=OTHER_VARIABLES
    )


def _flag(setting: str, value: object | None) -> Sequence[str]:
    return () if value is None else (f"{setting}={value}",)
