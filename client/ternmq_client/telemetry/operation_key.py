"""Keys of operations, and their attributes by OpenTelemetry's semantic conventions. Pure."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

OperationName: TypeAlias = Literal["create", "send", "receive", "process", "settle"]
AttributeValue: TypeAlias = str | int | tuple[str, ...]
Attributes: TypeAlias = dict[str, AttributeValue]


class OperationKey(NamedTuple):
    """Key of equal operations, whose durations and messages are added up. Empty = unknown."""

    operation: OperationName
    address: str = ""
    """`HOST:PORT` of the broker."""

    topic: str = ""
    """Destination; empty for several."""

    group: str = ""
    """Consumer group."""

    error: str = ""
    """Name of the failure; empty = none."""


@lru_cache(maxsize=1024)
def attributes_of(key: OperationKey) -> Mapping[str, AttributeValue]:
    """Return the attributes of an operation, without those that are unknown."""
    attributes: Attributes = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": key.operation,
        "messaging.operation.type": key.operation,
    }
    if key.topic:
        attributes["messaging.destination.name"] = key.topic
    if key.group:
        attributes["messaging.consumer.group.name"] = key.group
    if key.error:
        attributes["error.type"] = key.error
    return {**attributes, **server_attributes(key.address)}


@lru_cache(maxsize=1024)
def server_attributes(address: str) -> Mapping[str, AttributeValue]:
    """Return the attributes of a broker's `HOST:PORT`; none for an empty one."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return {}
    return {"server.address": host.strip("[]"), "server.port": int(port)}


def topic_of_all(topics: Iterable[str]) -> str:
    """Return the topic of an operation on messages of `topics`; empty = several, or none."""
    distinct = set(topics)
    return distinct.pop() if len(distinct) == 1 else ""


def span_name(key: OperationKey) -> str:
    """Return the name of an operation's span."""
    return f"{key.operation} {key.topic}" if key.topic else key.operation
