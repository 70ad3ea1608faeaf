"""Client instance: routes, connections and Sessions, and the tasks behind them."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Final

from ternmq_client.broker_session import BrokerSessions
from ternmq_client.config import ClientConfig
from ternmq_client.outage_log import OutageLog
from ternmq_client.read_replicas import ReadReplicas
from ternmq_client.retry_policy import RetryPolicy
from ternmq_client.routes.nameservers import NameServers
from ternmq_client.routes.route_cache import RouteCache
from ternmq_client.single_flight import SingleFlight
from ternmq_client.telemetry.client_telemetry import ClientTelemetry
from ternmq_model.address import resolve_addresses
from ternmq_model.errors import ClosedError, TernError, TopicNotFound, Unreachable, UsageError
from ternmq_model.route import MASTER_ID, TopicRoute
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.environment import Environment, EnvironmentSource
from ternmq_remoting.rpc import Connection, Identity
from ternmq_remoting.service_methods import DESCRIBE_TOPIC
from ternmq_remoting.system_environment import client_environment
from ternmq_runtime.lifecycle import Lifecycle
from ternmq_runtime.service import Job, JobRunner, OwnedTasks

logger = logging.getLogger(__name__)

MASTER_RETRY_S: Final = 1.0
"""Interval between attempts to reach a master while its slave serves readers, s."""

CALLS_WAIT_S: Final = 1.0
"""Time that leaving a client waits for functions of the application in its threads, such as the
check of a transaction, s. Their results are ignored."""

_DENIAL_TIMEOUT_S: Final = 1.0
"""Timeout of the query of a broker for a topic that no NameServer knows any more, s."""

SESSION_DELAY_FACTOR_MAX = 8
"""Ceiling of the wait between two attempts to open a Session, as a multiple of the first one."""


class ClientInstance(Lifecycle):
    """Client of a cluster, open inside `async with`.

    Entering sends no request: connections to services are opened when they are needed. Leaving
    sends goodbyes to the brokers, and then ends every task and connection. One task must enter and
    leave the block. A crashed task of the client cancels the block. The client owns all objects
    that its properties return. Use it only on the event loop that entered it.

    Args:
        config: Settings of the client.
        env: Clock, network and blocking calls. None = those of the process.

    Attributes:
        telemetry: Telemetry of the open client; None = the settings have none.
    """

    def __init__(
        self,
        config: ClientConfig | None = None,
        *,
        env: Environment | EnvironmentSource | None = None,
    ) -> None:
        self.config = config or ClientConfig()
        self._given_env = env
        self.disowned = ""
        self.telemetry: ClientTelemetry | None = None
        self._opened: _Opened | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        if self._opened is not None:
            raise ClosedError("the client is already open")
        env = await stack.enter_async_context(
            client_environment(
                self._given_env, self, self.config.credentials, calls_wait_s=CALLS_WAIT_S
            )
        )
        if (telemetry := self.config.telemetry) is not None:
            now_s = asyncio.get_running_loop().time
            self.telemetry = stack.enter_context(ClientTelemetry(telemetry, now_s, env.random))
        tasks = OwnedTasks()
        self._opened = opened = _Opened(self.config, env, tasks)
        stack.callback(setattr, self, "_opened", None)
        stack.push_async_callback(opened.close_connections)
        await stack.enter_async_context(tasks)
        await stack.enter_async_context(opened.jobs)
        stack.push_async_callback(opened.sessions.close)

    @property
    def env(self) -> Environment:
        """Clock, network, randomness, blocking calls of the client."""
        return self._components.env

    @property
    def client_id(self) -> str:
        """Id of the client at brokers, `host@instance`."""
        return self._components.client_id

    @property
    def tasks(self) -> OwnedTasks:
        """Owner of the tasks of the client, its producers and consumers."""
        return self._components.tasks

    @property
    def nameservers(self) -> NameServers:
        """NameServers of the client, for requests other than routes."""
        return self._components.nameservers

    @property
    def routes(self) -> RouteCache:
        """Routes by topic."""
        return self._components.routes

    @property
    def sessions(self) -> BrokerSessions:
        """Sessions of the client with brokers."""
        return self._components.sessions

    @property
    def consumed_topics(self) -> dict[str, frozenset[str]]:
        """Topics of each consumer group of the client; none = not open. Any thread may read it."""
        return {} if self._opened is None else self._opened.sessions.consumed_topics

    @property
    def roles(self) -> list[str]:
        """Roles of the client, such as `producer of shop`; none = not open. Any thread may read."""
        return [] if self._opened is None else self._opened.sessions.roles

    async def broker(self, broker_name: str, broker_id: int = MASTER_ID) -> Connection:
        """Return the connection to a broker in a route, and open it if needed.

        The identity of the broker is checked. The connection lasts until `forget`.

        Raises:
            Unreachable: No route names the broker, or no member with its identity answers.
        """
        return await self._components.broker(broker_name, broker_id)

    def reaches(self, broker_name: str) -> bool | None:
        """Return whether the master of a broker name can be reached, without a request.

        True = there is a connection; False = the last attempt to connect failed; None = there was
        no attempt since the end of the last connection.
        """
        opened = self._components
        if (broker_name, MASTER_ID) in opened.connections:
            return True
        return False if broker_name in opened.masters_missed else None

    async def reader(self, broker_name: str) -> Connection:
        """Return the connection to the member that serves readers of a broker name.

        The member is the master, or a slave while the master cannot be reached: from the first
        failed attempt to the next successful one. An attempt is made each second.

        Raises:
            Unreachable: No route names the broker, or no member answers.
        """
        first = self.member_to_ask(broker_name)
        try:
            return await self.broker(broker_name, first)
        except Unreachable:
            second = self.member_to_ask(broker_name)
            if second == first:
                raise
            return await self.broker(broker_name, second)

    def member_to_ask(self, broker_name: str) -> int:
        """Return the id of the member that `reader` tries first, without a request."""
        return self._components.member_to_ask(broker_name)

    def on_reader_moved(self, listener: Callable[[str, int], None]) -> None:
        """Call `listener` with a broker name and its new reading member, at each change.

        The listener must not block. The new member may not know requests to the old one.
        """
        self._components.moved_listeners.append(listener)

    def epoch(self, broker_name: str) -> int:
        """Return the newest known epoch of a broker name's members; 0 = none."""
        return self._components.read_replicas.epoch(broker_name)

    def members_to_list(self, route: TopicRoute) -> list[tuple[str, int]]:
        """Return the brokers that list the members of a group, as names and ids, best first.

        Brokers that have just started come last, since they do not know all members yet. Otherwise
        the order is that of the route, so that all clients use one list if possible.
        """
        return self._components.members_to_list(route)

    def session_since_ms(self, broker_name: str, broker_id: int) -> tuple[int | None, bool]:
        """Return the begin of the Session with a member, and whether it knows other members too.

        The begin is in monotonic ms; None = no Session.
        """
        sessions, now_ms = self._components.sessions, self.env.clock.monotonic_ms()
        return (
            sessions.open_since_ms(broker_name, broker_id),
            sessions.is_settled(broker_name, broker_id, now_ms=now_ms),
        )

    def members(self, broker_name: str) -> list[int]:
        """Return the ids of the members in the route, sorted, without a request."""
        return self._components.members(broker_name)

    def forget(self, broker_name: str, connection: Connection, broker_id: int = MASTER_ID) -> None:
        """Drop the failed `connection`. The next request opens a new one.

        The connection is closed with its other calls. Safe to repeat, also for a connection that
        has been replaced.
        """
        self._components.forget(broker_name, connection, broker_id)

    def ask_route_again(self, topic: str) -> None:
        """Refresh the route of `topic` soon, in the background. See `RouteCache.expire`."""
        opened = self._components
        opened.routes.expire(topic)
        opened.refreshing.wake()

    def look_for(self, broker_name: str) -> None:
        """Refresh the route of `broker_name` soon, since it does not fit the broker's behaviour."""
        self._components.look_for(broker_name)

    async def join_group(
        self, group: groups.ConsumerGroup, on_members_changed: Callable[[], None]
    ) -> None:
        """Join `group` at every broker that serves its topics, masters and slaves.

        The call returns after the first attempt of each Session. Later Sessions follow the routes.
        A topic that does not exist yet is awaited in the background.

        Args:
            group: Group with its subscriptions, in place of an earlier one.
            on_members_changed: Called when members may have come or gone. It must not block.

        Raises:
            RefusedError: A broker refuses this client, mostly because a live client has its id.
            Unreachable: No NameServer answers.
        """
        opened = self._components
        for subscription in group.subscriptions:
            opened.routes.watch(subscription.topic)
        opened.sessions.put_consumer(group, on_members_changed)
        for subscription in group.subscriptions:
            await opened.find_route(subscription.topic)
        opened.attend_consumed_topics()
        await opened.sessions.attempted(timeout_s=self.config.request_timeout_s)

    def leave_group(self, group: str) -> None:
        """Leave `group`. The brokers know it at once, and other members take over."""
        opened = self._components
        before = opened.sessions.consumer_topics
        opened.sessions.remove_consumer(group)
        for topic in before - opened.sessions.consumer_topics:
            opened.routes.unwatch(topic)

    def check_owned(self) -> None:
        """Check that the client's environment is that of the process, or its own.

        Raises:
            UsageError: A test has installed another one since the client was opened.
        """
        if self.disowned:
            raise UsageError(self.disowned)

    @property
    def _components(self) -> "_Opened":
        if self._opened is None:
            raise ClosedError("the client is not open: use it inside `async with`")
        self._check_owner()
        return self._opened


class _Opened:
    """Parts of an open client. Owned by its `ClientInstance`."""

    def __init__(self, config: ClientConfig, env: Environment, tasks: OwnedTasks) -> None:
        self.env = env
        self.tasks = tasks
        self.client_id = config.client_id(now_ms=env.clock.wall_ms(), random=env.random)
        self._connect_timeout_s = config.connect_timeout_s
        self.connections: dict[tuple[str, int], Connection] = {}
        self.masters_missed: set[str] = set()
        """Broker names with a failed last attempt to reach the master."""
        self.read_replicas = ReadReplicas()
        self.outage_log = OutageLog(env.clock, config.addresses())
        self.moved_listeners: list[Callable[[str, int], None]] = []
        self.dialling = SingleFlight[tuple[str, int], Connection](tasks)
        self.nameservers = NameServers(
            env,
            config.addresses(),
            tasks,
            connect_timeout_s=config.connect_timeout_s,
            request_timeout_s=config.request_timeout_s,
        )
        self.routes = RouteCache(
            self.nameservers,
            tasks,
            env.clock,
            env.random,
            refresh_s=config.route_refresh_s,
            has_topic=self._has_topic,
        )
        self.sessions = BrokerSessions(
            self,
            tasks,
            heartbeat_s=config.heartbeat_s,
            answer_timeout_s=config.request_timeout_s,
            retry=RetryPolicy(
                delay_s_first=config.session_retry_s,
                delay_s_max=config.session_retry_s * SESSION_DELAY_FACTOR_MAX,
            ),
        )
        self._consumed_at: dict[str, list[tuple[str, int]]] = {}
        """Members that serve each consumed topic, by its last route."""
        self.refreshing = Job(name="routes", interval_s=self.routes.pause_s, step=self._refresh)
        self.jobs = JobRunner(
            self.refreshing,
            Job(name="masters", interval_s=MASTER_RETRY_S, step=self._look_for_masters),
            timers=env.timers,
        )

    async def broker(self, broker_name: str, broker_id: int = MASTER_ID) -> Connection:
        key = (broker_name, broker_id)
        kept = self.connections.get(key)
        return kept or await self.dialling.run(key, lambda: self._dial(broker_name, broker_id))

    async def _dial(self, broker_name: str, broker_id: int) -> Connection:
        known = self.routes.find_broker(broker_name)
        member = None if known is None else known.data.member(broker_id)
        if known is None or member is None:
            self._missed(broker_name, broker_id)
            raise Unreachable(
                f"broker {broker_name}: no route has the address of member {broker_id}"
            )
        expect = Identity(known.data.cluster, broker_name, broker_id, member.epoch)
        addresses = resolve_addresses(member.endpoints, nameserver_host=known.nameserver_host)
        try:
            connection = await self.env.network.connect(
                addresses, expect=expect, timeout_s=self._connect_timeout_s
            )
        except Unreachable as error:
            if broker_id == MASTER_ID:
                self.outage_log.note(broker_name, error)
            self._missed(broker_name, broker_id)
            raise Unreachable(f"broker {broker_name}: {error}") from error
        self.connections[broker_name, broker_id] = connection
        if broker_id == MASTER_ID:
            self.masters_missed.discard(broker_name)
        epoch = 0 if connection.identity is None else connection.identity.epoch
        self.read_replicas.reached(broker_name, broker_id, epoch)
        self.routes.trust(broker_name, broker_id)
        self.sessions.reach(broker_name, broker_id)
        logger.info(
            "broker connected broker=%s broker_id=%s epoch=%s address=%s",
            broker_name,
            broker_id,
            epoch,
            connection.address,
        )
        self._choose_again(broker_name)
        return connection

    def members(self, broker_name: str) -> list[int]:
        known = self.routes.find_broker(broker_name)
        return [] if known is None else [member.broker_id for member in known.data.members]

    def member_to_ask(self, broker_name: str) -> int:
        members = self.members(broker_name)
        # A broker that is in no route any more, or not yet again, may still run.
        members += [broker_id for name, broker_id in self.connections if name == broker_name]
        before = self.read_replicas.asked(broker_name)
        chosen = self.read_replicas.choose(broker_name, members)
        if before not in (None, chosen):
            moved = (broker_name, chosen, before)
            logger.info("consumers switch broker=%s broker_id=%s before=%s", *moved)
            for listener in tuple(self.moved_listeners):
                listener(broker_name, chosen)
        return chosen

    def members_to_list(self, route: TopicRoute) -> list[tuple[str, int]]:
        now_ms = self.env.clock.monotonic_ms()
        members = [
            (data.broker_name, member.broker_id)
            for data in route.brokers
            for member in data.members
        ]
        return sorted(members, key=lambda key: not self.sessions.is_settled(*key, now_ms=now_ms))

    def _choose_again(self, broker_name: str) -> None:
        if self.read_replicas.asked(broker_name) is not None:
            self.member_to_ask(broker_name)

    def _missed(self, broker_name: str, broker_id: int) -> None:
        """Record that a member cannot be reached, and refresh its routes now."""
        self.read_replicas.missed(broker_name, broker_id)
        if broker_id == MASTER_ID:
            self.masters_missed.add(broker_name)
        self.routes.suspect(broker_name, broker_id)
        self.refreshing.wake()
        self._choose_again(broker_name)

    async def _has_topic(self, topic: str, broker_name: str) -> bool | None:
        """Return whether the master of a broker name has `topic`. See `RouteCache`."""
        try:
            connection = await self.broker(broker_name)
            request = admin.DescribeTopicRequest(topic=topic)
            await connection.call(DESCRIBE_TOPIC, request, timeout_s=_DENIAL_TIMEOUT_S)
        except TopicNotFound:
            return False
        except TernError:
            return None
        return True

    async def find_route(self, topic: str) -> None:
        try:
            await self.routes.route(topic)
        except TopicNotFound as error:
            logger.info("waiting for a topic topic=%s err=%s", topic, error)

    def attend_consumed_topics(self) -> None:
        """Keep Sessions with every member that serves a consumed topic.

        A topic without a route keeps the members of its last route: a NameServer that has just
        started knows no topic, and a goodbye would lose the locks of a consumer that goes on.
        """
        topics = self.sessions.consumer_topics
        for topic in topics:
            if (route := self.routes.cached(topic)) is not None:
                self._consumed_at[topic] = [
                    (data.broker_name, broker_id)
                    for data in route.brokers
                    for broker_id in self.members(data.broker_name)
                ]
        self._consumed_at = {
            topic: members for topic, members in self._consumed_at.items() if topic in topics
        }
        self.sessions.keep_to(key for members in self._consumed_at.values() for key in members)

    async def close_connections(self) -> None:
        self.outage_log.close()
        await self.nameservers.close()
        connections, self.connections = self.connections, {}
        if connections:
            await asyncio.gather(*(connection.close() for connection in connections.values()))

    async def _refresh(self) -> bool:
        await self.routes.refresh()
        self._leave_replaced()
        self.attend_consumed_topics()
        return False

    def _leave_replaced(self) -> None:
        """Close connections to members that another process has replaced, with a newer epoch.

        A replaced member may not know it yet, and a stream to it would go on.
        """
        for key, connection in list(self.connections.items()):
            broker_name, broker_id = key
            known = self.routes.find_broker(broker_name)
            member = None if known is None else known.data.member(broker_id)
            ours = connection.identity
            if known is None or member is None or ours is None or member.epoch <= ours.epoch:
                continue
            places = resolve_addresses(member.endpoints, nameserver_host=known.nameserver_host)
            if connection.address not in places:
                logger.info("member replaced broker=%s broker_id=%s epoch=%s", *key, member.epoch)
                self.forget(broker_name, connection, broker_id)

    def forget(self, broker_name: str, connection: Connection, broker_id: int = MASTER_ID) -> None:
        key = (broker_name, broker_id)
        if self.connections.get(key) is connection:
            del self.connections[key]
            self.tasks.spawn(connection.close(), f"close {connection.address}")
            self.outage_log.note(broker_name, f"{connection.address}: the connection ended")
            self.look_for(broker_name)

    def look_for(self, broker_name: str) -> None:
        self.routes.expire_broker(broker_name)
        self.refreshing.wake()

    async def _look_for_masters(self) -> bool:
        away = self.read_replicas.masters_away
        for broker_name in away:
            self.routes.expire_broker(broker_name)
        await asyncio.gather(*(self._look_for_master(broker_name) for broker_name in away))
        return False

    async def _look_for_master(self, broker_name: str) -> None:
        key = (broker_name, MASTER_ID)
        known = self.routes.find_broker(broker_name)
        if known is not None and known.data.master is not None:
            with suppress(TernError):
                await self.dialling.run(key, lambda: self._dial(*key))
