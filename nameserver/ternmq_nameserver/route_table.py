"""Who serves what, as brokers register it. Pure: time is an argument, and changes are returned as
lines for the log, template and arguments apart.

Three rules keep an old broker from harming a new one:

* A member that unregisters is taken out only when its incarnation is the one that is registered: a
  stale goodbye that comes after a restart says nothing about the new process.
* A master with a lower epoch than was ever accepted of its name is refused, and so is anybody
  with one that is too far above it.
* Silence is measured on the NameServer's own monotonic clock; no broker's clock counts.

Source: RocketMQ `RouteInfoManager`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ternmq_model.address import ANY_HOST, Address
from ternmq_model.data_version import DataVersion
from ternmq_model.epochs import EPOCH_MAX, EPOCH_STEP_MAX, EPOCH_STORED_MAX, doubt_of
from ternmq_model.errors import RefusedError, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import (
    MASTER_ID,
    BrokerData,
    BrokerMember,
    Permission,
    QueueData,
    TopicConfig,
    TopicRoute,
    check_broker_name,
    check_cluster,
    check_topic_config,
)

EXPIRY_MS: Final = 120_000
"""Silence after which a broker is dropped when it does not say itself."""

EXPIRY_MS_MIN: Final = 1_000
EXPIRY_MS_MAX: Final = 86_400_000
ENDPOINTS_MAX: Final = 16
INCARNATION_CHARACTERS_MAX: Final = 128
TOPICS_MAX: Final = 65_536
"""Most topics of one broker."""

BROKER_NAMES_MAX: Final = 4_096
MEMBERS_MAX: Final = 32
"""Most members of one broker name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Registration:
    """What one broker tells of itself."""

    cluster: str
    broker_name: str
    broker_id: int
    endpoints: tuple[Address, ...]
    incarnation: str
    """Random per process."""

    epoch: int = 0
    """Counts the lives of a master."""

    data_version: DataVersion
    topics: tuple[TopicConfig, ...] = ()
    """Every topic of the broker."""

    expiry_ms: int = EXPIRY_MS


class Change(NamedTuple):
    """A line for the log, not yet put together.

    Apart, so that the log counts different events apart, and shows each named value as a member.
    """

    template: str
    """Names its values: `broker=%s`."""

    args: tuple[object, ...]
    """One for each `%s`."""

    def __str__(self) -> str:
        return self.template % self.args


@dataclass(frozen=True, slots=True)
class Registered:
    """What a registration did.

    Attributes:
        master_endpoints: Where a slave finds its master; empty for a master, and
            while there is none.
        changes: What there is to log; none for a mere sign of life.
    """

    master_endpoints: tuple[Address, ...]
    members: tuple[BrokerMember, ...]
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class _TopicsSource:
    """Whose word the topics are."""

    is_master: bool
    incarnation: str
    data_version: DataVersion


@dataclass(frozen=True, slots=True)
class _Member:
    data: BrokerMember
    incarnation: str
    expiry_ms: int
    seen_at_ms: int


@dataclass(slots=True)
class _Broker:
    """One broker name. Has at least one member as long as it is in the table."""

    cluster: str
    members: dict[int, _Member] = field(default_factory=dict[int, _Member])
    queues: dict[str, QueueData] = field(default_factory=dict[str, QueueData])
    topics_from: _TopicsSource | None = None
    wiped_from: str | None = None
    """Incarnation of the master whose write permission was taken; "" when there was none."""


class RouteTable:
    """Every broker and its topics. Owned by the NameServer's loop.

    Invariants: a broker name has at least one member; a topic is on at least one broker.
    """

    def __init__(self) -> None:
        self._brokers: dict[str, _Broker] = {}
        self._topics: dict[str, set[str]] = {}  # topic → names of the brokers that have it

    def check(self, registration: Registration, *, highest_epoch: int = 0) -> None:
        """Refuse what `register` would refuse; nothing changes.

        Raises:
            As `register`.
        """
        check_registration(registration)
        self._check_fence(registration, highest_epoch)

    def register(
        self, registration: Registration, *, now_ms: int, highest_epoch: int = 0
    ) -> Registered:
        """Keep that the broker lives, and its topics when they are news.

        Topics are news when their data version, or the process that tells them, is another than
        before. They replace all that the broker name had. The master decides; a slave's count only
        as long as no master has told any, so that a name whose master is away stays readable.

        Args:
            registration: Not yet checked.
            now_ms: Monotonic.
            highest_epoch: Of the name, the highest that was ever accepted.

        Raises:
            IllegalName: A name cannot be; nothing changes.
            RefusedError: INVALID_PARAMETER for other values that cannot be, and for an epoch that
                is not believed; ILLEGAL_OPERATION for a lower epoch than the highest, or another
                cluster than the name's living members; nothing changes.
        """
        self.check(registration, highest_epoch=highest_epoch)
        changes = list(self._keep_member(registration, now_ms))
        broker = self._brokers[registration.broker_name]
        if self._is_news(broker, registration):
            changes.extend(self._keep_topics(broker, registration))
        master = broker.members.get(MASTER_ID)
        is_slave = registration.broker_id != MASTER_ID
        endpoints = master.data.endpoints if master and is_slave else ()
        members = tuple(member.data for _, member in sorted(broker.members.items()))
        return Registered(endpoints, members, tuple(changes))

    def unregister(
        self, *, cluster: str, broker_name: str, broker_id: int, incarnation: str
    ) -> tuple[Change, ...]:
        """Take a member out; nothing happens unless all four are as it registered.

        Returns:
            What there is to log.
        """
        broker = self._brokers.get(broker_name)
        member = broker.members.get(broker_id) if broker else None
        if broker is None or member is None or broker.cluster != cluster:
            return ()
        if member.incarnation != incarnation:
            return ()
        return tuple(self._drop(broker_name, broker_id, "unregistered"))

    def expire(self, *, now_ms: int) -> tuple[Change, ...]:
        """Take out every member that was silent for longer than its expiry.

        Returns:
            What there is to log.
        """
        silent = [
            (broker_name, broker_id)
            for broker_name, broker in self._brokers.items()
            for broker_id, member in broker.members.items()
            if now_ms - member.seen_at_ms > member.expiry_ms
        ]
        return tuple(change for member in silent for change in self._drop(*member, "expired"))

    def check_repair(self, cluster: str, broker_name: str, *, before: int, epoch: int) -> None:
        """Refuse to replace the epoch of a broker name where a master may really have it.

        Args:
            cluster: That the name belongs to.
            broker_name: The name.
            before: What is replaced.
            epoch: What replaces it.

        Raises:
            InvalidParameter: No epoch has that number.
            RefusedError: ILLEGAL_OPERATION: what is replaced is believed, or a living member has
                registered a higher one than `epoch`.
        """
        name = f"broker {broker_name}"
        if not 0 < epoch <= EPOCH_MAX:
            remark = f"{name}: epoch {epoch}: must be 1 to {EPOCH_MAX}"
            raise refusal(ResponseCode.INVALID_PARAMETER, remark)
        if epoch < before and not doubt_of(before, epoch):
            remark = (
                f"{name}: epoch {before} may be real: it is no more than {EPOCH_STEP_MAX} above"
                f" {epoch}, and a promotion goes beyond it"
            )
            raise refusal(ResponseCode.ILLEGAL_OPERATION, remark)
        broker = self._brokers.get(broker_name)
        members = broker.members if broker and broker.cluster == cluster else {}
        for broker_id, member in sorted(members.items()):
            if member.data.epoch > epoch:
                remark = f"{name}: member {broker_id} is registered with epoch {member.data.epoch}"
                raise refusal(ResponseCode.ILLEGAL_OPERATION, remark)

    def topic_route(self, topic: str) -> TopicRoute:
        """Return who serves `topic`.

        Raises:
            TopicNotFound: No broker has it.
        """
        names = sorted(self._topics.get(topic, ()))
        if not names:
            raise refusal(ResponseCode.TOPIC_NOT_EXIST, f"no broker has topic {topic}")
        return TopicRoute(
            topic,
            queues=tuple(self._queue_data(name, topic) for name in names),
            brokers=tuple(self._broker_data(name) for name in names),
        )

    def clusters(self, broker_name: str = "") -> tuple[BrokerData, ...]:
        """Return every broker name, or that one alone, sorted by cluster, then name.

        Every broker asks for its own name each second, so that must not look at the others.
        """
        if broker_name:
            return (self._broker_data(broker_name),) if broker_name in self._brokers else ()
        brokers = map(self._broker_data, self._brokers)
        return tuple(sorted(brokers, key=lambda data: (data.cluster, data.broker_name)))

    def topics(self, cluster: str = "") -> list[str]:
        """Return every topic (of one cluster), sorted."""
        return sorted(
            topic
            for topic, names in self._topics.items()
            if not cluster or any(self._brokers[name].cluster == cluster for name in names)
        )

    def wipe_write_permission(self, broker_name: str) -> int:
        """Take the write permission from every topic of a broker, so that it can be emptied.

        It lasts until the broker's master is another process, or the name is gone, by leaving or by
        silence; new topics and data versions do not bring the permission back. Nor does it outlive
        this table.

        Returns:
            How many topics lost the permission; 0 when it was taken before.

        Raises:
            RefusedError: BROKER_NOT_EXIST.
        """
        broker = self._known(broker_name)
        if broker.wiped_from is not None:
            return 0
        master = broker.members.get(MASTER_ID)
        broker.wiped_from = master.incarnation if master else ""
        return _writable_topics(broker)

    def add_write_permission(self, broker_name: str) -> int:
        """Give back what `wipe_write_permission` took, and nothing that topics never had.

        Returns:
            How many topics can be written again; 0 when nothing was taken.

        Raises:
            RefusedError: BROKER_NOT_EXIST.
        """
        broker = self._known(broker_name)
        if broker.wiped_from is None:
            return 0
        broker.wiped_from = None
        return _writable_topics(broker)

    def _known(self, broker_name: str) -> _Broker:
        broker = self._brokers.get(broker_name)
        if broker is None:
            raise refusal(ResponseCode.BROKER_NOT_EXIST, f"no broker {broker_name} is registered")
        return broker

    def _check_fence(self, registration: Registration, highest_epoch: int) -> None:
        name, broker_id = registration.broker_name, registration.broker_id
        broker = self._brokers.get(name)
        if broker is None and len(self._brokers) >= BROKER_NAMES_MAX:
            remark = f"{BROKER_NAMES_MAX} broker names are registered; no more fit"
            raise refusal(ResponseCode.FLOW_CONTROL, remark)
        members = broker.members if broker else {}
        if broker_id not in members and len(members) >= MEMBERS_MAX:
            raise refusal(ResponseCode.FLOW_CONTROL, f"broker {name} has {MEMBERS_MAX} members")
        if broker and members.keys() - {broker_id} and broker.cluster != registration.cluster:
            remark = (
                f"broker {name} belongs to cluster {broker.cluster}, not {registration.cluster}"
            )
            raise refusal(ResponseCode.ILLEGAL_OPERATION, remark)
        newest = max([highest_epoch, *(member.data.epoch for member in members.values())])
        if doubt := doubt_of(registration.epoch, newest):
            raise _invalid(registration, doubt)
        if broker_id == MASTER_ID and registration.epoch < newest:
            remark = f"broker {name}: epoch {registration.epoch} is over, {newest} has begun"
            if doubt := doubt_of(newest, registration.epoch):
                remark = f"{remark}; {doubt}"
            raise refusal(ResponseCode.ILLEGAL_OPERATION, remark)

    def _keep_member(self, registration: Registration, now_ms: int) -> Iterator[Change]:
        name, broker_id = registration.broker_name, registration.broker_id
        broker = self._brokers.get(name)
        if broker is None:
            broker = self._brokers[name] = _Broker(registration.cluster)
        broker.cluster = registration.cluster
        before = broker.members.get(broker_id)
        kept = _member_of(registration, now_ms)
        broker.members[broker_id] = kept
        # A process that has taken another id is still where it was: one address, one member.
        for other_id in [*broker.members]:
            if other_id != broker_id and _share_an_address(broker.members[other_id], kept):
                yield from self._drop(name, other_id, "took another id")
        if broker_id == MASTER_ID and broker.wiped_from != kept.incarnation:
            broker.wiped_from = None
        what = _what_happened(before, kept)
        if what:
            endpoints = ",".join(map(str, registration.endpoints))
            yield Change(
                f"broker {what} cluster=%s broker=%s id=%s endpoints=%s epoch=%s",
                (registration.cluster, name, broker_id, endpoints, registration.epoch),
            )

    def _is_news(self, broker: _Broker, registration: Registration) -> bool:
        source = _source_of(registration)
        if broker.topics_from is None or source.is_master:
            return broker.topics_from != source
        return not broker.topics_from.is_master and broker.topics_from != source

    def _keep_topics(self, broker: _Broker, registration: Registration) -> Iterator[Change]:
        name = registration.broker_name
        broker.topics_from = _source_of(registration)
        queues = {config.topic: _queue_data_of(name, config) for config in registration.topics}
        before = broker.queues
        broker.queues = queues
        for topic in before.keys() - queues.keys():
            self._forget_topic(topic, name)
        for topic in queues.keys() - before.keys():
            self._topics.setdefault(topic, set()).add(name)
        if before != queues:
            changed = sum(before.get(topic) != data for topic, data in queues.items())
            gone = len(before.keys() - queues.keys())
            yield Change(
                "topics changed broker=%s topics=%s changed=%s gone=%s",
                (name, len(queues), changed, gone),
            )

    def _drop(self, broker_name: str, broker_id: int, reason: str) -> Iterator[Change]:
        broker = self._brokers[broker_name]
        del broker.members[broker_id]
        yield Change(
            f"broker {reason} cluster=%s broker=%s id=%s members=%s",
            (broker.cluster, broker_name, broker_id, len(broker.members)),
        )
        if broker.members:
            return
        del self._brokers[broker_name]
        for topic in broker.queues:
            self._forget_topic(topic, broker_name)

    def _forget_topic(self, topic: str, broker_name: str) -> None:
        names = self._topics[topic]
        names.remove(broker_name)
        if not names:
            del self._topics[topic]

    def _queue_data(self, broker_name: str, topic: str) -> QueueData:
        broker = self._brokers[broker_name]
        data = broker.queues[topic]
        if broker.wiped_from is None:
            return data
        permissions = data.permissions.without(Permission.WRITE)
        return QueueData(
            broker_name, data.read_queues, data.write_queues, permissions, data.sys_flag
        )

    def _broker_data(self, broker_name: str) -> BrokerData:
        broker = self._brokers[broker_name]
        members = (member.data for _, member in sorted(broker.members.items()))
        return BrokerData(broker.cluster, broker_name, tuple(members))


def _writable_topics(broker: _Broker) -> int:
    return sum(Permission.WRITE in data.permissions for data in broker.queues.values())


def check_registration(registration: Registration) -> None:
    """Refuse what cannot be, before anything of it is kept.

    Raises:
        IllegalName: A name of it is illegal.
        InvalidParameter: Another value lies outside its bounds.
    """
    check_cluster(registration.cluster)
    check_broker_name(registration.broker_name)
    for value, least, most, what in (
        (registration.broker_id, 0, (1 << 63) - 1, "broker id"),
        (registration.epoch, 0, EPOCH_STORED_MAX, "epoch"),
        (registration.expiry_ms, EXPIRY_MS_MIN, EXPIRY_MS_MAX, "expiry_ms"),
        (len(registration.endpoints), 1, ENDPOINTS_MAX, "number of endpoints"),
        (len(registration.topics), 0, TOPICS_MAX, "number of topics"),
        (len(registration.incarnation), 1, INCARNATION_CHARACTERS_MAX, "length of incarnation"),
    ):
        if not least <= value <= most:
            raise _invalid(registration, f"{what} {value}: must be {least} to {most}")
    for endpoint in registration.endpoints:
        if not endpoint.is_legal_endpoint:
            raise _invalid(registration, f"endpoint {str(endpoint)[:300]!r}: is no host and port")
    topics: set[str] = set()
    for config in registration.topics:
        check_topic_config(config)
        topics.add(config.topic)
    if len(topics) < len(registration.topics):
        raise _invalid(registration, "it names a topic twice")


def _invalid(registration: Registration, remark: str) -> RefusedError:
    name = f"broker {registration.broker_name}"
    return refusal(ResponseCode.INVALID_PARAMETER, f"{name}: {remark}")


def _source_of(registration: Registration) -> _TopicsSource:
    is_master = registration.broker_id == MASTER_ID
    return _TopicsSource(is_master, registration.incarnation, registration.data_version)


def _queue_data_of(broker_name: str, config: TopicConfig) -> QueueData:
    return QueueData(
        broker_name, config.read_queues, config.write_queues, config.permissions, config.sys_flag
    )


def _member_of(registration: Registration, now_ms: int) -> _Member:
    data = BrokerMember(registration.broker_id, registration.endpoints, registration.epoch)
    return _Member(data, registration.incarnation, registration.expiry_ms, now_ms)


def _what_happened(before: _Member | None, kept: _Member) -> str:
    """Return a word of ours, nobody's data: it is part of a template. "" = a mere sign of life."""
    if before is None:
        return "registered"
    if before.incarnation != kept.incarnation:
        return "replaced"
    return "changed" if before.data != kept.data else ""


def _share_an_address(one: _Member, other: _Member) -> bool:
    return not _own_addresses(one.data.endpoints).isdisjoint(_own_addresses(other.data.endpoints))


def _own_addresses(endpoints: Iterable[Address]) -> set[Address]:
    # "*" is another host for every reader, so it tells nothing about who shares it.
    return {endpoint for endpoint in endpoints if endpoint.host != ANY_HOST}
