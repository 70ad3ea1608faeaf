"""What a client knows of routes: asked on demand, asked again from time to time."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ternmq_client.nameservers import FoundRoute, NameServers
from ternmq_client.partial_routes import completed
from ternmq_client.single_flight import SingleFlight
from ternmq_model.clock import Clock
from ternmq_model.errors import TernError, TopicNotFound
from ternmq_model.route import BrokerData, TopicRoute
from ternmq_runtime.service import OwnedTasks

logger = logging.getLogger(__name__)

NEW_TOPIC_QUEUES: Final = 4
"""Queues on each broker of a topic that a send creates.

Source: RocketMQ `defaultTopicQueueNums`.
"""

UNCERTAIN_REFRESH_MS: Final = 1_000
"""How often a route is asked again that is young, watched and unknown, guessed from the template,
lacks a master, or was found to be wrong: the true one may come any moment."""


LOSS_GRACE_MS: Final = 5_000
"""How long a route is kept that no NameServer tells in full any more, and that served until now;
and how long one is young that was not told before. By then brokers have registered again with
NameServers that have just started."""


@dataclass(frozen=True, slots=True)
class KnownBroker:
    """A broker name as the newest route tells it."""

    data: BrokerData
    nameserver_host: str
    """What "*" in its endpoints stands for."""


@dataclass(slots=True)
class _Known:
    """One topic. `route` is None while no NameServer knows it."""

    route: TopicRoute | None
    is_guessed: bool
    due_at_ms: int
    incomplete_since_ms: int | None = None
    """Since when no NameServer tells all of it."""

    is_doubted: bool = False
    """A broker's answer did not fit it."""

    young_until_ms: int = 0
    """Until when who told it may have started just now, and not know every broker."""


class RouteCache:
    """Routes by topic. A route that was told once is kept while no NameServer answers.

    Owned by one `ClientInstance` and touched only from its event loop.

    Args:
        nameservers: Who is asked.
        tasks: Owns the questions under way.
        clock: Only its monotonic time is read.
        refresh_s: Age at which a route is asked again.
    """

    def __init__(
        self, nameservers: NameServers, tasks: OwnedTasks, clock: Clock, *, refresh_s: float
    ) -> None:
        self._nameservers = nameservers
        self._clock = clock
        self._refresh_ms = int(refresh_s * 1000)
        self._asking = SingleFlight[str, TopicRoute](tasks)
        self._known: dict[str, _Known] = {}
        self._brokers: dict[str, KnownBroker] = {}
        self._doubted: set[tuple[str, int]] = set()
        """Members that could not be reached since a route last told of them."""
        self._watched: set[str] = set()
        self._listeners: list[Callable[[str], None]] = []
        self._is_answered = True

    @property
    def refresh_interval_s(self) -> float:
        """How often `refresh` should run."""
        return min(self._refresh_ms, UNCERTAIN_REFRESH_MS) / 1000

    def cached(self, topic: str) -> TopicRoute | None:
        """Return the route as it was last told; None when it is not known. Never asks."""
        known = self._known.get(topic)
        return None if known is None or known.is_guessed else known.route

    def find_broker(self, broker_name: str) -> KnownBroker | None:
        """Return where `broker_name` is, or None when no route has named it. Never asks."""
        return self._brokers.get(broker_name)

    async def route(self, topic: str) -> TopicRoute:
        """Return the route of `topic`, asking when it is not known.

        Cancelling is safe: the question goes on for others.

        Raises:
            TopicNotFound: No NameServer knows it.
            Unreachable: No NameServer answers; names each.
        """
        return self.cached(topic) or await self._ask(topic)

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
        due_at_ms = self._clock.monotonic_ms() + UNCERTAIN_REFRESH_MS
        self._known[topic] = _Known(guess, is_guessed=True, due_at_ms=due_at_ms)
        return guess

    def watch(self, topic: str) -> None:
        """Keep asking for `topic` although it is unknown: it may be created."""
        self._watched.add(topic)

    def unwatch(self, topic: str) -> None:
        """Take back `watch`."""
        self._watched.discard(topic)

    def expire(self, topic: str, *, is_doubted: bool = True) -> None:
        """Ask for `topic` at the next refresh.

        Args:
            topic: Which one.
            is_doubted: A broker's answer did not fit its route: what NameServers do not tell any
                more is gone.
        """
        if (known := self._known.get(topic)) is not None:
            known.due_at_ms = self._clock.monotonic_ms()
            known.is_doubted = known.is_doubted or is_doubted

    def expire_broker(self, broker_name: str) -> None:
        """Ask at the next refresh for the routes that name `broker_name`."""
        now_ms = self._clock.monotonic_ms()
        for known in self._known.values():
            if known.route is not None and known.route.broker(broker_name) is not None:
                known.due_at_ms = now_ms

    def doubt(self, broker_name: str, broker_id: int) -> None:
        """Ask for the routes of a broker whose member could not be reached.

        When no NameServer tells of it any more, it is gone.
        """
        self._doubted.add((broker_name, broker_id))
        self.expire_broker(broker_name)

    def trust(self, broker_name: str, broker_id: int) -> None:
        """Take back `doubt`: the member was reached."""
        self._doubted.discard((broker_name, broker_id))

    def add_listener(self, on_change: Callable[[str], None]) -> None:
        """Call `on_change` with the topic whenever a route has become another one."""
        self._listeners.append(on_change)

    async def refresh(self) -> bool:
        """Ask for every route that is due. The step of a job.

        When no NameServer tells them, all are kept, and asked again at the next step.
        """
        now_ms = self._clock.monotonic_ms()
        for topic in sorted(self._watched - self._known.keys()):
            self._known[topic] = _Known(None, is_guessed=False, due_at_ms=now_ms)
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
        before = None if known is None or known.is_guessed else known.route
        try:
            found = await self._nameservers.topic_route(topic)
        except TopicNotFound:
            kept = None if before is None else self._kept(topic, before, None)
            if kept is None:
                self._put_unknown(topic, known)
                raise
            return kept
        route = found.route
        if before is not None:
            # Who needs the route for the first time does not wait for all of them.
            for other in await self._nameservers.other_routes(topic, found):
                route = self._completed(route, other) or route
        kept = None if before is None else self._kept(topic, before, route)
        self._note_brokers(found, route if kept is None else kept)
        if kept is not None:
            return kept
        now_ms = self._clock.monotonic_ms()
        young_until_ms = now_ms + LOSS_GRACE_MS
        if known is not None and before is not None:
            young_until_ms = known.young_until_ms
        # A master that is away may return any moment.
        is_whole = all(data.master is not None for data in route.brokers)
        is_certain = is_whole and now_ms >= young_until_ms
        wait_ms = self._refresh_ms if is_certain else min(self._refresh_ms, UNCERTAIN_REFRESH_MS)
        self._known[topic] = _Known(
            route, is_guessed=False, due_at_ms=now_ms + wait_ms, young_until_ms=young_until_ms
        )
        if before != route:
            self._log_and_tell(topic, route)
        return route

    def _completed(self, found: TopicRoute | None, before: TopicRoute) -> TopicRoute | None:
        return completed(found, before, lambda name, number: (name, number) in self._doubted)

    def _kept(self, topic: str, before: TopicRoute, found: TopicRoute | None) -> TopicRoute | None:
        """Return the route to go on with where what is told lacks something; None = go by that.

        NameServers that have just started learn of every broker within about a second.
        """
        known = self._known.get(topic)
        if known is None or known.is_doubted:
            return None
        route = self._completed(found, before)
        if route is None or route is found:
            return None
        now_ms = self._clock.monotonic_ms()
        if known.incomplete_since_ms is None:
            known.incomplete_since_ms = now_ms
            logger.warning("route is kept that no nameserver tells in full topic=%s", topic)
        if now_ms - known.incomplete_since_ms >= LOSS_GRACE_MS:
            return None
        known.route, known.due_at_ms = route, now_ms + UNCERTAIN_REFRESH_MS
        if route != before:
            self._log_and_tell(topic, route)
        return route

    def _note_brokers(self, found: FoundRoute, route: TopicRoute) -> None:
        """Keep where brokers are; of those that were not told just now what is known already."""
        for data in route.brokers:
            is_told = found.route.broker(data.broker_name) is not None
            if is_told or data.broker_name not in self._brokers:
                self._brokers[data.broker_name] = KnownBroker(data, found.nameserver_host)

    def _put_unknown(self, topic: str, known: _Known | None) -> None:
        """Remember that nobody knows `topic`: a guess stays, a route that was told is gone."""
        due_at_ms = self._clock.monotonic_ms() + UNCERTAIN_REFRESH_MS
        if known is not None and known.is_guessed:
            known.due_at_ms = due_at_ms
            return
        if topic in self._watched:
            self._known[topic] = _Known(None, is_guessed=False, due_at_ms=due_at_ms)
        else:
            self._known.pop(topic, None)
        if known is not None and known.route is not None:
            logger.info("route gone topic=%s", topic)
            self._tell(topic)

    def _log_and_tell(self, topic: str, route: TopicRoute) -> None:
        logger.info("route topic=%s brokers=%s", topic, [data.broker_name for data in route.queues])
        self._tell(topic)

    def _tell(self, topic: str) -> None:
        for listener in tuple(self._listeners):
            listener(topic)
