"""Settings of a client: its services, its id, its timeouts."""

import os
import socket
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, TypeVar, cast

from ternmq_model.address import Address, parse_address
from ternmq_model.arguments import check_kinds, is_kind
from ternmq_model.errors import ConfigError, IllegalName
from ternmq_model.names import TRACE_TOPIC, check_topic

T = TypeVar("T")

NAMESERVER_DEFAULT: Final = "127.0.0.1:9876"
NAMESERVER_VARIABLE: Final = "TERNMQ_NAMESERVER"
"""Names the NameServers where the program does not: one image runs in every place."""


class DefaultNameServers(tuple[str, ...]):
    """NameServers of a program that names none: an argument `nameserver` may name others."""

    __slots__ = ()


def default_nameservers() -> DefaultNameServers:
    """Return the NameServers of a program that names none: the variable's, or this machine's."""
    named = os.environ.get(NAMESERVER_VARIABLE) or NAMESERVER_DEFAULT
    return DefaultNameServers(nameserver_texts(named))


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientConfig:
    """Settings that producers and consumers have in common. Durations in seconds."""

    nameservers: tuple[str, ...] = field(default_factory=default_nameservers)
    """`HOST:PORT` of each NameServer. One that answers is enough. Not given = those of the
    variable TERNMQ_NAMESERVER, or else 127.0.0.1:9876; then alone may `nameserver=` name others."""

    host_name: str = ""
    """First half of the client id. Empty = this machine's name."""

    instance_name: str = ""
    """Second half of the client id, unique among the live clients of a host. Empty = made from
    process id, start time and a random number."""

    request_timeout_s: float = 3.0
    """Time limit for the answer to one request."""

    connect_timeout_s: float = 1.0
    """Time limit for connecting to each address of a service."""

    route_refresh_s: float = 30.0
    """Interval between two questions for the route of a known topic."""

    heartbeat_s: float = 30.0
    """Interval between heartbeats of a client that has nothing else to say."""

    session_retry_s: float = 1.0
    """Longest wait before a broken Session is opened again the first time; doubles up to 8 times
    this."""

    trace: bool = False
    """Message traces (who sent and consumed which message, with what outcome) go to `trace_topic`,
    a moment later. Never delays or fails a message."""

    trace_topic: str = TRACE_TOPIC
    """Topic of the traces. Brokers have the default one with `broker.trace_topic_enabled`."""

    def __post_init__(self) -> None:
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
        """Return the NameServers' addresses, each once, in their order."""
        addresses = (parse_address(text, setting="client.nameservers") for text in self.nameservers)
        return tuple(dict.fromkeys(addresses))

    def client_id(self, *, now_ms: int, random: Random) -> str:
        """Return `host@instance` for a client that starts at wall time `now_ms`.

        RocketMQ's instance is `<pid>#<nanoseconds>`. Here a random number takes the place of the
        digits below milliseconds, so that clients of one process never have the same id: a broker
        would refuse the second one's Session.
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
    """Return how a client that was made with these arguments finds and talks to services.

    Called by a constructor, to whose caller the warning points.

    Args:
        nameserver: `HOST:PORT`, several of them separated by `;` or `,`, or a sequence of such.
            None = those of `client`.
        client: None = the defaults.
        deprecated: What was given under the name that `client` had before.
        deprecated_name: That name.

    Raises:
        ConfigError: One of them is of another type, or both name NameServers, and not the same.
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
        rule = f"client.nameservers={config.nameservers!r} names others: give one of the two"
        raise ConfigError("nameserver", nameserver, rule)
    return chosen


def checked_config(name: str, config: T | None, kind: type[T]) -> T:
    """Return `config` when it is a `kind`; the defaults when it is None.

    Raises:
        ConfigError: It is something else.
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
    """Return what a user gave as NameServers as one text for each.

    Args:
        nameserver: `HOST:PORT`, several of them separated by `;` or `,`, or a sequence of such.

    Raises:
        ConfigError: It is neither.
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
