"""The verbs that run services: `ternmq dev`, `ternmq nameserver`, `ternmq broker`."""

import asyncio
import contextlib
import dataclasses
import errno
import logging
import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import click

from ternmq_broker.config import BrokerConfig, BrokerRole
from ternmq_console.cli.exit_codes import errors_as_exits, first_cause
from ternmq_console.cli.options import HEALTH_VARIABLE
from ternmq_console.cli.output import print_lines
from ternmq_model.address import Address, is_loopback, is_unspecified
from ternmq_model.default_nameserver import NAMESERVER_VARIABLE
from ternmq_model.errors import CannotListen, SettingsError, TernError
from ternmq_nameserver.config import NameServerConfig
from ternmq_nameserver.server import NameServer
from ternmq_remoting.environment import Environment
from ternmq_remoting.network_config import NetworkConfig
from ternmq_remoting.rpc_latency import RpcLatencies
from ternmq_remoting.system_environment import system_environment
from ternmq_remoting.tls import CREDENTIALS_VARIABLE, ClientAuth, TlsConfig
from ternmq_runtime.clock import SystemClock
from ternmq_runtime.lifecycle import Lifecycle
from ternmq_runtime.logs import LogFormat, LoggingSettings, Services, configure_logging
from ternmq_runtime.metrics.config import MetricsConfig
from ternmq_runtime.metrics.port import Scrape, ScrapedProcess, metrics_port
from ternmq_runtime.metrics.scrape import LabelValues
from ternmq_runtime.service import run_until_signalled
from ternmq_runtime.settings.loader import LoadedSettings, load_settings
from ternmq_security.audit.audit_config import AuditConfig
from ternmq_security.audit.audit_trail import audited
from ternmq_store.config import StoreConfig

if TYPE_CHECKING:
    from ternmq_broker.broker import Broker

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

SECTIONS: Final = {
    "nameserver": NameServerConfig,
    "broker": BrokerConfig,
    "store": StoreConfig,
    "logging": LoggingSettings,
    "metrics": MetricsConfig,
    "network": NetworkConfig,
    "tls": TlsConfig,
    "audit": AuditConfig,
}
"""Sections with the settings of all services. One file or environment may have them all."""

_FLAGS: Final = "ternmq.settings"

OTHER_VARIABLES: Final = (HEALTH_VARIABLE, NAMESERVER_VARIABLE, CREDENTIALS_VARIABLE)
"""Variables of the container image and of clients that are no settings."""

DEV_DATA: Final = Path(".ternmq")
DEV_LOG_FILE_BYTES: Final = 64 << 20
DEV_INDEX_SLOTS: Final = 50_000
"""Number of hash slots in an index file of `ternmq dev`, small for a laptop."""


class DevServices(Lifecycle):
    """NameServer and broker of one process, open inside `async with`."""

    def __init__(self, settings: LoadedSettings, env: Environment) -> None:
        self._sections = dev_sections(settings)
        self._env = env

        self._begun: list[ScrapedProcess] = []

    @property
    def node(self) -> LabelValues:
        """Cluster, type and name of the broker, whose process it is."""
        broker = self._sections[1]
        return broker.cluster, "broker", broker.name

    @property
    def unready(self) -> str:
        """Reason for which one of the two does not serve clients; empty = both do."""
        if len(self._begun) < 2:
            return "the services start"
        return next(filter(None, (each.unready for each in self._begun)), "")

    async def collect(self, scrape: Scrape) -> None:
        """Add the series of both."""
        for each in self._begun:
            await each.collect(scrape)

    async def _open(self, stack: AsyncExitStack) -> None:
        nameserver, broker, store = self._sections
        self.nameserver = NameServer(nameserver, self._env)
        self._begun = [self.nameserver]
        await stack.enter_async_context(self.nameserver)
        broker = dataclasses.replace(
            broker, nameservers=(str(own_address(self.nameserver.address)),)
        )
        env = self._env if self._env.rpc_latencies is None else measured(self._env)
        self.broker = new_broker(broker, store, env)
        self._begun.append(self.broker)
        await stack.enter_async_context(self.broker)


def measured(env: Environment) -> Environment:
    """Return the environment of one service whose metrics are shown."""
    return dataclasses.replace(env, rpc_latencies=RpcLatencies(SystemClock().monotonic_s))


def own_address(listening: Address) -> Address:
    """Return the address at which this process reaches a service of its own."""
    if not is_unspecified(listening.host):
        return listening
    return Address("::1" if ":" in listening.host else "127.0.0.1", listening.port)


def new_broker(config: BrokerConfig, store: StoreConfig, env: Environment) -> "Broker":
    """Return a broker that is not started."""
    # 200 modules, which neither a NameServer nor the verbs behind `ternmq broker` need.
    from ternmq_broker.broker import Broker

    return Broker(config, store, env)


def dev_sections(settings: LoadedSettings) -> tuple[NameServerConfig, BrokerConfig, StoreConfig]:
    """Return the settings, with the defaults of `ternmq dev` for settings that are not given.

    Raises:
        SettingsError: NameServers of the broker are given; it registers with its own.
    """
    origins = settings.origins
    nameserver, broker = settings[NameServerConfig], settings[BrokerConfig]
    store = settings[StoreConfig]
    if "broker.nameservers" in origins:
        given, origin = ",".join(broker.nameservers), origins["broker.nameservers"]
        rule = "`dev` registers with its own NameServer; leave it out, or run `ternmq broker`"
        raise SettingsError([f"broker.nameservers={given!r}: {rule} ({origin})"])
    if "nameserver.data" not in origins:
        nameserver = dataclasses.replace(nameserver, data=DEV_DATA / "nameserver")
    if "broker.data" not in origins:
        broker = dataclasses.replace(broker, data=DEV_DATA / "broker")
    if "broker.force_master" not in origins:
        # A broker without data must start with any epoch that its NameServer has stored.
        broker = dataclasses.replace(broker, force_master=True)
    if "store.commit_log_file_bytes" not in origins:
        store = dataclasses.replace(store, commit_log_file_bytes=DEV_LOG_FILE_BYTES)
    if not {"store.index_slots", "store.index_entries"} & set(origins):
        store = dataclasses.replace(
            store, index_slots=DEV_INDEX_SLOTS, index_entries=4 * DEV_INDEX_SLOTS
        )
    return nameserver, broker, store


def dev_log_members(settings: LoadedSettings) -> Services:
    """Return the members of log lines that tell NameServer and broker of one process apart.

    Lines of the packages that both use, such as the port's, have neither.
    """
    packages = ("ternmq_broker", "ternmq_store", "ternmq_client")
    members = dict.fromkeys(packages, _broker_member(settings))
    return {"ternmq_nameserver": _nameserver_member(settings), **members}


def _nameserver_member(settings: LoadedSettings) -> dict[str, str]:
    return {"nameserver": str(settings[NameServerConfig].listen_address)}


def _broker_member(settings: LoadedSettings) -> dict[str, str]:
    return {"broker": settings[BrokerConfig].name}


@contextlib.contextmanager
def hint_at(*options: str) -> Generator[None]:
    """Add a hint at the options of the ports to the error of an occupied port.

    Raises:
        CannotListen: A port is occupied; the text has the hint.
    """
    try:
        yield
    except (TernError, ExceptionGroup) as error:
        cause = first_cause(error)
        if not isinstance(cause, CannotListen) or os.strerror(errno.EADDRINUSE) not in str(cause):
            raise
        hint = f"(choose another: {' / '.join(options)}, 0 = any free)"
        if str(cause).startswith("metrics.port"):
            hint = "(choose another: --metrics-port, 0 = none)"
        raise CannotListen(f"{cause} {hint}") from error


def setting_option(option: str, *settings: str, **attributes: Any) -> Callable[[F], F]:
    """Return an option that sets `settings`."""

    def collect(context: click.Context, _: click.Parameter, value: object) -> None:
        if value is not None:
            flags: list[str] = context.meta.setdefault(_FLAGS, [])
            flags += [f"{setting}={value}" for setting in settings]

    return click.option(option, expose_value=False, callback=collect, **attributes)


def service_options(*services: str) -> Callable[[F], F]:
    """Return the common options of services, for the settings of `services`."""
    options = (
        click.option(
            "--set",
            "given",
            multiple=True,
            metavar="SECTION.NAME=VALUE",
            help="Value of a setting of docs/reference/config.md; may be repeated.",
        ),
        click.option(
            "--config",
            type=click.Path(path_type=Path, dir_okay=False),
            help="TOML file with settings.  [default: $TERNMQ_CONFIG]",
        ),
        setting_option(
            "--listen",
            *[f"{service}.listen" for service in services],
            metavar="HOST",
            help="Host to listen on.  [default: 127.0.0.1]",
        ),
        setting_option(
            "--metrics-port",
            "metrics.port",
            type=int,
            metavar="PORT",
            help="Port of /metrics, /livez and /readyz over HTTP.  [default: 0, none]",
        ),
        setting_option(
            "--tls-cert", "tls.cert", metavar="FILE", help="Certificate of the service, as PEM."
        ),
        setting_option("--tls-key", "tls.key", metavar="FILE", help="Key of --tls-cert, as PEM."),
        setting_option(
            "--tls-ca",
            "tls.ca",
            metavar="FILE",
            help="Certificates that verify clients and other services, as PEM.",
        ),
        setting_option(
            "--tls-client-auth",
            "tls.client_auth",
            type=click.Choice([each.value for each in ClientAuth]),
            help="Certificates of clients.  [default: none]",
        ),
        setting_option(
            "--insecure",
            "network.insecure",
            flag_value="true",
            help="Accept a port beyond this machine without TLS and users.",
        ),
        setting_option(
            "--log-format",
            "logging.format",
            type=click.Choice([each.value for each in LogFormat]),
            help="Lines for people, or one JSON object a line.  [default: console]",
        ),
    )

    def add(function: F) -> F:
        for option in options:
            function = option(function)
        return function

    return add


_DATA: Final[dict[str, Any]] = {
    "metavar": "DIR",
    "type": click.Path(path_type=Path),
    "help": "Directory of the data.",
}
_NAMESERVER_PORT: Final = setting_option(
    "--port-nameserver",
    "nameserver.port",
    type=int,
    help="Port; 0 selects a free one.  [default: 9876]",
)
_BROKER_PORT: Final = setting_option(
    "--port-broker", "broker.port", type=int, help="Port; 0 selects a free one.  [default: 10911]"
)


@click.command()
@click.option("--data", **_DATA)
@service_options("nameserver", "broker")
@_NAMESERVER_PORT
@_BROKER_PORT
def dev(data: Path | None, config: Path | None, given: Sequence[str]) -> None:
    """Run a NameServer and a broker in one process, until Ctrl-C.

    The data is in ./.ternmq unless --data or a setting names another folder. Once both serve
    clients, their addresses are printed on standard output; the log goes to standard error.
    """
    folders = [f"{name}.data={data / name}" for name in ("nameserver", "broker")] if data else []

    def addresses(services: DevServices, settings: LoadedSettings) -> list[str]:
        return [
            *_nameserver_address(services.nameserver, settings),
            *_broker_address(services.broker, settings),
        ]

    _serve(
        config,
        [*folders, *given],
        DevServices,
        addresses,
        dev_log_members,
        "--port-nameserver",
        "--port-broker",
    )


@click.command()
@setting_option("--data", "nameserver.data", **_DATA)
@service_options("nameserver")
@_NAMESERVER_PORT
def nameserver(config: Path | None, given: Sequence[str]) -> None:
    """Run a NameServer, until Ctrl-C.

    Key-value settings and epochs are stored in --data; without it they are lost at the end.
    """

    def make(settings: LoadedSettings, env: Environment) -> NameServer:
        return NameServer(settings[NameServerConfig], env)

    _serve(
        config,
        given,
        make,
        _nameserver_address,
        lambda settings: {"": _nameserver_member(settings)},
        "--port-nameserver",
    )


@click.command()
@setting_option("--data", "broker.data", **_DATA)
@service_options("broker")
@_BROKER_PORT
@setting_option("--name", "broker.name", help="Name of the broker.  [default: broker-a]")
@setting_option(
    "--nameserver",
    "broker.nameservers",
    metavar="HOST:PORT",
    help="Addresses of all NameServers, separated by commas.  [default: 127.0.0.1:9876]",
)
@setting_option(
    "--broker-id",
    "broker.broker_id",
    type=int,
    metavar="N",
    help="Id of the member: 0 for the master, above 0 for a slave of --name.  [default: 0]",
)
@setting_option(
    "--role",
    "broker.role",
    type=click.Choice([role.value for role in BrokerRole]),
    help="Role of the broker.  [default: async_master]",
)
@setting_option(
    "--force-master",
    "broker.force_master",
    flag_value="true",
    help="Start as the master without a confirmation that no newer master exists.",
)
def broker(config: Path | None, given: Sequence[str]) -> None:
    """Run a broker, until Ctrl-C."""

    def make(settings: LoadedSettings, env: Environment) -> "Broker":
        return new_broker(settings[BrokerConfig], settings[StoreConfig], env)

    _serve(
        config,
        given,
        make,
        _broker_address,
        lambda settings: {"": _broker_member(settings)},
        "--port-broker",
    )


def _nameserver_address(service: NameServer, _: LoadedSettings) -> list[str]:
    return [f"nameserver {service.address}"]


def _broker_address(service: "Broker", settings: LoadedSettings) -> list[str]:
    return [f"broker {settings[BrokerConfig].name} {service.address}"]


class ScrapedService(ScrapedProcess, AbstractAsyncContextManager[Any], Protocol):
    """Service of a process, whose metrics its port shows."""


ServiceT = TypeVar("ServiceT", bound=ScrapedService)


def _serve(
    config: Path | None,
    given: Sequence[str],
    make: Callable[[LoadedSettings, Environment], ServiceT],
    addresses: Callable[[ServiceT, LoadedSettings], list[str]],
    log_members: Callable[[LoadedSettings], Services],
    *ports: str,
) -> None:
    """Run a service until a signal, print its addresses once it serves, and exit with its code."""
    flags: list[str] = click.get_current_context().meta.get(_FLAGS, [])
    with errors_as_exits():
        settings = load_settings(
            SECTIONS,
            toml_path=config,
            environ=os.environ,
            flags=[*flags, *given],
            reserved=OTHER_VARIABLES,
        )
        configure_logging(settings[LoggingSettings], services=log_members(settings))
        if settings[LoggingSettings].format is LogFormat.JSON:
            # gRPC writes lines of its own form, for example after a failed handshake.
            os.environ.setdefault("GRPC_VERBOSITY", "NONE")

        async def serve() -> int:
            network, metrics = settings[NetworkConfig], settings[MetricsConfig]
            async with (
                system_environment(config=network, tls=settings[TlsConfig]) as process,
                audited(settings[AuditConfig], process) as env,
            ):
                service = make(settings, measured(env) if metrics.port else env)
                async with metrics_port(metrics, service) as scraped:
                    if scraped is not None and not network.insecure:
                        warn_of_readers(scraped)
                    shown = [] if scraped is None else [f"metrics {scraped}"]
                    return await run_until_signalled(
                        service,
                        on_ready=lambda: print_lines([*addresses(service, settings), *shown]),
                    )

        with hint_at(*ports):
            sys.exit(asyncio.run(serve()))


def warn_of_readers(scraped: Address) -> None:
    """Log who may read the metrics, unless the port is of this machine alone."""
    if not is_loopback(scraped.host):
        logger.warning(
            "metrics port shows names to whoever reaches it, without TLS and users address=%s",
            scraped,
        )
