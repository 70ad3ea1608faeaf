"""Sessions: the heartbeats of clients, and the changes that are sent to them."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ternmq_broker.groups.subscription_consistency import SubscriptionConsistency
from ternmq_broker.state.clients import ClientSession, ClientTable, GroupMembership
from ternmq_model.clock import Clock
from ternmq_model.errors import refusal
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.rpc import Identity

logger = logging.getLogger(__name__)

COMMANDS_MAX: Final = 4096
"""Commands that may wait for one client to read them."""

REPLY_BYTES_MAX: Final = 8 << 20
"""Bytes of the replies to its requests that may wait for one client."""

ALL_REPLY_BYTES_MAX: Final = 64 << 20
"""Bytes of the replies that may wait for all clients of a broker together."""

DIFFERENCES_PAUSE_MS: Final = 5_000
"""Least time between two comparisons of the subscriptions of a group with differences."""


@dataclass(slots=True)
class WaitingTotal:
    """Bytes of the replies that wait in every outbox of a broker. Owned by `SessionManager`."""

    bytes: int = 0


class SessionOutbox:
    """Commands and changes that wait for one session's stream. Owned by the stream's handler.

    Args:
        waiting: Bytes of the replies in this and other outboxes.

    Attributes:
        is_over: True when this side ended the session; the stream ends too.
    """

    def __init__(self, waiting: WaitingTotal | None = None) -> None:
        self.is_over = False
        self._waiting = waiting or WaitingTotal()
        self._bytes = 0
        """Bytes of the replies that wait or are being written."""
        self._taken_bytes = 0
        """Bytes of those that are being written."""
        self._groups: dict[str, None] = {}
        self._differences: dict[str, Sequence[str]] = {}
        """Differences between the members of a group as last sent to the client, by group."""
        self._differing: set[str] = set()
        """Groups with differences to be sent."""
        self._commands: deque[groups.SessionReply] = deque()
        self._changed = asyncio.Event()

    def members_changed(self, group: str) -> None:
        """Queue the change of the members of `group`; repeated changes are sent once."""
        self._groups[group] = None
        self._changed.set()

    def differ(self, group: str, differences: Sequence[str]) -> None:
        """Queue the differences in `group` unless the client has them; () = members are alike."""
        if differences != self._differences.get(group, ()):
            self._differences[group] = differences
            self._differing.add(group)
            self._changed.set()

    def command(self, reply: groups.SessionReply) -> bool:
        """Queue a command; return False when too many wait already, or too many bytes of replies.

        Other commands have no limit of bytes: only clients send replies.
        """
        if self.is_over or len(self._commands) >= COMMANDS_MAX:
            return False
        size = reply.ByteSize() if reply.HasField("reply_arrived") else 0
        if size and (
            self._bytes + size > REPLY_BYTES_MAX or self._waiting.bytes + size > ALL_REPLY_BYTES_MAX
        ):
            return False
        self._count(size)
        self._commands.append(reply)
        self._changed.set()
        return True

    def end(self) -> None:
        """End the stream, and forget the commands that wait."""
        self.is_over = True
        self._commands.clear()
        self._count(self._taken_bytes - self._bytes)
        self._changed.set()

    def written(self) -> None:
        """Forget the bytes of the replies taken last: they are written, or the stream is over."""
        self._count(-self._taken_bytes)
        self._taken_bytes = 0

    async def next(self) -> list[groups.SessionReply]:
        """Wait for replies and return them, at least one; none when the session is over.

        Commands keep their order, behind changes of members and differences. Cancelling is safe:
        the replies stay queued. A call means that the replies of the call before are written.
        """
        self.written()
        while not (self._groups or self._differing or self._commands or self.is_over):
            self._changed.clear()
            await self._changed.wait()
        if self.is_over:
            return []
        replies = [
            groups.SessionReply(members_changed=groups.MembersChanged(group=group))
            for group in self._groups
        ]
        for group in sorted(self._differing):
            replies.append(_differ(group, self._differences[group]))
            if not self._differences[group]:
                del self._differences[group]
        replies.extend(self._commands)
        self._groups.clear()
        self._differing.clear()
        self._commands.clear()
        self._taken_bytes = self._bytes
        return replies

    def _count(self, growth: int) -> None:
        self._bytes += growth
        self._waiting.bytes += growth


class SessionManager:
    """Sessions of the broker. The only writer of the `ClientTable`.

    Args:
        on_left: Called with client id and group when a member leaves, before others know it.
        notifies_members: Returns whether the members of a group are notified of changes.
        on_group: Called with a group when its members or their subscriptions changed.
        must_agree: Returns whether a member with other subscriptions than its group is refused.
    """

    def __init__(
        self,
        clock: Clock,
        table: ClientTable,
        *,
        on_left: Callable[[str, str], None] = lambda _client_id, _group: None,
        notifies_members: Callable[[str], bool] = lambda _group: True,
        on_group: Callable[[str], None] = lambda _group: None,
        must_agree: Callable[[], bool] = lambda: False,
    ) -> None:
        self._clock = clock
        self._table = table
        self._on_left = on_left
        self._notifies_members = notifies_members
        self._on_group = on_group
        self._must_agree = must_agree
        self._outboxes: dict[ClientSession, SessionOutbox] = {}
        self._waiting = WaitingTotal()
        self._consistency = SubscriptionConsistency()
        self._differences: dict[str, Sequence[str]] = {}
        """Differences between the members of a group as last sent, by group; never empty."""
        self._compared_at_ms: dict[str, int] = {}
        """Time of the last comparison of members, by group, if it was recent. Monotonic."""
        self._changed: set[str] = set()
        """Groups whose members changed since their last comparison."""

    @property
    def table(self) -> ClientTable:
        """Connected clients, for reading."""
        return self._table

    def differences(self, group: str) -> Sequence[str]:
        """Return the present differences between members of a group, one line each."""
        return self._consistency.differences(group)

    def open(self, session: ClientSession) -> SessionOutbox | ClientSession:
        """Open a session; return its outbox, or the session that forbids it.

        A broken session of another incarnation of the client ends at once, and its groups are
        notified: their new member begins without messages in hand.
        """
        if (gone := self._table.displaced(session)) is not None:
            self._end(gone, "replaced")
        previous = self._table.live(session.client_id)
        if (other := self._table.hello(session)) is not None:
            return other
        if previous is not None:
            self._end_stream(previous)
        outbox = self._outboxes[session] = SessionOutbox(self._waiting)
        logger.info(
            "session opened client=%s address=%s again=%s",
            session.client_id,
            session.address,
            previous is not None,
        )
        return outbox

    def heartbeat(
        self,
        session: ClientSession,
        producer_groups: Iterable[str],
        memberships: Mapping[str, GroupMembership],
    ) -> None:
        """Process a heartbeat of a session, unless it was replaced or expired.

        Raises:
            BrokerBusy: See `ClientTable.heartbeat`.
            RefusedError: Members must agree, and the subscriptions differ from those of other
                members. Nothing changes.
        """
        if self._table.is_current(session):
            if self._must_agree():
                self._check_agrees(session, memberships)
            now_ms = self._clock.monotonic_ms()
            left = session.memberships.keys() - memberships.keys()
            changed = self._table.heartbeat(
                session,
                producer_groups=producer_groups,
                memberships=memberships,
                now_ms=now_ms,
            )
            for group in left:
                self._consistency.remove(session.client_id, group)
                self._on_left(session.client_id, group)
            for group in changed - left:
                self._consistency.put(session.client_id, memberships[group])
            for group in (*left, *memberships):
                self._on_group(group)
            self._notify(changed)
            self._compare(changed, now_ms=now_ms)
            if (outbox := self._outboxes.get(session)) is not None:
                for group in memberships:
                    outbox.differ(group, self._differences.get(group, ()))

    def command(self, session: ClientSession, reply: groups.SessionReply) -> bool:
        """Send a command to a client, in the order of the calls.

        Returns:
            True when the command is queued for the client's stream; False without a stream, or
            when too many commands or bytes of replies wait.
        """
        outbox = self._outboxes.get(session)
        return outbox is not None and outbox.command(reply)

    def registered(self, identity: Identity) -> None:
        """Send every client with a stream the id and epoch under which this member registered."""
        place = groups.PlaceRegistered(broker_id=identity.broker_id, epoch=identity.epoch)
        for outbox in self._outboxes.values():
            outbox.command(groups.SessionReply(place_registered=place))

    def goodbye(self, session: ClientSession) -> None:
        """Remove a client at once, and notify its groups."""
        if self._table.is_current(session):
            logger.info("session ended client=%s reason=%s", session.client_id, "goodbye")
        self._end_stream(session)
        self._remove(session)

    def broke(self, session: ClientSession) -> None:
        """Record the end of a session's stream; after a goodbye the session is removed already."""
        self._end_stream(session)
        if self._table.is_current(session):
            self._table.broke(session, now_ms=self._clock.monotonic_ms())

    async def expire(self) -> bool:
        """Remove expired clients. The step of the `sessions` job.

        The members of groups that changed a short while ago receive their present differences.
        """
        now_ms = self._clock.monotonic_ms()
        for session in self._table.expired(now_ms=now_ms):
            self._end(session, "silent" if session.broken_at_ms is None else "broken")
        for group, compared_at_ms in list(self._compared_at_ms.items()):
            if now_ms - compared_at_ms >= DIFFERENCES_PAUSE_MS:
                del self._compared_at_ms[group]
                self._compare({group} & self._changed, now_ms=now_ms)
        return False

    def _end(self, session: ClientSession, reason: str) -> None:
        logger.info("session ended client=%s reason=%s", session.client_id, reason)
        self._end_stream(session)
        self._remove(session)

    def _remove(self, session: ClientSession) -> None:
        groups_left = self._table.remove(session)
        for group in groups_left:
            self._consistency.remove(session.client_id, group)
            self._on_left(session.client_id, group)
            self._on_group(group)
        self._notify(groups_left)
        self._compare(groups_left, now_ms=self._clock.monotonic_ms())

    def _end_stream(self, session: ClientSession) -> None:
        outbox = self._outboxes.pop(session, None)
        if outbox is not None:
            outbox.end()

    def _check_agrees(
        self, session: ClientSession, memberships: Mapping[str, GroupMembership]
    ) -> None:
        """Refuse new subscriptions that differ from those of other members.

        A member whose stream broke counts until it expires, because it may return.

        Raises:
            RefusedError: Members differ; names them and their subscriptions.
        """
        for group, membership in memberships.items():
            if session.memberships.get(group) == membership:
                continue
            if found := self._consistency.differences_with(session.client_id, membership):
                remark = (
                    f"group {group!r}: its members must subscribe alike"
                    f" (broker.same_subscriptions_required); {'; '.join(found)}"
                )
                raise refusal(ResponseCode.ILLEGAL_OPERATION, remark)

    def _compare(self, changed: Iterable[str], *, now_ms: int) -> None:
        """Send the members of changed groups their differences, unless they have them.

        A comparison costs time and a reply to each member. So the members of a group with
        differences are compared once in `DIFFERENCES_PAUSE_MS`; `expire` makes a later comparison.
        """
        for group in changed:
            if group in self._compared_at_ms:
                self._changed.add(group)
                continue
            self._changed.discard(group)
            found = self._consistency.differences(group)
            if found or group in self._differences:
                self._compared_at_ms[group] = now_ms
            if found == self._differences.get(group, ()):
                continue
            if found:
                self._differences[group] = found
                logger.warning("members differ group=%s differences=%s", group, "; ".join(found))
            else:
                del self._differences[group]
                logger.info("members are alike again group=%s", group)
            for member in self._table.members(group):
                if (outbox := self._outboxes.get(member)) is not None:
                    outbox.differ(group, found)

    def _notify(self, groups: Iterable[str]) -> None:
        for group in filter(self._notifies_members, groups):
            for member in self._table.members(group):
                outbox = self._outboxes.get(member)
                if outbox is not None:
                    outbox.members_changed(group)


def _differ(group: str, differences: Sequence[str]) -> groups.SessionReply:
    differ = groups.SubscriptionsDiffer(group=group, differences=differences)
    return groups.SessionReply(subscriptions_differ=differ)
