"""Sessions: the heartbeats of clients, and the changes that are sent to them."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
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

DIFFERENCES_PAUSE_MS: Final = 5_000
"""Members that differ are compared and told at most so often."""


class SessionOutbox:
    """Commands and news that wait for one session's stream. Owned by that stream's handler.

    Attributes:
        is_over: The session ended from this side; its stream ends too.
    """

    def __init__(self) -> None:
        self.is_over = False
        self._groups: dict[str, None] = {}
        self._differences: dict[str, Sequence[str]] = {}
        """Differences between the members of a group as the client knows them, by group."""
        self._differing: set[str] = set()
        """Groups of which that is to be told."""
        self._commands: deque[groups.SessionReply] = deque()
        self._changed = asyncio.Event()

    def tell(self, group: str) -> None:
        """Queue the news that the members of `group` changed; twice counts once."""
        self._groups[group] = None
        self._changed.set()

    def differ(self, group: str, differences: Sequence[str]) -> None:
        """Queue the differences between members of `group`, if they are news; () = alike."""
        if differences != self._differences.get(group, ()):
            self._differences[group] = differences
            self._differing.add(group)
            self._changed.set()

    def command(self, reply: groups.SessionReply) -> bool:
        """Queue a command; return False when too many wait already."""
        if self.is_over or len(self._commands) >= COMMANDS_MAX:
            return False
        self._commands.append(reply)
        self._changed.set()
        return True

    def end(self) -> None:
        """End the stream."""
        self.is_over = True
        self._changed.set()

    async def next(self) -> list[groups.SessionReply]:
        """Wait for news and return them, at least one; none when the session is over.

        Commands come in their order, after the changes of members and their differences.

        Cancelling is safe: nothing is taken.
        """
        while not (self._groups or self._differing or self._commands or self.is_over):
            self._changed.clear()
            await self._changed.wait()
        if self.is_over:
            return []
        told = [
            groups.SessionReply(members_changed=groups.MembersChanged(group=group))
            for group in self._groups
        ]
        for group in sorted(self._differing):
            told.append(_differ(group, self._differences[group]))
            if not self._differences[group]:
                del self._differences[group]
        told.extend(self._commands)
        self._groups.clear()
        self._differing.clear()
        self._commands.clear()
        return told


class SessionManager:
    """Sessions of the broker. The only writer of the `ClientTable`.

    Args:
        clock: For heartbeats and their absence.
        table: Connected clients.
        on_left: Called with client id and group when a member leaves, before others know it.
        is_told: Returns whether a group's members are notified when others come and go.
        on_group: Called with a group when its members or their subscriptions changed.
        must_agree: Returns whether a member that subscribes otherwise than others is refused.
    """

    def __init__(
        self,
        clock: Clock,
        table: ClientTable,
        *,
        on_left: Callable[[str, str], None] = lambda _client_id, _group: None,
        is_told: Callable[[str], bool] = lambda _group: True,
        on_group: Callable[[str], None] = lambda _group: None,
        must_agree: Callable[[], bool] = lambda: False,
    ) -> None:
        self._clock = clock
        self._table = table
        self._on_left = on_left
        self._is_told = is_told
        self._on_group = on_group
        self._must_agree = must_agree
        self._outboxes: dict[ClientSession, SessionOutbox] = {}
        self._consistency = SubscriptionConsistency()
        self._differences: dict[str, Sequence[str]] = {}
        """Differences between the members of a group as last sent, by group. None is empty."""
        self._compared_at_ms: dict[str, int] = {}
        """Time of the last comparison of members, by group, if it was recent. Monotonic."""
        self._changed: set[str] = set()
        """Groups whose members changed since their last comparison."""

    @property
    def table(self) -> ClientTable:
        """The connected clients, for reading."""
        return self._table

    def differences(self, group: str) -> Sequence[str]:
        """Return in what the members of a group differ now, a line each; empty = they are alike."""
        return self._consistency.differences(group)

    def open(self, session: ClientSession) -> SessionOutbox | ClientSession:
        """Open a session; return its outbox, or the live session that forbids it.

        A broken session of the client's id that another incarnation left behind is over at once,
        and its groups are told: their new member begins with nothing in hand.
        """
        if (gone := self._table.displaced(session)) is not None:
            self._end(gone, "replaced")
        previous = self._table.live(session.client_id)
        if (other := self._table.hello(session)) is not None:
            return other
        if previous is not None:
            self._end_stream(previous)
        outbox = self._outboxes[session] = SessionOutbox()
        logger.info(
            "session opened client=%s address=%s again=%s",
            session.client_id,
            session.address,
            previous is not None,
        )
        return outbox

    def heard(
        self,
        session: ClientSession,
        producer_groups: Iterable[str],
        memberships: Mapping[str, GroupMembership],
    ) -> None:
        """Process a heartbeat of a session, unless it was replaced or expired.

        Raises:
            BrokerBusy: See `ClientTable.heard`.
            RefusedError: Members must agree, and it joins others that subscribe otherwise, or
                changes its subscriptions away from theirs. Nothing changes.
        """
        if self._table.is_current(session):
            if self._must_agree():
                self._check_agrees(session, memberships)
            now_ms = self._clock.monotonic_ms()
            left = session.memberships.keys() - memberships.keys()
            changed = self._table.heard(
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
            self._tell(changed)
            self._compare(changed, now_ms=now_ms)
            if (outbox := self._outboxes.get(session)) is not None:
                for group in memberships:
                    outbox.differ(group, self._differences.get(group, ()))

    def command(self, session: ClientSession, reply: groups.SessionReply) -> bool:
        """Send a command to a client, in the order of the calls.

        Returns:
            Whether it will be written to the client's stream, should that last. It will not when
            the session has no stream at present, or too much waits to be written.
        """
        outbox = self._outboxes.get(session)
        return outbox is not None and outbox.command(reply)

    def registered(self, identity: Identity) -> None:
        """Send every client with a stream the place in which this member is registered."""
        told = groups.PlaceRegistered(broker_id=identity.broker_id, epoch=identity.epoch)
        for outbox in self._outboxes.values():
            outbox.command(groups.SessionReply(place_registered=told))

    def goodbye(self, session: ClientSession) -> None:
        """Remove a client at once, and notify its groups."""
        if self._table.is_current(session):
            logger.info("session ended client=%s reason=goodbye", session.client_id)
        self._end_stream(session)
        self._remove(session)

    def broke(self, session: ClientSession) -> None:
        """Record the end of a session's stream; after a goodbye the session is removed already."""
        self._outboxes.pop(session, None)
        if self._table.is_current(session):
            self._table.broke(session, now_ms=self._clock.monotonic_ms())

    async def expire(self) -> bool:
        """Remove clients whose time is over: one step of the `sessions` job.

        Members of groups that changed a short while ago are told how they differ now.
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
        self._tell(groups_left)
        self._compare(groups_left, now_ms=self._clock.monotonic_ms())

    def _end_stream(self, session: ClientSession) -> None:
        outbox = self._outboxes.pop(session, None)
        if outbox is not None:
            outbox.end()

    def _check_agrees(
        self, session: ClientSession, memberships: Mapping[str, GroupMembership]
    ) -> None:
        """Refuse new subscriptions that differ from those of other members.

        A member whose stream broke counts until its time is over: it may return.

        Raises:
            RefusedError: Members differ; names them and what they want.
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
        """Send the members of changed groups their differences, if those are news.

        At once; but while they differ not twice in `DIFFERENCES_PAUSE_MS`, since it costs time and
        a reply to each: `expire` sees to the second time.
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

    def _tell(self, groups: Iterable[str]) -> None:
        for group in filter(self._is_told, groups):
            for member in self._table.members(group):
                outbox = self._outboxes.get(member)
                if outbox is not None:
                    outbox.tell(group)


def _differ(group: str, differences: Sequence[str]) -> groups.SessionReply:
    told = groups.SubscriptionsDiffer(group=group, differences=differences)
    return groups.SessionReply(subscriptions_differ=told)
