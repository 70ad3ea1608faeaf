"""Rebalance job of a member: its owned queues become its share of the queues.

Every member computes its share alone, from the present routes and a broker's list of the group's
members. While two members have different lists, a queue may have two owners or none; messages can
come twice then, but are never skipped. Every change causes a rebalance at once, which ends that
state. A cached route may name brokers that no NameServer knows any more, and that later members do
not know. Queues of such brokers stay with their owners and do not count for the shares.

Source: RocketMQ `RebalanceImpl`.
"""

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
from ternmq_runtime.timers import Timers, Wait

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""Pause before the next rebalance after a broker did not answer or a queue did not start, s."""

WARNING_STEPS: Final = 10
"""Failed rebalances in a row before a warning. The trouble must also last for as many seconds,
since each change causes a rebalance."""

MISSES_MAX: Final = 3
"""Rebalances in a row without this member in a broker's list before it gives its queues away. A
broker that has restarted learns its clients one by one."""


class GroupConnections(BrokerConnections, Protocol):
    """Connections to the brokers that list the members of a group: a `ClientInstance`."""

    def members_to_list(self, route: TopicRoute) -> Sequence[tuple[str, int]]:
        """Return the brokers that list the members of a group, as names and ids, best first."""
        ...

    def session_since_ms(self, broker_name: str, broker_id: int) -> tuple[int | None, bool]:
        """Return the begin of this client's Session, and whether the broker has those of others."""
        ...


class TopicRoutes(Protocol):
    """Routes by topic: a client's `RouteCache`."""

    async def route(self, topic: str) -> TopicRoute:
        """Return the cached or present route of `topic`."""
        ...

    def is_registered(self, topic: str, broker_name: str) -> bool:
        """Return whether the present route of `topic` names a broker."""
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

        Queues that could not be started are not owned; the reason is logged.

        Args:
            wanted: Subscriptions of queues of one topic, none of which is owned.
            since_ms: Begin of the member's share of the topic, Unix milliseconds; None = now.
        """
        ...

    async def drop(self, queues: Sequence[MessageQueue]) -> None:
        """Own these queues no more."""
        ...


class KnownMembers:
    """Members of a group, by lists of brokers that may be incomplete. Pure.

    A broker that has started or was promoted learns its clients one by one. A member of an earlier
    list counts as a member until the broker is settled; else the first client would get all queues.
    """

    def __init__(self) -> None:
        self._source: object = None
        self._members: frozenset[str] = frozenset()
        self._carried: frozenset[str] = frozenset()

    @property
    def is_certain(self) -> bool:
        """True if the last list had every member."""
        return not self._carried

    def take(self, listed: Collection[str], source: object, *, is_settled: bool) -> list[str]:
        """Return the members, sorted, after a list of a broker.

        Args:
            listed: Client ids in the list.
            source: Session of the list. A restart of the broker gives another one.
            is_settled: True = the list is complete.
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
    """Return the queues to drop and to add so that `owned` becomes `share`."""
    had, wanted = set(owned), set(share)
    return AssignmentChange(dropped=sorted(had - wanted), added=sorted(wanted - had))


class _LastingTrouble(str):
    """Text of a trouble that needs an operator or a programmer."""


def _trouble_of(what: str, error: TernError | None, *, is_lasting: bool = True) -> str:
    """Return the text of a trouble. An error that an operator must mend is a lasting trouble."""
    if error is None:
        return what
    text = f"{what}: {error}"
    return _LastingTrouble(text) if is_lasting and error.fault is Fault.CALLER else text


@dataclass(slots=True)
class _Trouble:
    """Logged trouble of a member with its share of one topic."""

    since_ms: int
    looks: int = 0
    text: str = ""
    is_warned: bool = False


class Rebalancer:
    """Rebalances the owned queues of this member, step by step.

    Args:
        optional_topics: Topics that may be missing without a log line.
        takes_all: True = this member takes every queue, because it broadcasts.
        timeout_s: Timeout of each request, s.
        take_over_wait_s: Pause before queues are taken over from another member, s.
        wall_ms: Clock, Unix ms.
        on_settled: Called after a rebalance without failures in which every topic was known.
        retry_soon: Called when the rebalance must be repeated after `RETRY_S`, with the purpose of
            that wait.
        on_refused: Called at each rebalance for each topic without a readable queue.
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
        timers: Timers,
        wall_ms: Callable[[], int],
        on_settled: Callable[[], None],
        retry_soon: Callable[[Wait], None],
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
        self._timers = timers
        self._wall_ms = wall_ms
        self._since_ms: dict[str, int] = {}
        """Time of the first share of each topic, Unix ms."""
        self._on_settled = on_settled
        self._retry_soon = retry_soon
        self._on_refused = on_refused
        self._misses = dict.fromkeys(subscriptions, 0)
        self._troubles: dict[str, _Trouble] = {}
        """Present trouble of each topic."""
        self._known = {topic: KnownMembers() for topic in subscriptions}
        self._unreadable = UnreadableBrokers()
        self._uncovered: dict[str, list[str]] = {}
        """Brokers of each topic with queues that no member takes."""

    async def step(self) -> bool:
        """Rebalance every topic once. Step of a job."""
        is_settled = True
        # Optional topics come last: their queues must not delay those of the others.
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
            # A trouble that has lasted, such as a missing topic, may last for days.
            has_lasted = all(each.looks >= WARNING_STEPS for each in self._troubles.values())
            self._retry_soon(Wait.PERIODIC if has_lasted else Wait.DUE)
        return False

    async def _rebalance(self, topic: str) -> str | RefusedError:
        """Rebalance `topic`. Return the trouble; "" = none.

        A refusal means that no queue may be read, so that there is no share.
        """
        try:
            route = await self._routes.route(topic)
        except TernError as error:
            if topic in self._optional_topics and isinstance(error, TopicNotFound):
                return ""
            # Owned queues stay: the NameServer may be away or may just have started. The broker of
            # a deleted queue ends the subscription.
            is_waited_for = isinstance(error, TopicNotFound) and topic in self._since_ms
            return _trouble_of("no route", error, is_lasting=not is_waited_for)
        names = [data.broker_name for data in route.brokers]
        kept = {name for name in names if not self._routes.is_registered(topic, name)}
        registered = without(route, kept)
        members = [self._client_id] if self._takes_all else await self._members(registered, route)
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
            share = [*self._allocate(registered.read_queues(), members, self._client_id)]
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
            # All members rebalance at the same moment. The other one must commit the queues that it
            # gives away before this member reads their offsets.
            await self._timers.sleep(self._take_over_wait_s)
        subscription = self._subscriptions[topic]
        if not await self._owned.start(dict.fromkeys(change.added, subscription), since_ms):
            return "a queue could not be taken over"
        return trouble

    def _note_uncovered(self, topic: str, queues: Sequence[MessageQueue]) -> None:
        """Log each change of the brokers with queues that no member takes."""
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

    async def _members(self, registered: TopicRoute, route: TopicRoute) -> list[str] | str:
        """Return the group's members, sorted, from the first broker that answers; else the trouble.

        Slaves list members like masters, so owned queues stay when a master goes away. A broker
        that no NameServer knows may not have every member.
        """
        request = groups.ListMembersRequest(group=self._group)
        asked = registered if registered.brokers else route
        refused: RefusedError | None = None
        for broker_name, broker_id in self._brokers.members_to_list(asked):
            try:
                connection = await self._brokers.broker(broker_name, broker_id)
                reply = await connection.call(LIST_MEMBERS, request, timeout_s=self._timeout_s)
            except TernError as error:
                logger.info(
                    "members not listed broker=%s broker_id=%s err=%s",
                    broker_name,
                    broker_id,
                    error,
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
                self._retry_soon(Wait.DUE)
            return members
        return _trouble_of("no broker lists the members", refused)

    def _log_trouble(self, topic: str, trouble: str, *, is_lasting: bool) -> None:
        """Log a change of the trouble only, since a rebalance may run each second.

        A passing trouble, such as the restart of a broker, becomes a warning only when it lasts.
        """
        before = self._troubles.pop(topic, None)
        if not trouble:
            if before is not None:
                logger.info("rebalance works again group=%s topic=%s", self._group, topic)
            return
        now_ms = self._wall_ms()
        now = self._troubles[topic] = before or _Trouble(now_ms)
        now.looks += 1
        is_late = (
            now.looks >= WARNING_STEPS
            and now_ms - now.since_ms >= (WARNING_STEPS - 1) * RETRY_S * 1000
        )
        is_warning = is_lasting or (is_late and not now.is_warned)
        if trouble != now.text or (is_warning and not now.is_warned):
            logger.log(
                logging.WARNING if is_warning else logging.INFO,
                "rebalance fails group=%s topic=%s reason=%s",
                self._group,
                topic,
                trouble,
            )
        now.text, now.is_warned = trouble, now.is_warned or is_warning
