"""Cache of routes, loaded on demand and refreshed at intervals."""

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
"""Interval between refreshes of a route that is young, unknown but watched, guessed, or without a
master or broker of an earlier route, ms. Such a route may change at any moment."""

SOON_MS: Final = 200
"""Longest random wait before the refresh of a route that has changed, ms."""

ASK_PAUSE_MS: Final = 500
"""Least time between two refreshes of a topic, ms: at most two a second."""

NEVER_MS: Final = 1 << 62
"""Due time of a route during its refresh."""

LOSS_GRACE_MS: Final = 5_000
"""Time that a member stays in a route after NameServers name only other members of its broker, and
age up to which a new route is young, ms. By then brokers have registered again with NameServers
that have just started."""

BROKER_KEPT_MS: Final = 30_000
"""Time that a broker without answers stays in a route after NameServers name only other brokers,
ms. It is long enough for a restart."""

TOPIC_KEPT_MS: Final = 600_000
"""Time that a broker without answers stays in a route after no NameServer knows the topic, ms."""


@dataclass(frozen=True, slots=True)
class KnownBroker:
    """Broker in the newest route."""

    data: BrokerData
    nameserver_host: str
    """Host for "*" in the broker's endpoints."""


@dataclass(slots=True)
class _Known:
    """State of one topic. `route` is None while no NameServer knows the topic."""

    route: TopicRoute | None
    is_guessed: bool
    due_at_ms: int
    asked_at_ms: int
    complete: TopicRoute | None = None
    """Route with kept brokers and members; None = no route."""

    told: frozenset[str] = frozenset()
    """Broker names in the present route of the NameServers."""

    lacking_since_ms: Mapping[str, int] = field(default_factory=dict[str, int])
    """Time, by broker name, since which the NameServers' route lacks a part of `complete`, or time
    of the broker's last confirmation of the topic, if that is later."""

    young_until_ms: int = 0
    """End of the time in which the route may be incomplete after a NameServer's start."""


class RouteCache:
    """Routes by topic.

    A route stays while no NameServer answers, and while NameServers lack brokers of it. A missing
    broker is removed when it denies the topic itself, or does not answer for 30 s while the topic
    has other brokers, or for 10 min otherwise.

    Owned by one `ClientInstance` and used only on its event loop.

    Args:
        nameservers: NameServers of the client.
        tasks: Owner of running refreshes.
        clock: Clock with monotonic time.
        random: Random waits, which spread the refreshes of clients that notice one change.
        refresh_s: Age at which a route is refreshed, s.
        has_topic: Coroutine function that returns whether a broker, by its name, has a topic; None
            = no answer.
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
        """Members that could not be reached since the last route with them."""
        self._watched: set[str] = set()
        self._listeners: list[tuple[Callable[[str], None], bool]] = []
        self._is_answered = True

    def pause_s(self) -> float:
        """Return the pause before the next `refresh`, s."""
        now_ms = self._clock.monotonic_ms()
        waits_ms = (known.due_at_ms - now_ms for known in self._known.values())
        return max(1, min(self._refresh_ms, UNCERTAIN_REFRESH_MS, *waits_ms)) / 1000

    def cached(self, topic: str) -> TopicRoute | None:
        """Return the cached route; None = unknown. The call sends no request."""
        known = self._known.get(topic)
        return None if known is None or known.is_guessed else known.route

    def find_broker(self, broker_name: str) -> KnownBroker | None:
        """Return the broker in the newest route; None = unknown. The call sends no request."""
        return self._brokers.get(broker_name)

    def is_named(self, broker_name: str) -> bool:
        """Return whether any route names `broker_name`."""
        routes = (known.route for known in self._known.values())
        return any(route is not None and route.broker(broker_name) for route in routes)

    def is_registered(self, topic: str, broker_name: str) -> bool:
        """Return whether the NameServers' present route of `topic` names a broker.

        The cached route may have more brokers, which later clients do not know.
        """
        known = self._known.get(topic)
        return known is not None and broker_name in known.told

    async def route(self, topic: str) -> TopicRoute:
        """Return the cached route of `topic`, or load it.

        Cancelling is safe: the request goes on for other callers.

        Raises:
            TopicNotFound: No NameServer knows the topic.
            Unreachable: No NameServer answers. The error names each.
        """
        return self.cached(topic) or await self._ask(topic)

    async def route_now(self, topic: str) -> TopicRoute:
        """Return the present route of `topic`; the cached one if no NameServer answers.

        Raises:
            TopicNotFound: No NameServer knows the topic.
            Unreachable: No NameServer answers, and no route is cached.
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
        """Return the route of `topic`, or its expected route after a send creates the topic.

        Args:
            topic: Checked name of the topic.
            template: Topic from whose settings brokers create topics (TBW102); empty = they do not.
            queues_max: Most queues of a created topic on each broker.

        Raises:
            TopicNotFound: The topic is unknown, and no broker creates it.
            Unreachable: No NameServer answers. The error names each.

        Source:
            RocketMQ `MQClientInstance.updateTopicRouteInfoFromNameServer`.
        """
        known = self._known.get(topic)
        route = None if known is None else known.route
        if known is not None and route is not None and known.is_guessed:
            # A guess without a master of the template does not improve by waiting.
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
        """Refresh the unknown `topic` repeatedly, since it may be created."""
        self._watched.add(topic)

    def unwatch(self, topic: str) -> None:
        """End the effect of `watch`."""
        self._watched.discard(topic)

    def expire(self, topic: str) -> None:
        """Refresh `topic` within 0.2 s, but at most twice a second."""
        if (known := self._known.get(topic)) is not None:
            soon_ms = self._clock.monotonic_ms() + self._random.randrange(SOON_MS)
            soon_ms = max(soon_ms, known.asked_at_ms + ASK_PAUSE_MS)
            known.due_at_ms = min(known.due_at_ms, soon_ms)

    def expire_broker(self, broker_name: str) -> None:
        """Refresh every topic with `broker_name` in its route soon. See `expire`."""
        for topic, known in self._known.items():
            route = known.complete or known.route
            if route is not None and route.broker(broker_name) is not None:
                self.expire(topic)

    def suspect(self, broker_name: str, broker_id: int) -> None:
        """Refresh the routes of a broker with an unreachable member.

        Parts of the broker that no NameServer names are left out if another broker serves.
        """
        self._suspected.add((broker_name, broker_id))
        self.expire_broker(broker_name)

    def trust(self, broker_name: str, broker_id: int) -> None:
        """End the effect of `suspect` after the member was reached."""
        if (broker_name, broker_id) in self._suspected:
            self._suspected.discard((broker_name, broker_id))
            self.expire_broker(broker_name)

    def add_listener(self, on_change: Callable[[str], None], *, of_told: bool = False) -> None:
        """Call `on_change` with the topic at each change of a route.

        With `of_told`, a change of the NameServers' brokers counts too. See `is_registered`.
        """
        self._listeners.append((on_change, of_told))

    async def refresh(self) -> bool:
        """Refresh all due routes. Step of a job.

        Without an answer of a NameServer all routes stay, and the next step tries again.
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
                logger.warning("routes retained, no nameserver answers err=%s", error)
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
            # The answer may lack later changes, which need another refresh.
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
                # A caller without a cached route does not wait for all refreshes.
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
        """Store a new route, and the time of its next refresh."""
        now_ms = self._clock.monotonic_ms()
        before = None if known is None or known.is_guessed else known.route
        told_brokers = {data.broker_name: data for data in (() if told is None else told.brokers)}
        lacking = [
            data.broker_name
            for data in complete.brokers
            if told_brokers.get(data.broker_name) != data
        ]
        if lacking and not (known is not None and known.lacking_since_ms):
            logger.info("route retained, no nameserver returns all of it topic=%s", topic)
        young_until_ms = now_ms + LOSS_GRACE_MS
        if known is not None and before is not None:
            young_until_ms = known.young_until_ms
        # A master that is away may return at any moment.
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
        """Return the parts of an earlier route that stay.

        The second value is the time since which each broker name lacks a part. See `_Known`.
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
        """Store the addresses of brokers. Brokers that are missing now keep the known ones."""
        for data in route.brokers:
            is_registered = found.route.broker(data.broker_name) is not None
            if is_registered or data.broker_name not in self._brokers:
                self._brokers[data.broker_name] = KnownBroker(data, found.nameserver_host)

    def _put_unknown(self, topic: str, known: _Known | None) -> None:
        """Record that no NameServer knows `topic`. Only a guessed route stays."""
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
