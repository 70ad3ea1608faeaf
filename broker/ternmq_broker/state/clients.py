"""Connected clients, and the members of each consumer group. Pure.

A client opens a Session stream and repeats all its groups in heartbeats. It is removed when it
closes the session, some seconds after its stream broke, and when it stays silent. A client with a
broken stream is replaced by a new client of its id, because it was restarted. Until a session is
removed, its client id belongs to its user: replies are addressed by client ids.

Source: RocketMQ `ConsumerManager`, `ProducerManager`, `ClientHousekeepingService`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ternmq_model.address import Address
from ternmq_model.errors import refusal
from ternmq_model.response_code import ResponseCode
from ternmq_model.subscription import Subscription

CLIENT_ID_CHARACTERS_MAX: Final = 255
BYTES_MAX: Final = 256 << 20
"""Limit for all clients together: 100,000 clients that consume two topics each."""

_SESSION_BYTES: Final = 1_024
_GROUP_BYTES: Final = 512
_SUBSCRIPTION_BYTES: Final = 1_024
_CHARACTER_BYTES: Final = 64
"""For each character of a subscription's expression: 580 tags of 3 characters took 116 KiB."""


def check_client_id(value: str, name: str = "client_id") -> str:
    """Return a legal client id, or another text with the rules of one.

    Raises:
        InvalidParameter: The text is empty, too long, or has unprintable characters.
    """
    if not 0 < len(value) <= CLIENT_ID_CHARACTERS_MAX or not value.isprintable():
        remark = f"{name} must be 1 to {CLIENT_ID_CHARACTERS_MAX} printable characters"
        raise refusal(ResponseCode.INVALID_PARAMETER, remark)
    return value


@dataclass(frozen=True, slots=True)
class GroupMembership:
    """One client's membership of one consumer group, as the client describes it."""

    group: str
    is_broadcasting: bool
    consume_from: str
    """Name of the value of `ConsumeFrom`."""

    subscriptions: Mapping[str, Subscription]
    """Subscriptions by topic."""


@dataclass(slots=True, eq=False)
class ClientSession:
    """One client's stream. Owned by the `ClientTable` that made it."""

    client_id: str
    incarnation: str
    address: Address
    connected_at_ms: int
    """Wall clock."""

    heartbeat_at_ms: int
    """Monotonic clock."""

    producer_groups: frozenset[str] = frozenset()
    memberships: Mapping[str, GroupMembership] = field(default_factory=dict[str, GroupMembership])
    """Memberships by group."""

    broken_at_ms: int | None = None
    """Monotonic clock; None while the stream is open."""

    bytes: int = _SESSION_BYTES
    """Bytes that the client counts for."""

    language: str = ""
    version: str = ""
    """Version of the client's software."""

    user: str | None = None
    """Name of the client's user; None = an unknown identity, or no users existed."""


class ClientTable:
    """Every session by client id, and the members of every group. Owned by `SessionManager`.

    Methods that change memberships return the groups with members to notify. Times are monotonic.

    Each client counts 1 KiB, each of its groups 512 bytes and its name, each subscription 1 KiB and
    64 bytes for each character. Together they count for at most `bytes_max`; heartbeats that need
    no more bytes are always accepted.
    """

    def __init__(self, *, broken_ms: int, silent_ms: int, bytes_max: int = BYTES_MAX) -> None:
        self._broken_ms = broken_ms
        self._silent_ms = silent_ms
        self._bytes_max = bytes_max
        self._bytes = 0
        self._sessions: dict[str, ClientSession] = {}
        self._members: dict[str, dict[str, ClientSession]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def live(self, client_id: str) -> ClientSession | None:
        """Return the client's session, or None when it has none."""
        return self._sessions.get(client_id)

    def is_current(self, session: ClientSession) -> bool:
        """Return whether `session` is still the current session of its client."""
        return self._sessions.get(session.client_id) is session

    def displaced(self, session: ClientSession) -> ClientSession | None:
        """Return the session of an earlier incarnation with a broken stream; None without one."""
        known = self._sessions.get(session.client_id)
        if known is None or known.incarnation == session.incarnation or known.broken_at_ms is None:
            return None
        return known if _may_replace(known, session) else None

    def hello(self, session: ClientSession) -> ClientSession | None:
        """Store `session`, or return the session of another incarnation or user, which stays.

        A session of the same incarnation is replaced: its client has reconnected.

        Raises:
            BrokerBusy: The client is new, and no more clients fit.
        """
        known = self._sessions.get(session.client_id)
        if known is not None and not (
            known.incarnation == session.incarnation and _may_replace(known, session)
        ):
            return known
        if known is None:
            self._take(session.bytes)
        self._sessions[session.client_id] = session
        if known is not None:
            session.bytes = known.bytes
            # Memberships stay until the first heartbeat of the new stream: no extra notification.
            session.memberships = known.memberships
            for group in known.memberships:
                self._members[group][session.client_id] = session
        return None

    def heartbeat(
        self,
        session: ClientSession,
        *,
        producer_groups: Iterable[str],
        memberships: Mapping[str, GroupMembership],
        now_ms: int,
    ) -> set[str]:
        """Store the memberships of a heartbeat for a current session.

        Raises:
            BrokerBusy: The memberships take more bytes than before, and no more fit. The session
                counts as alive and keeps its earlier memberships.
        """
        session.heartbeat_at_ms = now_ms
        producing = frozenset(producer_groups)
        size = _session_bytes(producing, memberships)
        self._take(size - session.bytes)
        session.bytes = size
        session.producer_groups = producing
        before, session.memberships = session.memberships, dict(memberships)
        changed: set[str] = set()
        for group in before.keys() - memberships.keys():
            self._leave(group, session)
            changed.add(group)
        for group, membership in memberships.items():
            self._members.setdefault(group, {})[session.client_id] = session
            if not _same(before.get(group), membership):
                changed.add(group)
        return changed

    def broke(self, session: ClientSession, *, now_ms: int) -> None:
        """Record that the stream broke; the client stays a member for some seconds."""
        session.broken_at_ms = now_ms

    def remove(self, session: ClientSession) -> set[str]:
        """Remove the session of a client that left. A replaced session changes nothing."""
        if not self.is_current(session):
            return set()
        del self._sessions[session.client_id]
        self._bytes -= session.bytes
        for group in session.memberships:
            self._leave(group, session)
        return set(session.memberships)

    def expired(self, *, now_ms: int) -> list[ClientSession]:
        """Return the expired sessions, which stay in the table."""
        return [
            session
            for session in self._sessions.values()
            if now_ms - session.heartbeat_at_ms >= self._silent_ms
            or (
                session.broken_at_ms is not None
                and now_ms - session.broken_at_ms >= self._broken_ms
            )
        ]

    def members(self, group: str) -> list[ClientSession]:
        """Return the live members of a group, sorted by client id."""
        return [session for _, session in sorted(self._members.get(group, {}).items())]

    def producers(self, group: str) -> list[ClientSession]:
        """Return the live members of a producer group, sorted by client id."""
        return [
            session
            for _, session in sorted(self._sessions.items())
            if group in session.producer_groups
        ]

    def sessions(self) -> list[ClientSession]:
        """Return every client's session, sorted by client id."""
        return [session for _, session in sorted(self._sessions.items())]

    def unsorted(self) -> list[ClientSession]:
        """Return every client's session, in no order."""
        return list(self._sessions.values())

    def groups(self) -> set[str]:
        """Return every group that has a member."""
        return set(self._members)

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """Return the newest subscription of the group's members to `topic`, or None."""
        found = [
            subscription
            for session in self._members.get(group, {}).values()
            if (subscription := session.memberships[group].subscriptions.get(topic)) is not None
        ]
        return max(found, key=lambda each: each.version_ms, default=None)

    def subscriptions(self, group: str) -> dict[str, Subscription]:
        """Return the newest subscription of the group's members to each of their topics."""
        newest: dict[str, Subscription] = {}
        for session in self._members.get(group, {}).values():
            for topic, subscription in session.memberships[group].subscriptions.items():
                known = newest.get(topic)
                if known is None or subscription.version_ms > known.version_ms:
                    newest[topic] = subscription
        return newest

    def _take(self, growth: int) -> None:
        if growth > 0 and self._bytes + growth > self._bytes_max:
            remark = (
                f"{growth} more bytes of clients, groups and subscriptions do not fit:"
                f" {self._bytes} of {self._bytes_max} are taken"
            )
            raise refusal(ResponseCode.FLOW_CONTROL, remark)
        self._bytes += growth

    def _leave(self, group: str, session: ClientSession) -> None:
        members = self._members.get(group, {})
        if members.get(session.client_id) is session:
            del members[session.client_id]
            if not members:
                del self._members[group]


def _may_replace(known: ClientSession, session: ClientSession) -> bool:
    """Return whether two sessions have the same user. A session without one is nobody's."""
    return known.user is None or known.user == session.user


def _session_bytes(
    producer_groups: Iterable[str], memberships: Mapping[str, GroupMembership]
) -> int:
    subscriptions = (
        _SUBSCRIPTION_BYTES + _CHARACTER_BYTES * len(subscription.expression)
        for membership in memberships.values()
        for subscription in membership.subscriptions.values()
    )
    names = sum(_GROUP_BYTES + len(group) for group in (*producer_groups, *memberships))
    return _SESSION_BYTES + names + sum(subscriptions)


def _same(before: GroupMembership | None, after: GroupMembership) -> bool:
    """Return whether topics and filters are equal, so that no rebalance is needed."""
    if before is None or before.is_broadcasting != after.is_broadcasting:
        return False
    return before.subscriptions.keys() == after.subscriptions.keys() and all(
        before.subscriptions[topic].has_same_filter(subscription)
        for topic, subscription in after.subscriptions.items()
    )
