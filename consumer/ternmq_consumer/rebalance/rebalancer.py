"""The job that keeps the queues that a member owns equal to its share of them.

Every member computes its share alone, from the queues that NameServers tell now and the group's
members as a broker lists them. While two members see different lists, a queue may have two owners
or none; the next look, which every change brings about at once, mends that. Messages are then taken
twice, never skipped. A route may name brokers that are kept although no NameServer tells them:
members that began later do not know those. Their queues stay with their owners, and count for
nobody's share.

Source: RocketMQ `RebalanceImpl`.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ternmq_client.routes.partial_routes import without
from ternmq_consumer.broker_connections import BrokerConnections
from ternmq_consumer.rebalance.allocation.machine_room import AllocateByMachineRoom
from ternmq_consumer.rebalance.allocation.strategy import AllocationStrategy
from ternmq_consumer.rebalance.unreadable_brokers import UnreadableBrokers
from ternmq_model.errors import Fault, RefusedError, TernError, TopicNotFound
from ternmq_model.queue import MessageQueue
from ternmq_model.route import TopicRoute
from ternmq_model.subscription import Subscription
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.service_methods import LIST_MEMBERS

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""Pause before the next look when a broker could not be asked, or a queue could not be started."""

WARNING_LOOKS: Final = 10
"""Looks in a row at which something may be in the way before that is a warning; not before it has
lasted for as many seconds, since anything that changes brings another look."""

MISSES_MAX: Final = 3
"""Looks in a row at which a broker may list others and not this member before it gives its queues
away. One that has just restarted hears from its clients one after the other."""


class GroupConnections(BrokerConnections, Protocol):
    """Connections to the brokers that list the members of a group: a `ClientInstance`."""

    def members_to_list(self, route: TopicRoute) -> Sequence[tuple[str, int]]:
        """Return whom to ask for the members of a group: broker names and ids, best first."""
        ...

    def session_since_ms(self, broker_name: str, broker_id: int) -> tuple[int | None, bool]:
        """Return since when a member has known this client, and whether it knows the others too."""
        ...


class TopicRoutes(Protocol):
    """Routes by topic: a client's `RouteCache`."""

    async def route(self, topic: str) -> TopicRoute:
        """Return the route of `topic`, asking when it is not known."""
        ...

    def is_registered(self, topic: str, broker_name: str) -> bool:
        """Return whether NameServers name a broker in the route of `topic` now."""
        ...


class OwnedQueues(Protocol):
    """The queues that this member owns: `PushAssignment`, or `PullAssignment`."""

    @property
    def queues(self) -> list[MessageQueue]:
        """The owned queues, sorted."""
        ...

    async def start(
        self, wanted: Mapping[MessageQueue, Subscription], since_ms: int | None
    ) -> bool:
        """Own these queues; return whether all could be started.

        Args:
            wanted: Queues of one topic, none of which is owned.
            since_ms: From when on the member has had a share of the topic; None = from now on.
        """
        ...

    async def drop(self, queues: Sequence[MessageQueue]) -> None:
        """Own these queues no more."""
        ...


class KnownMembers:
    """The members of a group, by the lists of brokers that may not know all of them yet. Pure.

    A broker that has just started, or was promoted, hears from its clients one after the other.
    Whom it has not listed since then, and another one did before, counts as a member until the
    broker is settled; else the first to come would take the queues of all.
    """

    def __init__(self) -> None:
        self._source: object = None
        self._members: frozenset[str] = frozenset()
        self._carried: frozenset[str] = frozenset()

    @property
    def is_certain(self) -> bool:
        """True when the last broker listed every member itself."""
        return not self._carried

    def take(self, listed: Collection[str], source: object, *, is_settled: bool) -> list[str]:
        """Return the members, sorted, when a broker lists some.

        Args:
            listed: Client ids.
            source: Which Session lists them: after a restart of the broker it is another one.
            is_settled: The broker knows every member.
        """
        if is_settled:
            self._carried = frozenset()
        elif source != self._source:
            self._carried = self._members
        self._source = source
        self._carried -= frozenset(listed)  # if it is missing later on, it has left
        self._members = self._carried.union(listed)
        return sorted(self._members)


@dataclass(frozen=True, slots=True)
class AssignmentChange:
    """Difference between the owned queues and a share. Both are sorted."""

    dropped: list[MessageQueue]
    added: list[MessageQueue]


def change_of(owned: Sequence[MessageQueue], share: Sequence[MessageQueue]) -> AssignmentChange:
    """Return what to drop of `owned` and what to add to it, so that it becomes `share`."""
    had, wanted = set(owned), set(share)
    return AssignmentChange(dropped=sorted(had - wanted), added=sorted(wanted - had))


class _LastingTrouble(str):
    """Text of a trouble that does not pass by itself."""


def _trouble_of(what: str, error: TernError | None, *, is_lasting: bool = True) -> str:
    """Return what is in the way; that an operator or a programmer is to mend does not pass."""
    if error is None:
        return what
    text = f"{what}: {error}"
    return _LastingTrouble(text) if is_lasting and error.fault is Fault.CALLER else text


@dataclass(slots=True)
class _Trouble:
    """Trouble that keeps a member from its share of one topic, as far as it was logged."""

    since_ms: int
    looks: int = 0
    text: str = ""
    is_warned: bool = False


class Rebalancer:
    """Keeps the owned queues equal to this member's share, step by step.

    Args:
        brokers: Gives the connections.
        routes: Tells the queues.
        owned: What is changed.
        group: Whose members share.
        client_id: This member.
        subscriptions: By topic.
        optional_topics: Those of them that need not exist: nothing is said of one that is missing.
        takes_all: This member takes every queue, whoever else is there: it broadcasts.
        allocate: Which queues are whose.
        timeout_s: For each request.
        take_over_wait_s: Pause before queues are taken over that another member may give away.
        wall_ms: Tells the time.
        on_settled: Called after a look at which every topic was known and nothing failed.
        retry_soon: Called when a look must be repeated in `RETRY_S`.
        on_refused: Called at each look for each topic of which no queue may be read.
    """

    def __init__(
        self,
        brokers: GroupConnections,
        routes: TopicRoutes,
        owned: OwnedQueues,
        *,
        group: str,
        client_id: str,
        subscriptions: Mapping[str, Subscription],
        optional_topics: frozenset[str] = frozenset(),
        takes_all: bool = False,
        allocate: AllocationStrategy,
        timeout_s: float,
        take_over_wait_s: float,
        wall_ms: Callable[[], int],
        on_settled: Callable[[], None],
        retry_soon: Callable[[], None],
        on_refused: Callable[[RefusedError], None],
    ) -> None:
        self._brokers = brokers
        self._routes = routes
        self._owned = owned
        self._group = group
        self._client_id = client_id
        self._subscriptions = subscriptions
        self._optional_topics = optional_topics
        self._takes_all = takes_all
        self._allocate = allocate
        self._timeout_s = timeout_s
        self._take_over_wait_s = take_over_wait_s
        self._wall_ms = wall_ms
        self._since_ms: dict[str, int] = {}
        """By topic: when its queues were shared for the first time."""
        self._on_settled = on_settled
        self._retry_soon = retry_soon
        self._on_refused = on_refused
        self._misses = dict.fromkeys(subscriptions, 0)
        self._troubles: dict[str, _Trouble] = {}
        """By topic: what is in the way at present."""
        self._known = {topic: KnownMembers() for topic in subscriptions}
        self._unreadable = UnreadableBrokers()
        self._uncovered: dict[str, list[str]] = {}
        """By topic: brokers whose queues no member takes."""

    async def step(self) -> bool:
        """Rebalance every topic once. The step of a job."""
        is_settled = True
        # What need not exist comes last: taking its queues over must not hold up the others.
        for topic in sorted(self._subscriptions, key=lambda t: (t in self._optional_topics, t)):
            trouble = await self._rebalance(topic)
            is_lasting = isinstance(trouble, RefusedError | _LastingTrouble)
            if isinstance(trouble, RefusedError):
                self._on_refused(trouble)
                trouble = trouble.remark
            elif trouble:
                is_settled = False
            self._log_trouble(topic, trouble, is_lasting=is_lasting)
        if is_settled:
            self._on_settled()
        else:
            self._retry_soon()
        return False

    async def _rebalance(self, topic: str) -> str | RefusedError:
        """Make the owned queues of `topic` this member's share; return why that cannot be done.

        A refusal says that no queue may be read, so that there is no share.
        """
        try:
            route = await self._routes.route(topic)
        except TernError as error:
            if topic in self._optional_topics and isinstance(error, TopicNotFound):
                return ""
            # What is owned stays: the NameServer may be away or may just have started. Whether a
            # queue is gone its broker says, and ends the subscription.
            is_waited_for = isinstance(error, TopicNotFound) and topic in self._since_ms
            return _trouble_of("no route", error, is_lasting=not is_waited_for)
        names = [data.broker_name for data in route.brokers]
        kept = {name for name in names if not self._routes.is_registered(topic, name)}
        told = without(route, kept)
        members = [self._client_id] if self._takes_all else await self._members(told, route)
        if isinstance(members, str):
            return members
        owned = [queue for queue in self._owned.queues if queue.topic == topic]
        trouble: str | RefusedError = ""
        if self._client_id not in members:
            self._misses[topic] += 1
            trouble = "the broker does not list this member"
            if not members or self._misses[topic] < MISSES_MAX:
                return trouble
        else:
            self._misses[topic] = 0
        since_ms = self._since_ms.get(topic)
        self._since_ms.setdefault(topic, self._wall_ms())
        queues = route.read_queues()
        if not queues:
            trouble = trouble or route.read_refusal()
        self._unreadable.note(route)
        self._note_uncovered(topic, queues)
        share = queues
        if not self._takes_all:
            share = [*self._allocate(told.read_queues(), members, self._client_id)]
            share += [queue for queue in owned if queue in queues and queue.broker_name in kept]
        change = change_of(owned, share)
        if not change.dropped and not change.added:
            return trouble
        logger.info(
            "rebalance group=%s topic=%s members=%s queues=%s dropped=%s added=%s",
            self._group,
            topic,
            len(members),
            len(queues),
            len(change.dropped),
            len(change.added),
        )
        await self._owned.drop(change.dropped)
        if change.added and len(members) > 1:
            # All members look at the same moment: what another one gives away just now is to be
            # committed before this one asks where to begin.
            await asyncio.sleep(self._take_over_wait_s)
        subscription = self._subscriptions[topic]
        if not await self._owned.start(dict.fromkeys(change.added, subscription), since_ms):
            return "a queue could not be taken over"
        return trouble

    def _note_uncovered(self, topic: str, queues: Sequence[MessageQueue]) -> None:
        """Log, once a change, which brokers' queues no member takes."""
        allocate = self._allocate
        if self._takes_all or not isinstance(allocate, AllocateByMachineRoom):
            return
        brokers = sorted({each.broker_name for each in queues if not allocate.covers(each)})
        if brokers != self._uncovered.get(topic, []):
            self._uncovered[topic] = brokers
            logger.warning(
                "queues outside the machine rooms, which no member takes group=%s topic=%s"
                " brokers=%s",
                self._group,
                topic,
                brokers or "none any more",
            )

    async def _members(self, told: TopicRoute, route: TopicRoute) -> list[str] | str:
        """Return the group's members as the first broker that answers lists them, sorted.

        Or why there is no list.

        Slaves list them like masters: what is owned stays where it is when a master goes. One that
        no NameServer tells may not know every member.
        """
        request = groups.ListMembersRequest(group=self._group)
        asked = told if told.brokers else route
        refused: RefusedError | None = None
        for broker_name, broker_id in self._brokers.members_to_list(asked):
            try:
                connection = await self._brokers.broker(broker_name, broker_id)
                reply = await connection.call(LIST_MEMBERS, request, timeout_s=self._timeout_s)
            except TernError as error:
                logger.info(
                    "members not listed broker=%s id=%s error=%s", broker_name, broker_id, error
                )
                refused = error if isinstance(error, RefusedError) else refused
                continue
            since_ms, is_settled = self._brokers.session_since_ms(broker_name, broker_id)
            listed = set(reply.client_ids)
            if self._client_id not in listed:
                return sorted(listed)
            source, known = (broker_name, broker_id, since_ms), self._known[route.topic]
            members = known.take(listed, source, is_settled=is_settled)
            if not known.is_certain:
                self._retry_soon()
            return members
        return _trouble_of("no broker lists the members", refused)

    def _log_trouble(self, topic: str, trouble: str, *, is_lasting: bool) -> None:
        """Log what is new, so that a look each second does not fill the log.

        What passes by itself, as while a broker restarts, is no warning until it has lasted.
        """
        before = self._troubles.pop(topic, None)
        if not trouble:
            if before is not None:
                logger.info("rebalance group=%s topic=%s works again", self._group, topic)
            return
        now_ms = self._wall_ms()
        now = self._troubles[topic] = before or _Trouble(now_ms)
        now.looks += 1
        is_late = (
            now.looks >= WARNING_LOOKS
            and now_ms - now.since_ms >= (WARNING_LOOKS - 1) * RETRY_S * 1000
        )
        is_warning = is_lasting or (is_late and not now.is_warned)
        if trouble != now.text or (is_warning and not now.is_warned):
            logger.log(
                logging.WARNING if is_warning else logging.INFO,
                "rebalance group=%s topic=%s: %s",
                self._group,
                topic,
                trouble,
            )
        now.text, now.is_warned = trouble, now.is_warned or is_warning
