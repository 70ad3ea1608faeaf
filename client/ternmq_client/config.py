"""Settings of a client: its services, its id, its timeouts."""

import os
import socket
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeVar, cast

from ternmq_client.telemetry.telemetry import Telemetry
from ternmq_model.address import Address, parse_address
from ternmq_model.arguments import check_kinds, is_kind
from ternmq_model.default_nameserver import DEFAULT_NAMESERVER, NAMESERVER_VARIABLE
from ternmq_model.errors import ConfigError, IllegalName
from ternmq_model.names import TRACE_TOPIC, check_topic
from ternmq_remoting.tls import Credentials

T = TypeVar("T")


class DefaultNameServers(tuple[str, ...]):
    """Default NameServers. An argument `nameserver` may replace them."""

    __slots__ = ()


def default_nameservers() -> DefaultNameServers:
    """Return the default NameServers: those of the variable, or this machine's."""
    named = os.environ.get(NAMESERVER_VARIABLE) or DEFAULT_NAMESERVER
    return DefaultNameServers(nameserver_texts(named))


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientConfig:
    """Settings that producers and consumers have in common. Durations in seconds."""

    nameservers: tuple[str, ...] = field(default_factory=default_nameservers)
    """`HOST:PORT` of each NameServer, of which one must answer. Default: those of the variable
    TERNMQ_NAMESERVER, or 127.0.0.1:9876. Only with the default, `nameserver=` may name others."""

    host_name: str = ""
    """First half of the client id. Empty = this machine's name."""

    instance_name: str = ""
    """Second half of the client id, unique among the live clients of a host. Empty = made from
    process id, start time and a random number."""

    credentials: Credentials | None = None
    """Certificates of the client. None = those of the file that the variable
    TERNMQ_CREDENTIALS_FILE names; without the variable no connection uses TLS."""

    request_timeout_s: float = 3.0
    """Time limit for the answer to one request."""

    connect_timeout_s: float = 1.0
    """Time limit for connecting to each address of a service."""

    route_refresh_s: float = 30.0
    """Interval between refreshes of the route of a known topic, s."""

    heartbeat_s: float = 30.0
    """Interval between heartbeats on a Session without other messages, s."""

    session_retry_s: float = 1.0
    """Longest wait before the first attempt to reopen a broken Session, s. The wait doubles with
    each attempt, up to 8 times this value. A new connection to a broker that was away ends it."""

    trace: bool = False
    """Message traces: records of sends and listener calls, sent to `trace_topic` a moment later.
    Traces never delay or fail a message."""

    trace_topic: str = TRACE_TOPIC
    """Topic of the traces. Brokers have the default one with `broker.trace_topic_enabled`."""

    telemetry: Telemetry | None = None
    """Metrics and traces by OpenTelemetry. None = none, and OpenTelemetry is not imported."""

    def __post_init__(self) -> None:
        checked_telemetry: object = self.telemetry
        if checked_telemetry is not None and not is_kind(checked_telemetry, Telemetry):
            rule = "must be a Telemetry, or None"
            raise ConfigError("client.telemetry", checked_telemetry, rule)
        given: object = self.nameservers
        if isinstance(given, str):  # else its characters would be the addresses
            rule = f"must be a tuple: ({given!r},). A single text is given as nameserver={given!r}"
            raise ConfigError("client.nameservers", given, rule)
        if not isinstance(given, DefaultNameServers):
            object.__setattr__(self, "nameservers", _texts_in("client.nameservers", given))
        if not self.nameservers:
            raise ConfigError("client.nameservers", (), 'must name one, such as "127.0.0.1:9876"')
        self.addresses()
        check_kinds("client", self)
        try:
            check_topic(self.trace_topic)
        except IllegalName as error:
            raise ConfigError("client.trace_topic", self.trace_topic, error.rule) from None
        for name in ("host_name", "instance_name"):
            value: str = getattr(self, name)
            if not is_kind(value, str) or "@" in value or not value.isprintable():
                raise ConfigError(
                    f"client.{name}", value, "must be a text without @ and control characters"
                )
        for name in (
            "request_timeout_s",
            "connect_timeout_s",
            "route_refresh_s",
            "heartbeat_s",
            "session_retry_s",
        ):
            seconds: float = getattr(self, name)
            if not seconds > 0:
                raise ConfigError(f"client.{name}", seconds, "must be above 0")

    def addresses(self) -> tuple[Address, ...]:
        """Return the addresses of the NameServers, each once, in their order."""
        addresses = (parse_address(text, setting="client.nameservers") for text in self.nameservers)
        return tuple(dict.fromkeys(addresses))

    def client_id(self, *, now_ms: int, random: Random) -> str:
        """Return `host@instance` for a client that starts at wall time `now_ms`.

        RocketMQ's instance is `<pid>#<nanoseconds>`. Here a random number replaces the digits below
        milliseconds, so that clients of one process never have equal ids: a broker refuses the
        Session of a second client with an id.
        """
        host = self.host_name or socket.gethostname()
        instance = self.instance_name or f"{os.getpid()}#{now_ms}-{random.getrandbits(32):08x}"
        return host + "@" + instance  # a format takes a member of an enum for its name


def resolve_client(
    nameserver: str | Sequence[str] | None,
    client: ClientConfig | None,
    *,
    deprecated: ClientConfig | None = None,
    deprecated_name: str = "client_config",
) -> ClientConfig:
    """Return the settings of a client by the arguments of its constructor.

    A constructor calls this function, and a warning points to the constructor's caller.

    Args:
        nameserver: `HOST:PORT`, several separated by `;` or `,`, or a sequence of such. None = the
            NameServers of `client`.
        client: Settings of the client; None = the defaults.
        deprecated: Value of the deprecated argument for `client`.
        deprecated_name: Name of the deprecated argument.

    Raises:
        ConfigError: An argument has another type, or both name different NameServers.
    """
    if deprecated is not None:
        chosen = checked_config(deprecated_name, deprecated, ClientConfig)
        if client is not None:
            rule = f"is the old name of client: give client alone, not {deprecated_name} as well"
            raise ConfigError(deprecated_name, deprecated, rule)
        warnings.warn(
            f"{deprecated_name}= is deprecated: write client= instead",
            DeprecationWarning,
            stacklevel=3,
        )
        client = chosen
    config = checked_config("client", client, ClientConfig)
    if nameserver is None:
        return config
    chosen = replace(config, nameservers=nameserver_texts(nameserver))
    is_named = not isinstance(config.nameservers, DefaultNameServers)
    if is_named and {*chosen.addresses()} != {*config.addresses()}:
        rule = f"client.nameservers={config.nameservers!r} has other addresses: give one of the two"
        raise ConfigError("nameserver", nameserver, rule)
    return chosen


def checked_config(name: str, config: T | None, kind: type[T]) -> T:
    """Return `config` after a check of its type; None = the defaults.

    Raises:
        ConfigError: `config` is no `kind`.
    """
    if config is None:
        return kind()
    given: object = config
    if isinstance(given, kind):
        return given
    rule = f"must be a {kind.__name__}"
    if isinstance(given, ClientConfig):
        rule += "; a ClientConfig is given as client="
    elif isinstance(given, str) and kind is ClientConfig:
        rule += f"; an address is given as nameserver={given!r}"
    raise ConfigError(name, given if isinstance(given, str) else type(given), rule)


def nameserver_texts(nameserver: str | Sequence[str]) -> tuple[str, ...]:
    """Return the text of each NameServer.

    Args:
        nameserver: `HOST:PORT`, several separated by `;` or `,`, or a sequence of such.

    Raises:
        ConfigError: `nameserver` has another type.
    """
    texts = (nameserver,) if isinstance(nameserver, str) else _texts_in("nameserver", nameserver)
    parts = (part.strip() for text in texts for part in text.replace(";", ",").split(","))
    return tuple(part for part in parts if part)


def _texts_in(setting: str, given: object) -> tuple[str, ...]:
    if is_kind(given, Sequence):
        texts = tuple(cast("Sequence[str]", given))
        if all(is_kind(each, str) for each in texts):
            return texts
    raise ConfigError(setting, given, 'must be a text such as "127.0.0.1:9876"')
