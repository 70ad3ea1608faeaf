"""Table of the routes that brokers register. Pure.

Time is an argument. Changes are returned as lines for the log, template and arguments apart.

Three rules protect a new broker from an old one:

* A withdrawal removes a member only if its incarnation is registered: a late withdrawal after a
  restart does not concern the new process.
* A master with a lower epoch than the highest accepted one of its name is refused, and so is any
  member with an epoch too far above that.
* Silence is measured by the monotonic clock of the NameServer, never by the clock of a broker.

Source: RocketMQ `RouteInfoManager`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ternmq_model.address import ANY_HOST, Address
from ternmq_model.data_version import DataVersion
from ternmq_model.epochs import doubt_of
from ternmq_model.errors import refusal
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import (
    MASTER_ID,
    BrokerData,
    BrokerMember,
    Permission,
    QueueData,
    TopicConfig,
    TopicRoute,
)
from ternmq_nameserver.memory_estimate import (
    BYTES_MAX,
    is_cacheable_row,
    member_bytes,
    topics_bytes,
)
from ternmq_nameserver.registration import (
    BrokerRegistration,
    check_registration,
    invalid_registration,
)
from ternmq_nameserver.reserved_memory import ReservedMemory
from ternmq_nameserver.route_changes import RouteChange
from ternmq_nameserver.topic_index import TopicIndex

BROKER_NAMES_MAX: Final = 4_096
SLAVES_MAX: Final = 31
"""Limit on the slaves of one broker name, which do not include the master."""


@dataclass(frozen=True, slots=True)
class RegistrationResult:
    """The result of a registration.

    Attributes:
        master_endpoints: Endpoints of the master, for a slave; empty for a master and without one.
        members: Members of the broker name.
        changes: Lines for the log; empty for a mere sign of life.
    """

    master_endpoints: tuple[Address, ...]
    members: tuple[BrokerMember, ...]
    changes: tuple[RouteChange, ...]


@dataclass(frozen=True, slots=True)
class _TopicsSource:
    """The source of a broker name's topics."""

    is_master: bool
    incarnation: str
    data_version: DataVersion


@dataclass(frozen=True, slots=True)
class _BrokerLiveInfo:
    data: BrokerMember
    incarnation: str
    expiry_ms: int
    seen_at_ms: int
    bytes: int
    """Bytes that the member counts for."""


@dataclass(slots=True)
class _BrokerEntry:
    """One broker name, with at least one member."""

    cluster: str
    members: dict[int, _BrokerLiveInfo] = field(default_factory=dict[int, _BrokerLiveInfo])
    topics: dict[str, TopicConfig] = field(default_factory=dict[str, TopicConfig])
    topics_by_row: dict[bytes, TopicConfig] = field(default_factory=dict[bytes, TopicConfig])
    """Topics of the registration by their encoded rows."""

    topics_bytes: int = 0
    """Bytes that `topics` and `topics_by_row` count for."""

    topics_from: _TopicsSource | None = None
    wiped_from: str | None = None
    """Incarnation of the master at the wipe of the write permission; "" without a master."""


class RouteTable:
    """Every broker and its topics. Owned by the NameServer's loop.

    Invariants: a broker name has at least one member; a topic is on at least one broker; the
    `memory_estimate` of all is at most `bytes_max`, including memory reserved for members that
    left.

    Args:
        bytes_max: Limit on registrations that grow.
    """

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._reserved = ReservedMemory()
        self._brokers: dict[str, _BrokerEntry] = {}
        self._topics = TopicIndex()

    def check(self, registration: BrokerRegistration, *, highest_epoch: int = 0) -> None:
        """Check a registration; nothing changes.

        Raises:
            TernError: The errors of `register`.
        """
        broker = self._brokers.get(registration.broker_name)
        check_registration(registration, broker.topics if broker else {})
        self._check_fence(registration, highest_epoch)
        self._check_bytes(registration)

    def has_topics_of(
        self, broker_name: str, broker_id: int, incarnation: str, version: DataVersion
    ) -> bool:
        """Return whether the topics of a registration are known, so that `register` skips them."""
        broker = self._brokers.get(broker_name)
        source = _TopicsSource(broker_id == MASTER_ID, incarnation, version)
        return broker is not None and not _is_news(broker, source)

    def topics_by_row(self, broker_name: str) -> Mapping[bytes, TopicConfig]:
        """Return the topics of a broker by their encoded rows.

        A broker sends all its topics with every change, most of them unchanged.
        """
        broker = self._brokers.get(broker_name)
        return broker.topics_by_row if broker else {}

    def register(
        self, registration: BrokerRegistration, *, now_ms: int, highest_epoch: int = 0
    ) -> RegistrationResult:
        """Record a sign of life of a broker, and its topics when they have changed.

        Topics with another data version, or from another process, replace all topics of the broker
        name. Topics of a slave count only until a master registers, so that a name without its
        master stays readable.

        Args:
            registration: Registration, not yet checked.
            now_ms: Monotonic clock.
            highest_epoch: Highest epoch of the broker name that was ever accepted.

        Raises:
            IllegalName: A name is illegal; nothing changes.
            RefusedError: INVALID_PARAMETER for other values that cannot be, and for an epoch that
                is not believed; ILLEGAL_OPERATION for a lower epoch than the highest, or another
                cluster than the name's living members; FLOW_CONTROL for more than the table may
                hold; nothing changes.
        """
        self.check(registration, highest_epoch=highest_epoch)
        changes = list(self._keep_member(registration, now_ms))
        broker = self._brokers[registration.broker_name]
        if _is_news(broker, _source_of(registration)):
            changes.extend(self._keep_topics(broker, registration))
        master = broker.members.get(MASTER_ID)
        is_slave = registration.broker_id != MASTER_ID
        endpoints = master.data.endpoints if master and is_slave else ()
        members = tuple(member.data for _, member in sorted(broker.members.items()))
        return RegistrationResult(endpoints, members, tuple(changes))

    def keep_alive(self, registration: BrokerRegistration, *, now_ms: int) -> None:
        """Count a refused registration as a sign of life of the member that it was to replace.

        The earlier registration stays. The member must have the same process or a common address;
        from then on the refused process may withdraw the registration.
        """
        broker = self._brokers.get(registration.broker_name)
        known = broker.members.get(registration.broker_id) if broker else None
        member = _member_of(registration, now_ms)
        if (
            broker is not None
            and known is not None
            and broker.cluster == registration.cluster
            and (known.incarnation == member.incarnation or _share_an_address(known, member))
        ):
            broker.members[registration.broker_id] = replace(
                known, seen_at_ms=now_ms, incarnation=member.incarnation
            )

    def unregister(
        self, *, cluster: str, broker_name: str, broker_id: int, incarnation: str, now_ms: int
    ) -> tuple[RouteChange, ...]:
        """Remove a member if all four values equal its registration.

        The memory of the member stays reserved until it returns, at most for its expiry.

        Args:
            cluster: Cluster of the member.
            broker_name: Broker name of the member.
            broker_id: Id of the member.
            incarnation: Incarnation of the member.
            now_ms: Monotonic clock.

        Returns:
            Lines for the log.
        """
        broker = self._brokers.get(broker_name)
        member = broker.members.get(broker_id) if broker else None
        if broker is None or member is None or broker.cluster != cluster:
            return ()
        if member.incarnation != incarnation:
            return ()
        before = self._bytes
        changes = tuple(self._drop(broker_name, broker_id, "unregistered"))
        until_ms = now_ms + member.expiry_ms
        self._reserved.keep(broker_name, broker_id, before - self._bytes, until_ms=until_ms)
        return changes

    def expire(self, *, now_ms: int) -> tuple[RouteChange, ...]:
        """Remove all members that were silent for longer than their expiry.

        Returns:
            Lines for the log.
        """
        self._reserved.expire(now_ms=now_ms)
        silent = [
            (broker_name, broker_id)
            for broker_name, broker in self._brokers.items()
            for broker_id, member in broker.members.items()
            if now_ms - member.seen_at_ms > member.expiry_ms
        ]
        return tuple(change for member in silent for change in self._drop(*member, "expired"))

    def topic_route(self, topic: str) -> TopicRoute:
        """Return the brokers and queues of `topic`.

        Raises:
            TopicNotFound: No broker has it.
        """
        names = self._topics.brokers(topic)
        if not names:
            raise refusal(ResponseCode.TOPIC_NOT_EXIST, f"no broker has topic {topic}")
        return TopicRoute(
            topic,
            queues=tuple(self._queue_data(name, topic) for name in names),
            brokers=tuple(self._broker_data(name) for name in names),
        )

    def clusters(self, broker_name: str = "") -> tuple[BrokerData, ...]:
        """Return all broker names, or one, sorted by cluster and name.

        Every broker requests its own name each second, which must not read the other names.
        """
        if broker_name:
            return (self._broker_data(broker_name),) if broker_name in self._brokers else ()
        brokers = map(self._broker_data, self._brokers)
        return tuple(sorted(brokers, key=lambda data: (data.cluster, data.broker_name)))

    def members(self) -> Iterator[tuple[str, str, Collection[int]]]:
        """Yield the cluster, the name and the registered ids of each broker name."""
        for name, broker in self._brokers.items():
            yield broker.cluster, name, broker.members.keys()

    @property
    def topic_count(self) -> int:
        """Number of topics of all clusters."""
        return len(self._topics)

    def reserved_names(self) -> list[str]:
        """Return the broker names, sorted, with reserved memory and without a member."""
        return sorted(self._reserved.names - self._brokers.keys())

    def topics(
        self, cluster: str = "", *, after: str = "", maximum: int | None = None
    ) -> list[str]:
        """Return at most `maximum` topics behind `after`, sorted, of all clusters or one."""
        if not cluster:
            return self._topics.page(after, maximum)
        brokers = self._brokers
        return self._topics.page(
            after, maximum, has_name=lambda name: brokers[name].cluster == cluster
        )

    def wipe_write_permission(self, broker_name: str) -> int:
        """Remove the write permission from every topic of a broker, so that it can be emptied.

        The wipe lasts until the master is another process, or the last member of the name is
        removed. New topics and data versions do not restore the permission. A restart of the
        NameServer does.

        Returns:
            Number of topics that lost the permission; 0 after an earlier wipe.

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
        """Restore the write permissions that `wipe_write_permission` removed.

        Returns:
            Number of topics that regained the permission; 0 without an earlier wipe.

        Raises:
            RefusedError: BROKER_NOT_EXIST.
        """
        broker = self._known(broker_name)
        if broker.wiped_from is None:
            return 0
        broker.wiped_from = None
        return _writable_topics(broker)

    def _known(self, broker_name: str) -> _BrokerEntry:
        broker = self._brokers.get(broker_name)
        if broker is None:
            raise refusal(ResponseCode.BROKER_NOT_EXIST, f"no broker {broker_name} is registered")
        return broker

    def _check_fence(self, registration: BrokerRegistration, highest_epoch: int) -> None:
        name, broker_id = registration.broker_name, registration.broker_id
        broker = self._brokers.get(name)
        left = self._reserved.names - self._brokers.keys() - {name}
        if broker is None and len(self._brokers) + len(left) >= BROKER_NAMES_MAX:
            remark = f"{BROKER_NAMES_MAX} broker names are registered; no more fit"
            raise refusal(ResponseCode.FLOW_CONTROL, remark)
        members = broker.members if broker else {}
        slaves = (members.keys() | self._reserved.ids(name)) - {MASTER_ID}
        if broker_id not in {MASTER_ID, *slaves} and len(slaves) >= SLAVES_MAX:
            raise refusal(ResponseCode.FLOW_CONTROL, f"broker {name} has {SLAVES_MAX} slaves")
        if broker and members.keys() - {broker_id} and broker.cluster != registration.cluster:
            remark = (
                f"broker {name} belongs to cluster {broker.cluster}, not {registration.cluster}"
            )
            raise refusal(ResponseCode.ILLEGAL_OPERATION, remark)
        newest = max([highest_epoch, *(member.data.epoch for member in members.values())])
        if doubt := doubt_of(registration.epoch, newest):
            raise invalid_registration(registration, doubt)
        if broker_id == MASTER_ID and registration.epoch < newest:
            remark = f"broker {name}: epoch {registration.epoch} is over, {newest} has begun"
            if doubt := doubt_of(newest):
                remark = f"{remark}; {doubt}"
            raise refusal(ResponseCode.ILLEGAL_OPERATION, remark)

    def _check_bytes(self, registration: BrokerRegistration) -> None:
        broker = self._brokers.get(registration.broker_name)
        member = _member_of(registration, 0)
        growth = member.bytes - sum(
            known.bytes
            for broker_id, known in (broker.members.items() if broker else ())
            if broker_id == registration.broker_id or _share_an_address(known, member)
        )
        if broker is None or _is_news(broker, _source_of(registration)):
            growth += topics_bytes(registration.topics) - (broker.topics_bytes if broker else 0)
        taken = self._bytes + self._reserved.bytes_for_others(registration.broker_name)
        if growth > 0 and taken + growth > self._bytes_max:
            remark = (
                f"broker {registration.broker_name}: {growth} more bytes of topics and members do"
                f" not fit, {taken} of {self._bytes_max} (nameserver.registered_bytes_max)"
                " are taken"
            )
            raise refusal(ResponseCode.FLOW_CONTROL, remark)

    def _keep_member(self, registration: BrokerRegistration, now_ms: int) -> Iterator[RouteChange]:
        name, broker_id = registration.broker_name, registration.broker_id
        broker = self._brokers.get(name)
        if broker is None:
            broker = self._brokers[name] = _BrokerEntry(registration.cluster)
        broker.cluster = registration.cluster
        before = broker.members.get(broker_id)
        kept = _member_of(registration, now_ms)
        broker.members[broker_id] = kept
        self._reserved.drop(name, broker_id)
        self._bytes += kept.bytes - (before.bytes if before else 0)
        # A process with a new id still has its address: one address is one member.
        for other_id in [*broker.members]:
            if other_id != broker_id and _share_an_address(broker.members[other_id], kept):
                yield from self._drop(name, other_id, "another id")
        if broker_id == MASTER_ID and broker.wiped_from != kept.incarnation:
            broker.wiped_from = None
        change = _change(before, kept)
        if change:
            endpoints = ",".join(map(str, registration.endpoints))
            yield RouteChange(
                "broker registered cluster=%s broker=%s broker_id=%s endpoints=%s epoch=%s"
                " change=%s",
                (registration.cluster, name, broker_id, endpoints, registration.epoch, change),
            )

    def _keep_topics(
        self, broker: _BrokerEntry, registration: BrokerRegistration
    ) -> Iterator[RouteChange]:
        name = registration.broker_name
        broker.topics_from = _source_of(registration)
        topics = {config.topic: config for config in registration.topics}
        before = broker.topics
        broker.topics = topics
        pairs = zip(registration.rows, registration.topics, strict=False)
        broker.topics_by_row = {
            row: config for row, config in pairs if is_cacheable_row(row, config)
        }
        self._bytes -= broker.topics_bytes
        broker.topics_bytes = topics_bytes(registration.topics)
        self._bytes += broker.topics_bytes
        gone = before.keys() - topics.keys()
        self._topics.remove(gone, name)
        self._topics.add(topics.keys() - before.keys(), name)
        if before != topics:
            changed = sum(before.get(topic) != config for topic, config in topics.items())
            yield RouteChange(
                "topics changed broker=%s topics=%s changed=%s gone=%s",
                (name, len(topics), changed, len(gone)),
            )

    def _drop(self, broker_name: str, broker_id: int, reason: str) -> Iterator[RouteChange]:
        broker = self._brokers[broker_name]
        self._bytes -= broker.members.pop(broker_id).bytes
        yield RouteChange(
            "broker removed cluster=%s broker=%s broker_id=%s members=%s reason=%s",
            (broker.cluster, broker_name, broker_id, len(broker.members), reason),
        )
        if broker.members:
            return
        del self._brokers[broker_name]
        self._bytes -= broker.topics_bytes
        self._topics.remove(broker.topics, broker_name)

    def _queue_data(self, broker_name: str, topic: str) -> QueueData:
        broker = self._brokers[broker_name]
        config = broker.topics[topic]
        permissions = config.permissions
        if broker.wiped_from is not None:
            permissions = permissions.without(Permission.WRITE)
        return QueueData(
            broker_name, config.read_queues, config.write_queues, permissions, config.sys_flag
        )

    def _broker_data(self, broker_name: str) -> BrokerData:
        broker = self._brokers[broker_name]
        members = (member.data for _, member in sorted(broker.members.items()))
        return BrokerData(broker.cluster, broker_name, tuple(members))


def _writable_topics(broker: _BrokerEntry) -> int:
    return sum(Permission.WRITE in config.permissions for config in broker.topics.values())


def _is_news(broker: _BrokerEntry, source: _TopicsSource) -> bool:
    if broker.topics_from is None or source.is_master:
        return broker.topics_from != source
    return not broker.topics_from.is_master and broker.topics_from != source


def _source_of(registration: BrokerRegistration) -> _TopicsSource:
    is_master = registration.broker_id == MASTER_ID
    return _TopicsSource(is_master, registration.incarnation, registration.data_version)


def _member_of(registration: BrokerRegistration, now_ms: int) -> _BrokerLiveInfo:
    data = BrokerMember(registration.broker_id, registration.endpoints, registration.epoch)
    texts = (registration.cluster, registration.broker_name, registration.incarnation)
    count = member_bytes(texts, registration.endpoints)
    return _BrokerLiveInfo(data, registration.incarnation, registration.expiry_ms, now_ms, count)


def _change(before: _BrokerLiveInfo | None, kept: _BrokerLiveInfo) -> str:
    """Return how a registration changed a member, for the log; "" for a mere sign of life."""
    if before is None:
        return "new"
    if before.incarnation != kept.incarnation:
        return "replaced"
    return "changed" if before.data != kept.data else ""


def _share_an_address(one: _BrokerLiveInfo, other: _BrokerLiveInfo) -> bool:
    return not _own_addresses(one.data.endpoints).isdisjoint(_own_addresses(other.data.endpoints))


def _own_addresses(endpoints: Iterable[Address]) -> set[Address]:
    # "*" is another host for every reader, so a shared "*" proves no shared address.
    return {endpoint for endpoint in endpoints if endpoint.host != ANY_HOST}
