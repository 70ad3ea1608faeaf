"""Routes of topics: values that brokers register, and the queues that clients derive.

`ternmq_nameserver.route_table` stores the values. Clients compare their route with a new one by
`==`, so the parts of a route are always sorted.

Source: RocketMQ `TopicRouteData`, `QueueData`, `BrokerData`, `TopicConfig`, `PermName`,
`MQClientInstance.topicRouteData2TopicPublishInfo`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntFlag
from typing import Final, Self

from ternmq_model.address import Address
from ternmq_model.arguments import fault_of_span_ms, is_kind, is_whole
from ternmq_model.errors import IllegalName, RefusedError, UsageError, refusal
from ternmq_model.names import RETRY_PREFIX, check_topic
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode

MASTER_ID: Final = 0
"""Broker id of a master. All other ids belong to slaves."""

BROKER_NAME_CHARACTERS_MAX: Final = 127
QUEUES_MAX: Final = 16_384
"""Most queues of one topic on one broker: each is a directory of its store."""

TOPICS_AT_ONCE_MAX: Final = 1_024
"""Most topics that one request creates: some 25 ms of a broker's loop."""

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
"""Namespace of a NameServer with order configurations by topic, such as "brokerA:8;brokerB:8"."""

RETENTION_MS_MAX: Final = 100 * 365 * 86_400_000
"""Longest retention of a topic: a hundred years."""

_LEGAL_CLUSTER: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII)
_LEGAL_BROKER: Final = re.compile(
    r"[A-Za-z0-9_-][A-Za-z0-9._-]*(@[A-Za-z0-9_-][A-Za-z0-9._-]*)?", re.ASCII
)
_ORDER_SECTION: Final = re.compile(
    rf"(?P<broker>{_LEGAL_BROKER.pattern}):(?P<queues>[0-9]{{1,5}})", re.ASCII
)


class Permission(IntFlag):
    """Permissions of a topic. Unknown bits of a peer are retained.

    Attributes:
        READ: Consumers may read it.
        WRITE: Producers may send to it.
        INHERIT: A template: topics that a send creates copy this one's settings.
    """

    READ = 4
    WRITE = 2
    INHERIT = 1

    @property
    def text(self) -> str:
        """Return the form of the command line, such as "RW-"."""
        letters = ((Permission.READ, "R"), (Permission.WRITE, "W"), (Permission.INHERIT, "X"))
        return "".join(letter if flag in self else "-" for flag, letter in letters)

    def without(self, other: "Permission") -> "Permission":
        """Return these permissions without those of `other`. Unknown bits stay."""
        # `~` of a flag knows only the named bits.
        return Permission(int(self) & ~int(other))


READ_WRITE: Final = Permission.READ | Permission.WRITE


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """Settings of one topic on a broker."""

    topic: str
    """Name of the topic."""

    read_queues: int = 8
    """Number of queues on each broker that consumers read."""

    write_queues: int = 8
    """Number of queues on each broker that producers send to."""

    permissions: Permission = READ_WRITE
    """Permissions of clients."""

    sys_flag: int = 0
    """Bits: 1 unit, 2 unit subscription."""

    ordered: bool = False
    """True for a topic to be consumed in order, as RocketMQ marks topics."""

    retention_ms: int = 0
    """Retention time of messages, ms; 0 = the setting of the broker's store."""


@dataclass(frozen=True, slots=True)
class QueueData:
    """Queues of one topic on one broker."""

    broker_name: str
    """Name of the broker."""

    read_queues: int
    """Number of queues that consumers read."""

    write_queues: int
    """Number of queues that producers send to."""

    permissions: Permission
    """Permissions of clients on the topic there."""

    sys_flag: int = 0
    """Bits: 1 unit, 2 unit subscription."""


@dataclass(frozen=True, slots=True)
class BrokerMember:
    """Member of a broker name: one process, master or slave."""

    broker_id: int
    """Id of the member: 0 for the master, above 0 for a slave."""

    endpoints: tuple[Address, ...]
    """Addresses in the order of preference; `resolve_addresses` resolves the host "*"."""

    epoch: int = 0
    """Epoch of the master, in the member's last registration."""


@dataclass(frozen=True, slots=True)
class BrokerData:
    """Broker name with its master and slaves."""

    cluster: str
    """Name of the cluster."""

    broker_name: str
    """Name that the master and its slaves share."""

    members: tuple[BrokerMember, ...]
    """Members, sorted by broker id."""

    @property
    def master(self) -> BrokerMember | None:
        """Member that accepts messages; None without a master."""
        return self.member(MASTER_ID)

    def member(self, broker_id: int) -> BrokerMember | None:
        """Return the member with an id, or None."""
        return next((member for member in self.members if member.broker_id == broker_id), None)


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """Route of a topic: its queues, and the brokers that have them."""

    topic: str
    """Name of the topic."""

    queues: tuple[QueueData, ...] = ()
    """Queues of each broker, sorted by broker name."""

    brokers: tuple[BrokerData, ...] = ()
    """Brokers, sorted by name."""

    order_topic_conf: str = ""
    """Order configuration, such as "brokerA:8;brokerB:8"; empty without a fixed order of queues."""

    def broker(self, broker_name: str) -> BrokerData | None:
        """Return the broker with a name, or None when the route does not have it."""
        return next((data for data in self.brokers if data.broker_name == broker_name), None)

    def write_queues(self) -> list[MessageQueue]:
        """Return the queues to send to, sorted.

        A queue counts if its broker has a master and the topic may be written there. A topic with
        an order configuration always has the queues of that configuration: a key must not move to
        another queue while a broker is away.
        """
        if self.order_topic_conf:
            return sorted(
                MessageQueue(self.topic, broker_name, queue_id)
                for broker_name, count in order_sections(self.order_topic_conf)
                for queue_id in range(count)
            )
        masters = {data.broker_name for data in self.brokers if data.master is not None}
        return sorted(
            MessageQueue(self.topic, data.broker_name, queue_id)
            for data in self.queues
            if Permission.WRITE in data.permissions and data.broker_name in masters
            for queue_id in range(data.write_queues)
        )

    def read_queues(self) -> list[MessageQueue]:
        """Return the queues to consume, sorted: those with read permission.

        Queues of brokers without a master count too: slaves serve reads, and all members of a group
        must share the same queues.
        """
        return sorted(
            MessageQueue(self.topic, data.broker_name, queue_id)
            for data in self.queues
            if Permission.READ in data.permissions
            for queue_id in range(data.read_queues)
        )

    def closed_brokers(self) -> list[str]:
        """Return the names of the brokers that have the topic and do not let it be read."""
        return [data.broker_name for data in self.queues if Permission.READ not in data.permissions]

    def read_refusal(self) -> RefusedError:
        """Return the error for the topic without a readable queue."""
        closed = self.closed_brokers()
        why = f"{', '.join(closed)} permit no reading" if closed else "it has no queues to read"
        remark = f"topic {self.topic!r} may not be read: {why}"
        return refusal(ResponseCode.NO_PERMISSION, remark)

    def for_new_topic(self, topic: str, *, queues_max: int) -> Self:
        """Return the route of `topic` after a send creates it from this template.

        A retry topic begins with one queue on each broker, independent of the template.
        """
        most = 1 if topic.startswith(RETRY_PREFIX) else queues_max
        queues = tuple(
            replace(
                data,
                read_queues=min(most, data.read_queues),
                write_queues=min(most, data.read_queues),
            )
            for data in self.queues
        )
        return replace(self, topic=topic, queues=queues)


def order_sections(order_topic_conf: str) -> Iterator[tuple[str, int]]:
    """Yield broker name and queue count of each section with the form "name:count".

    Other sections are ignored: one mistake in a setting must not stop its readers.
    """
    for section in order_topic_conf.split(";"):
        match = _ORDER_SECTION.fullmatch(section)
        if match is not None and 0 < int(match["queues"]) <= QUEUES_MAX:
            yield match["broker"], int(match["queues"])


def is_order_conf(text: str) -> bool:
    """Return whether every section of `text` has the form "name:count", each broker once."""
    sections = list(order_sections(text))
    names = {broker_name for broker_name, _ in sections}
    return len(sections) == len(names) == len(text.split(";"))


def check_broker_name(name: str) -> str:
    """Return `name` if it is legal for a broker: letters, digits and `. _ -`, no leading dot.

    A name may have two such parts, `<machine room>@<name>`.

    Raises:
        IllegalName: The name has another form or is too long.
    """
    return _check("broker name", name, _LEGAL_BROKER)


def check_cluster(name: str) -> str:
    """Return `name` if it is legal for a cluster.

    Raises:
        IllegalName: The name is illegal for a broker, or has a machine room.
    """
    return _check("cluster", name, _LEGAL_CLUSTER)


def check_topic_config(config: TopicConfig) -> TopicConfig:
    """Return `config` if its values are legal.

    Raises:
        IllegalName: The name is illegal, a number of queues lies outside 0 to 16,384, the retention
            is negative or longer than a hundred years, or one of them is no number.
        UsageError: `config` is no `TopicConfig`.
    """
    if not is_kind(config, TopicConfig):
        raise UsageError(f"{config!r} is no TopicConfig: write TopicConfig(topic)")
    check_topic(config.topic)
    fault = fault_of_span_ms(config.retention_ms)
    if fault is None and not 0 <= config.retention_ms <= RETENTION_MS_MAX:
        fault = f"may be 0 to {RETENTION_MS_MAX}"
    if fault is not None:
        rule = f"retention_ms={config.retention_ms!r} {fault}"
        raise IllegalName("topic", config.topic, rule)
    if not is_whole(config.permissions):  # bits that no `Permission` has are a peer's, and kept
        rule = f"permissions={config.permissions!r} must be such as Permission.READ"
        raise IllegalName("topic", config.topic, rule)
    for kind, count in (("read", config.read_queues), ("write", config.write_queues)):
        if not is_whole(count) or not 0 <= count <= QUEUES_MAX:
            rule = f"{count!r} {kind} queues; may have 0 to {QUEUES_MAX}"
            raise IllegalName("topic", config.topic, rule)
    return config


def _check(kind: str, name: str, legal: re.Pattern[str]) -> str:
    if len(name) > BROKER_NAME_CHARACTERS_MAX:
        rule = f"is {len(name)} characters long, at most {BROKER_NAME_CHARACTERS_MAX} fit"
        raise IllegalName(kind, name[:BROKER_NAME_CHARACTERS_MAX], rule)
    if not name:
        raise IllegalName(kind, name, "must not be empty")
    if not legal.fullmatch(name):
        raise IllegalName(kind, name, "may have only letters, digits and . _ -, no dot first")
    return name
