"""What producers and consumers share: routes, connections, sessions, and the tasks behind them."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack

from ternmq_client.config import ClientConfig
from ternmq_client.nameservers import NameServers
from ternmq_client.retry import RetryPolicy
from ternmq_client.route_cache import RouteCache
from ternmq_client.session import Sessions
from ternmq_client.single_flight import SingleFlight
from ternmq_model.address import resolve_addresses
from ternmq_model.errors import ClosedError, TopicNotFound, Unreachable
from ternmq_model.route import MASTER_ID
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Connection, Identity
from ternmq_remoting.system import system_environment
from ternmq_runtime.lifecycle import Lifecycle
from ternmq_runtime.service import Job, JobRunner, OwnedTasks

logger = logging.getLogger(__name__)

SESSION_DELAY_FACTOR_MAX = 8
"""Ceiling of the wait between two attempts to open a Session, in terms of the first one."""


class ClientInstance(Lifecycle):
    """One client of a cluster, between `async with` and its end.

    Entering asks nobody anything: NameServers and brokers are dialled when they are first needed.
    Leaving says goodbye to the brokers, then ends every task and connection. A block must be
    entered and left by one and the same task; a task of the client that crashes cancels the block.

    Owns everything it gives out. Touch it only from the event loop that entered it.

    Args:
        config: Where the services are, and the client's patience.
        env: The seams. None = the real world, opened and closed with the client.
    """

    def __init__(
        self, config: ClientConfig | None = None, *, env: Environment | None = None
    ) -> None:
        self.config = config or ClientConfig()
        self._given_env = env
        self._opened: _Opened | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        if self._opened is not None:
            raise ClosedError("the client is already open")
        env = self._given_env
        if env is None:
            env = await stack.enter_async_context(system_environment())
        tasks = OwnedTasks()
        self._opened = opened = _Opened(self, env, tasks)
        stack.callback(self._forget)
        stack.push_async_callback(opened.close_connections)
        await stack.enter_async_context(tasks)
        await stack.enter_async_context(opened.jobs)
        stack.push_async_callback(opened.sessions.close)

    def _forget(self) -> None:
        self._opened = None

    @property
    def env(self) -> Environment:
        """Clock, network, randomness, blocking calls."""
        return self._parts.env

    @property
    def client_id(self) -> str:
        """`host@instance`, by which brokers know this client."""
        return self._parts.client_id

    @property
    def tasks(self) -> OwnedTasks:
        """Where producers and consumers spawn theirs; they end with the client."""
        return self._parts.tasks

    @property
    def nameservers(self) -> NameServers:
        """For questions other than routes."""
        return self._parts.nameservers

    @property
    def routes(self) -> RouteCache:
        """Routes by topic."""
        return self._parts.routes

    @property
    def sessions(self) -> Sessions:
        """Who brokers think is here."""
        return self._parts.sessions

    async def broker(self, broker_name: str, broker_id: int = MASTER_ID) -> Connection:
        """Return the connection to a broker that a route has named, dialling it at need.

        The broker has proved its name; the connection is kept until `forget`.

        Raises:
            Unreachable: No route names it, or nobody who proves to be it answers.
        """
        opened = self._parts
        key = (broker_name, broker_id)
        kept = opened.connections.get(key)
        return kept or await opened.dialling.run(key, lambda: opened.dial(broker_name, broker_id))

    def has_member(self, broker_name: str, broker_id: int) -> bool:
        """Tell whether a route has named that member of a broker name. Asks nobody."""
        known = self._parts.routes.find_broker(broker_name)
        return known is not None and known.data.member(broker_id) is not None

    def forget(self, broker_name: str, connection: Connection, broker_id: int = MASTER_ID) -> None:
        """Dial `broker_name` anew next time, since `connection` has failed.

        The connection is closed: what else runs over it ends, as it was about to. Safe to repeat,
        and with a connection that was replaced already.
        """
        opened = self._parts
        key = (broker_name, broker_id)
        if opened.connections.get(key) is connection:
            del opened.connections[key]
            opened.tasks.spawn(connection.close(), f"close {connection.address}")

    def ask_route_again(self, topic: str) -> None:
        """Ask for the route of `topic` now, in the background: a broker's answer did not fit it."""
        opened = self._parts
        opened.routes.expire(topic)
        opened.jobs.wake("routes")

    async def join_group(
        self, group: groups.ConsumerGroup, on_members_changed: Callable[[], None]
    ) -> None:
        """Become a member of `group` at the master of every broker that serves its topics.

        Returns when each has been greeted or could not be; from then on Sessions follow the
        routes by themselves. A topic that does not exist yet is waited for in the background.

        Args:
            group: With its subscriptions; replaces what was told of the group before.
            on_members_changed: Called when members may have come or gone. Must not block.

        Raises:
            RefusedError: A broker refuses this client; most likely another live one has its id.
            Unreachable: No NameServer answers.
        """
        opened = self._parts
        for subscription in group.subscriptions:
            opened.routes.watch(subscription.topic)
        opened.sessions.put_consumer(group, on_members_changed)
        for subscription in group.subscriptions:
            await opened.find_route(subscription.topic)
        opened.attend_consumed_topics()
        await opened.sessions.attempted(timeout_s=self.config.request_timeout_s)

    def leave_group(self, group: str) -> None:
        """Take back `join_group`: brokers hear of it at once, and the group's others take over."""
        opened = self._parts
        before = opened.sessions.consumer_topics
        opened.sessions.remove_consumer(group)
        for topic in before - opened.sessions.consumer_topics:
            opened.routes.unwatch(topic)

    @property
    def _parts(self) -> "_Opened":
        if self._opened is None:
            raise ClosedError("the client is not open: use it inside `async with`")
        return self._opened


class _Opened:
    """The parts of a client that is open. Owned by its `ClientInstance`."""

    def __init__(self, client: ClientInstance, env: Environment, tasks: OwnedTasks) -> None:
        config = client.config
        self.env = env
        self.tasks = tasks
        self.client_id = config.client_id(now_ms=env.clock.wall_ms(), random=env.random)
        self._connect_timeout_s = config.connect_timeout_s
        self.connections: dict[tuple[str, int], Connection] = {}
        self.dialling = SingleFlight[tuple[str, int], Connection](tasks)
        self.nameservers = NameServers(
            env,
            config.addresses(),
            tasks,
            connect_timeout_s=config.connect_timeout_s,
            request_timeout_s=config.request_timeout_s,
        )
        self.routes = RouteCache(
            self.nameservers, tasks, env.clock, refresh_s=config.route_refresh_s
        )
        self.sessions = Sessions(
            _SessionMember(client, self),
            tasks,
            heartbeat_s=config.heartbeat_s,
            answer_timeout_s=config.request_timeout_s,
            retry=RetryPolicy(
                delay_s_first=config.session_retry_s,
                delay_s_max=config.session_retry_s * SESSION_DELAY_FACTOR_MAX,
            ),
        )
        self._consumed_at: dict[str, list[str]] = {}
        """The masters of each consumed topic, as its route last named them."""
        self.jobs = JobRunner(
            Job(name="routes", interval_s=self.routes.refresh_interval_s, step=self._refresh)
        )

    async def dial(self, broker_name: str, broker_id: int) -> Connection:
        known = self.routes.find_broker(broker_name)
        member = None if known is None else known.data.member(broker_id)
        if known is None or member is None:
            self.expire(broker_name)
            raise Unreachable(f"broker {broker_name}: no route tells where member {broker_id} is")
        expect = Identity(known.data.cluster, broker_name, broker_id, member.epoch)
        addresses = resolve_addresses(member.endpoints, nameserver_host=known.nameserver_host)
        try:
            connection = await self.env.network.connect(
                addresses, expect=expect, timeout_s=self._connect_timeout_s
            )
        except Unreachable as error:
            self.expire(broker_name)
            raise Unreachable(f"broker {broker_name}: {error}") from error
        self.connections[broker_name, broker_id] = connection
        logger.info("broker connected broker=%s address=%s", broker_name, connection.address)
        return connection

    def expire(self, broker_name: str) -> None:
        """Ask now where `broker_name` is: it is not where it was."""
        self.routes.expire_broker(broker_name)
        self.jobs.wake("routes")

    async def find_route(self, topic: str) -> None:
        """Have the route of `topic` in the cache, if there is one."""
        try:
            await self.routes.route(topic)
        except TopicNotFound as error:
            logger.info("topic is waited for topic=%s error=%s", topic, error)

    def attend_consumed_topics(self) -> None:
        """Have Sessions with the masters of every consumed topic.

        Where a route is gone it stays with those that it named last: a NameServer that has just
        started knows nothing yet, and who says goodbye loses its locks while it goes on consuming.
        """
        topics = self.sessions.consumer_topics
        for topic in topics:
            if (route := self.routes.cached(topic)) is not None:
                self._consumed_at[topic] = [
                    data.broker_name for data in route.brokers if data.master is not None
                ]
        self._consumed_at = {
            topic: names for topic, names in self._consumed_at.items() if topic in topics
        }
        self.sessions.keep_to(name for names in self._consumed_at.values() for name in names)

    async def close_connections(self) -> None:
        await self.nameservers.close()
        connections, self.connections = self.connections, {}
        if connections:
            await asyncio.gather(*(connection.close() for connection in connections.values()))

    async def _refresh(self) -> bool:
        await self.routes.refresh()
        self.attend_consumed_topics()
        return False


class _SessionMember:
    """The client as its Sessions see it, also while it is being opened."""

    def __init__(self, client: ClientInstance, opened: _Opened) -> None:
        self._client = client
        self._opened = opened

    @property
    def env(self) -> Environment:
        return self._opened.env

    @property
    def client_id(self) -> str:
        return self._opened.client_id

    async def broker(self, broker_name: str, broker_id: int = MASTER_ID) -> Connection:
        return await self._client.broker(broker_name, broker_id)

    def forget(self, broker_name: str, connection: Connection) -> None:
        self._client.forget(broker_name, connection)
