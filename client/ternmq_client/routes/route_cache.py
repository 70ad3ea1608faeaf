"""Cache of routes: asked for on demand, and again from time to time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

from ternmq_client.routes.nameservers import FoundRoute, NameServers
from ternmq_client.routes.partial_routes import completed, without
from ternmq_client.single_flight import SingleFlight
from ternmq_model.clock import Clock
from ternmq_model.errors import TernError, TopicNotFound, Unreachable
from ternmq_model.route import MASTER_ID, BrokerData, TopicRoute
from ternmq_runtime.service import OwnedTasks

logger = logging.getLogger(__name__)

NEW_TOPIC_QUEUES: Final = 4
"""Queues on each broker of a topic that a send creates.

Source: RocketMQ `defaultTopicQueueNums`.
"""

UNCERTAIN_REFRESH_MS: Final = 1_000
"""Interval between questions for a route that is young, unknown but watched, a guess,
or lacks a master or a broker that was told before: the true one may come any moment."""

SOON_MS: Final = 200
"""Within so long, drawn at random, a route is asked again of which something was found changed."""

ASK_PAUSE_MS: Final = 500
"""Least time between two questions for one topic, whatever happens: a client asks for each of its
topics at most twice a second."""

NEVER_MS: Final = 1 << 62
"""Due time of a route that is being asked for."""

LOSS_GRACE_MS: Final = 5_000
"""Time that a member is kept that no NameServer tells any more, but others of its name;
and how long a route is young that was not told before. By then brokers have registered again with
NameServers that have just started."""

BROKER_KEPT_MS: Final = 30_000
"""Time that a broker name is kept that no NameServer tells any more, while it tells others, and
that gives no answer itself. Long enough for a restart."""

TOPIC_KEPT_MS: Final = 600_000
"""Time that a broker name is kept whose topic no NameServer knows any more, and that gives no
answer itself."""


@dataclass(frozen=True, slots=True)
class KnownBroker:
    """A broker name as the newest route tells it."""

    data: BrokerData
    nameserver_host: str
    """Host that "*" in its endpoints stands for."""


@dataclass(slots=True)
class _Known:
    """One topic. `route` is None while no NameServer knows it."""

    route: TopicRoute | None
    is_guessed: bool
    due_at_ms: int
    asked_at_ms: int
    complete: TopicRoute | None = None
    """The route with everything that was told before and is kept; None when it is not told."""

    told: frozenset[str] = frozenset()
    """The broker names that NameServers tell now."""

    lacking_since_ms: Mapping[str, int] = field(default_factory=dict[str, int])
    """Time, by broker name, since which no NameServer tells all that `complete` says of the broker,
    or at which the broker last said that it has the topic, whichever is later."""

    young_until_ms: int = 0
    """Until when who told it may have started just now, and not know every broker."""


class RouteCache:
    """Routes by topic.

    A route that was told once is kept while no NameServer answers, and while those that answer miss
    brokers of it: one that is named no more is left out when it denies the topic itself, or gives
    no answer for 30 s while the topic has other brokers, and for 10 min otherwise.

    Owned by one `ClientInstance` and touched only from its event loop.

    Args:
        nameservers: Who is asked.
        tasks: Owns the questions under way.
        clock: Only its monotonic time is read.
        random: Spreads the questions of clients that notice a change in the same moment.
        refresh_s: Age at which a route is asked again.
        has_topic: Asks a broker, by its name, whether it has a topic; None when it gives no answer.
    """

    def __init__(
        self,
        nameservers: NameServers,
        tasks: OwnedTasks,
        clock: Clock,
        random: Random,
        *,
        refresh_s: float,
        has_topic: Callable[[str, str], Awaitable[bool | None]],
    ) -> None:
        self._nameservers = nameservers
        self._clock = clock
        self._random = random
        self._has_topic = has_topic
        self._refresh_ms = int(refresh_s * 1000)
        self._asking = SingleFlight[str, TopicRoute](tasks)
        self._known: dict[str, _Known] = {}
        self._brokers: dict[str, KnownBroker] = {}
        self._suspected: set[tuple[str, int]] = set()
        """Members that could not be reached since a route last told of them."""
        self._watched: set[str] = set()
        self._listeners: list[tuple[Callable[[str], None], bool]] = []
        self._is_answered = True

    def pause_s(self) -> float:
        """Return after how long `refresh` should run again."""
        now_ms = self._clock.monotonic_ms()
        waits_ms = (known.due_at_ms - now_ms for known in self._known.values())
        return max(1, min(self._refresh_ms, UNCERTAIN_REFRESH_MS, *waits_ms)) / 1000

    def cached(self, topic: str) -> TopicRoute | None:
        """Return the route as it was last told; None when it is not known. Never asks."""
        known = self._known.get(topic)
        return None if known is None or known.is_guessed else known.route

    def find_broker(self, broker_name: str) -> KnownBroker | None:
        """Return where `broker_name` is, or None when no route has named it. Never asks."""
        return self._brokers.get(broker_name)

    def is_named(self, broker_name: str) -> bool:
        """Return whether any route names `broker_name`."""
        routes = (known.route for known in self._known.values())
        return any(route is not None and route.broker(broker_name) for route in routes)

    def is_registered(self, topic: str, broker_name: str) -> bool:
        """Return whether NameServers name a broker in the route of `topic` now.

        The route may name more, which are kept: clients that began later do not know those.
        """
        known = self._known.get(topic)
        return known is not None and broker_name in known.told

    async def route(self, topic: str) -> TopicRoute:
        """Return the route of `topic`, asking when it is not known.

        Cancelling is safe: the question goes on for others.

        Raises:
            TopicNotFound: No NameServer knows it.
            Unreachable: No NameServer answers; names each.
        """
        return self.cached(topic) or await self._ask(topic)

    async def route_now(self, topic: str) -> TopicRoute:
        """Return the route of `topic` as NameServers tell it now, or as it is known if none does.

        Raises:
            TopicNotFound: No NameServer knows it.
            Unreachable: No NameServer answers, and it is not known.
        """
        try:
            return await self._ask(topic)
        except Unreachable:
            if (route := self.cached(topic)) is None:
                raise
            return route

    async def route_to_write(
        self, topic: str, *, template: str | None = None, queues_max: int = NEW_TOPIC_QUEUES
    ) -> TopicRoute:
        """Return the route of `topic`, or the one it will have once a send has created it.

        Args:
            topic: Its name has been checked.
            template: The topic from whose settings brokers may create it (TBW102), if they may.
            queues_max: Most queues it would then have on each broker.

        Raises:
            TopicNotFound: It is unknown, and no broker would create it.
            Unreachable: No NameServer answers; names each.

        Source:
            RocketMQ `MQClientInstance.updateTopicRouteInfoFromNameServer`.
        """
        known = self._known.get(topic)
        route = None if known is None else known.route
        if known is not None and route is not None and known.is_guessed:
            # A guess of while the template had no master is no better for waiting.
            route = route if template and route.write_queues() else None
        if route is not None:
            return route
        try:
            return await self._ask(topic)
        except TopicNotFound as unknown:
            if template is None:
                raise
            try:
                template_route = await self.route(template)
            except TopicNotFound:
                raise unknown from None
        guess = template_route.for_new_topic(topic, queues_max=queues_max)
        now_ms = self._clock.monotonic_ms()
        self._known[topic] = _Known(
            guess, is_guessed=True, due_at_ms=now_ms + UNCERTAIN_REFRESH_MS, asked_at_ms=now_ms
        )
        return guess

    def watch(self, topic: str) -> None:
        """Ask for `topic` again and again although it is unknown: it may be created."""
        self._watched.add(topic)

    def unwatch(self, topic: str) -> None:
        """Undo `watch`."""
        self._watched.discard(topic)

    def expire(self, topic: str) -> None:
        """Ask for `topic` soon: within 0.2 s, but at most twice a second."""
        if (known := self._known.get(topic)) is not None:
            soon_ms = self._clock.monotonic_ms() + self._random.randrange(SOON_MS)
            soon_ms = max(soon_ms, known.asked_at_ms + ASK_PAUSE_MS)
            known.due_at_ms = min(known.due_at_ms, soon_ms)

    def expire_broker(self, broker_name: str) -> None:
        """Ask soon for every topic whose route names `broker_name`. See `expire`."""
        for topic, known in self._known.items():
            route = known.complete or known.route
            if route is not None and route.broker(broker_name) is not None:
                self.expire(topic)

    def suspect(self, broker_name: str, broker_id: int) -> None:
        """Ask for the routes of a broker whose member could not be reached.

        What no NameServer tells of it any more is left out where something else serves.
        """
        self._suspected.add((broker_name, broker_id))
        self.expire_broker(broker_name)

    def trust(self, broker_name: str, broker_id: int) -> None:
        """Undo `suspect`: the member was reached."""
        if (broker_name, broker_id) in self._suspected:
            self._suspected.discard((broker_name, broker_id))
            self.expire_broker(broker_name)

    def add_listener(self, on_change: Callable[[str], None], *, of_told: bool = False) -> None:
        """Call `on_change` with the topic whenever a route has become another one.

        With `of_told` also when NameServers name other brokers in it: see `is_registered`.
        """
        self._listeners.append((on_change, of_told))

    async def refresh(self) -> bool:
        """Ask for every route that is due. The step of a job.

        When no NameServer tells them, all are kept, and asked again at the next step.
        """
        now_ms = self._clock.monotonic_ms()
        for topic in sorted(self._watched - self._known.keys()):
            self._known[topic] = _Known(
                None, is_guessed=False, due_at_ms=now_ms, asked_at_ms=now_ms
            )
        due = [topic for topic, known in self._known.items() if known.due_at_ms <= now_ms]
        # Side by side: a NameServer that is away is waited for once.
        asked = await asyncio.gather(*map(self._ask, due), return_exceptions=True)
        for error in asked:
            if not isinstance(error, BaseException) or isinstance(error, TopicNotFound):
                continue
            if not isinstance(error, TernError):
                raise error
            if self._is_answered:
                logger.warning("routes are kept while no nameserver tells them error=%s", error)
            self._is_answered = False
            return False
        if due and not self._is_answered:
            logger.info("routes are refreshed again topics=%d", len(due))
            self._is_answered = True
        return False

    async def _ask(self, topic: str) -> TopicRoute:
        return await self._asking.run(topic, lambda: self._fetch(topic))

    async def _fetch(self, topic: str) -> TopicRoute:
        known = self._known.get(topic)
        now_ms = self._clock.monotonic_ms()
        if known is not None:
            # What changes from now on the answer may not tell: it is to be asked for again.
            known.asked_at_ms, known.due_at_ms = now_ms, NEVER_MS
        try:
            return await self._learn(topic, known)
        finally:
            if known is not None:  # and still in use, when there was no answer
                again_ms = self._clock.monotonic_ms() + UNCERTAIN_REFRESH_MS
                known.due_at_ms = min(known.due_at_ms, again_ms)

    async def _learn(self, topic: str, known: _Known | None) -> TopicRoute:
        before = None if known is None else known.complete
        found: FoundRoute | None = None
        unknown: TopicNotFound | None = None
        lacking_since_ms: Mapping[str, int] = {}
        try:
            found = await self._nameservers.topic_route(topic)
        except TopicNotFound as error:
            unknown = error
        told = None if found is None else found.route
        complete = route = told
        if known is not None and before is not None:
            if found is not None:
                # Who needs the route for the first time does not wait for all of them.
                for other in await self._nameservers.other_routes(topic, found):
                    told = completed(told, other, self._is_suspected)
            before, lacking_since_ms = await self._still_believed(topic, known, before, told)
            if told is not None or before.queues:
                complete = completed(told, before, lambda _name, _id: False)
                route = completed(told, before, self._is_suspected)
        if complete is None or route is None:
            self._put_unknown(topic, known)
            assert unknown is not None, "no NameServer told it"
            raise unknown
        if found is not None:
            self._note_brokers(found, route)
        self._keep(topic, known, complete, route, told, lacking_since_ms)
        return route

    def _keep(
        self,
        topic: str,
        known: _Known | None,
        complete: TopicRoute,
        route: TopicRoute,
        told: TopicRoute | None,
        lacking_since_ms: Mapping[str, int],
    ) -> None:
        """Store a route that was learned, and the time at which it is asked for again."""
        now_ms = self._clock.monotonic_ms()
        before = None if known is None or known.is_guessed else known.route
        told_brokers = {data.broker_name: data for data in (() if told is None else told.brokers)}
        lacking = [
            data.broker_name
            for data in complete.brokers
            if told_brokers.get(data.broker_name) != data
        ]
        if lacking and not (known is not None and known.lacking_since_ms):
            logger.info("route is kept that no nameserver tells in full topic=%s", topic)
        young_until_ms = now_ms + LOSS_GRACE_MS
        if known is not None and before is not None:
            young_until_ms = known.young_until_ms
        # A master that is away may return any moment.
        is_complete = not lacking and all(data.master is not None for data in route.brokers)
        is_certain = is_complete and now_ms >= young_until_ms
        wait_ms = self._refresh_ms if is_certain else min(self._refresh_ms, UNCERTAIN_REFRESH_MS)
        self._known[topic] = now = _Known(
            route,
            is_guessed=False,
            due_at_ms=min(now_ms + wait_ms, NEVER_MS if known is None else known.due_at_ms),
            asked_at_ms=now_ms if known is None else known.asked_at_ms,
            complete=complete,
            told=frozenset(told_brokers),
            lacking_since_ms={name: lacking_since_ms.get(name, now_ms) for name in lacking},
            young_until_ms=young_until_ms,
        )
        if before != route:
            names = [data.broker_name for data in route.queues]
            logger.info("route topic=%s brokers=%s", topic, names)
        if before != route or known is None or known.told != now.told:
            self._tell(topic, is_same=before == route)

    async def _still_believed(
        self, topic: str, known: _Known, before: TopicRoute, told: TopicRoute | None
    ) -> tuple[TopicRoute, Mapping[str, int]]:
        """Return what is to be believed still of a route that was told before.

        And since when each broker name of it lacks something: see `_Known`.
        """
        names = {data.broker_name for data in (() if told is None else told.brokers)}
        lost = [data.broker_name for data in before.brokers if data.broker_name not in names]
        # A broker out of reach has no answer.
        asked = [name for name in lost if not self._is_suspected(name, MASTER_ID)]
        answers = await asyncio.gather(*(self._has_topic(topic, name) for name in asked))
        has_topic = dict(zip(asked, answers, strict=True))
        now_ms = self._clock.monotonic_ms()
        kept_ms = TOPIC_KEPT_MS if told is None else BROKER_KEPT_MS
        since_ms = dict(known.lacking_since_ms)
        gone: list[str] = []
        for data in before.brokers:
            name = data.broker_name
            if has_topic.get(name):
                since_ms[name] = now_ms
            lost_ms = now_ms - since_ms.get(name, now_ms)
            is_late = lost_ms >= (LOSS_GRACE_MS if name in names else kept_ms)
            if is_late or has_topic.get(name) is False:
                gone.append(name)
        return without(before, gone), since_ms

    def _is_suspected(self, broker_name: str, broker_id: int) -> bool:
        return (broker_name, broker_id) in self._suspected

    def _note_brokers(self, found: FoundRoute, route: TopicRoute) -> None:
        """Store where brokers are; for those that were not told just now what is known already."""
        for data in route.brokers:
            is_registered = found.route.broker(data.broker_name) is not None
            if is_registered or data.broker_name not in self._brokers:
                self._brokers[data.broker_name] = KnownBroker(data, found.nameserver_host)

    def _put_unknown(self, topic: str, known: _Known | None) -> None:
        """Remember that nobody knows `topic`: a guess stays, a route that was told is gone."""
        due_at_ms = self._clock.monotonic_ms() + UNCERTAIN_REFRESH_MS
        if known is not None and known.is_guessed:
            known.due_at_ms = due_at_ms
            return
        if topic in self._watched:
            asked_at_ms = due_at_ms - UNCERTAIN_REFRESH_MS
            self._known[topic] = _Known(
                None, is_guessed=False, due_at_ms=due_at_ms, asked_at_ms=asked_at_ms
            )
        else:
            self._known.pop(topic, None)
        if known is not None and known.route is not None:
            logger.info("route gone topic=%s", topic)
            self._tell(topic)

    def _tell(self, topic: str, *, is_same: bool = False) -> None:
        for listener, of_told in tuple(self._listeners):
            if of_told or not is_same:
                listener(topic)
