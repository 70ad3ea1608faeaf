"""Use of a cluster in containers: its clients, its content, its faults."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.blocking_client import shared_loop_thread
from ternmq_model.address import Address, parse_address
from ternmq_model.errors import TernError, UsageError
from ternmq_model.stored_message import StoredMessage
from ternmq_remoting.environment import Environment, EnvironmentSource, EnvironmentUser
from ternmq_remoting.system_environment import system_environment
from ternmq_runtime.blocking_pool import BlockingPool
from ternmq_runtime.clock import SystemClock
from ternmq_testing.cluster.clients import OpenClients, place_outside
from ternmq_testing.cluster.factories import BlockingClientFactories, ClientFactories
from ternmq_testing.cluster.looking import leaks_of, matching
from ternmq_testing.cluster.remote_looking import RemoteLook
from ternmq_testing.cluster.wires import RedirectedNetwork
from ternmq_testing.containers.container_broker import ContainerBroker, no_attribute
from ternmq_testing.containers.service_container import STARTS_WITHIN_S

if TYPE_CHECKING:
    from ternmq_model.queue import MessageQueue

T = TypeVar("T")

_LOOK_S: Final = 0.1
_LINES_SHOWN: Final = 20


class ContainedCluster(BlockingClientFactories):
    """Base of what runs in containers: the methods of `BlockingCluster` that can exist.

    Any thread may use it. Time is the machine's, and faults are those of whole containers.
    """

    def __init__(self) -> None:
        self._address = ""
        self._brokers: dict[str, ContainerBroker] = {}
        self._finished: dict[str, dict[MessageQueue, int]] = {}
        self._clients = OpenClients()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Refuse what containers cannot do."""
            raise no_attribute(self, name)

    def get_nameserver(self) -> str:
        """Return the address of the NameServer, as this machine reaches it.

        Raises:
            UsageError: The containers have not started.
        """
        if not self._address:
            raise UsageError("the containers do not run: use them inside `with`, or call `start`")
        return self._address

    @property
    def nameserver(self) -> str:
        """Address of the NameServer. See `get_nameserver`."""
        return self.get_nameserver()

    @property
    def asynchronous(self) -> "AsyncContainers":
        """The cluster with `await`, for use on any event loop."""
        return AsyncContainers(self)

    @property
    def brokers(self) -> list[ContainerBroker]:
        """All brokers, masters before their slaves."""
        return list(self._brokers.values())

    def broker(self, name: str = "") -> ContainerBroker:
        """Return a broker; the first without a name."""
        self.get_nameserver()
        if not name:
            return self.brokers[0]
        found = self._brokers.get(name)
        if found is None:
            raise UsageError(f"no broker {name!r}: there are {', '.join(self._brokers)}")
        return found

    def environment(self, client: EnvironmentUser) -> AbstractAsyncContextManager[Environment]:
        """Return the environment of a client of this cluster, not entered: an `EnvironmentSource`.

        Raises:
            UsageError: The containers have not started.
        """
        return self._environment_of(
            client, parse_address(self.get_nameserver(), setting="nameserver")
        )

    @property
    def _source(self) -> EnvironmentSource:
        return self.environment

    @asynccontextmanager
    async def _environment_of(
        self, client: EnvironmentUser, nameserver: Address
    ) -> AsyncGenerator[Environment]:
        self._clients.open[client] = place_outside()
        try:
            async with system_environment() as env:
                yield replace(
                    env,
                    network=RedirectedNetwork(env.network, nameserver),
                    on_unanswered=self._clients.note_unanswered,
                )
        finally:
            del self._clients.open[client]

    def now(self) -> float:
        """Return the time of this machine, Unix seconds."""
        return SystemClock().wall_ms() / 1000

    def heal(self) -> None:
        """End all pauses. Crashed brokers stay down."""
        for broker in self.brokers:
            broker.heal()

    def messages(self, topic: str) -> list[StoredMessage]:
        """Return all messages of a topic at all brokers that answer, oldest first.

        A message that waits for its time, and one of an open transaction, is not there yet.
        """
        return self._looked(lambda look: look.messages(topic))

    def dead_letters(self, group: str) -> list[StoredMessage]:
        """Return the dead letters of a group, oldest first."""
        return self._looked(lambda look: look.dead_letters(group))

    def lag(self, group: str) -> int:
        """Return the number of messages that a group has not consumed, and of retries that are due.

        What consumers have finished and not committed counts as consumed since the last `settled`.
        """
        return sum(self._looked(lambda look: look.lags(group)).values())

    def expect(
        self, topic: str, *, count: int | None = None, where: str = ""
    ) -> list[StoredMessage]:
        """Return the messages of a topic that match, and check their number. See `Cluster.expect`.

        Raises:
            AssertionError: There are more or fewer; it lists what was found.
        """
        __tracebackhide__ = True
        return matching(topic, self.messages(topic), count, where, self._hints)

    def _hints(self) -> list[str]:
        down = [each.name for each in self.brokers if not each.is_running]
        return [f"{name} does not run: its messages are not counted" for name in down]

    def settled(self, *, timeout_s: float = 10.0) -> None:
        """Wait until every group with members has caught up, and nothing new was stored meanwhile.

        What waits for its time (delays, retries) is not awaited.

        Raises:
            AssertionError: The cluster did not settle within `timeout_s`; names the groups behind.
        """
        self._looked(lambda look: look.settled(timeout_s))

    def report(self) -> str:
        """Return topics, lags and dead letters as a text."""
        return self._looked(lambda look: look.report())

    def leaks(self, check: str = "fail") -> list[str]:
        """Return what a test has left behind, as sentences. See `Cluster.leaks`.

        Raises:
            UsageError: `check` is none of the words.
        """
        taken = dict(self._clients.unanswered)
        return leaks_of(
            check,
            self._clients.described(),
            lambda: self._looked(lambda look: look.unanswered(taken)) if taken else [],
        )

    def _looked(self, look: Callable[[RemoteLook], Awaitable[T]]) -> T:
        """Return the result of a look, on the loop of all blocking clients."""
        return shared_loop_thread().run(self.look(look))

    async def look(self, look: Callable[[RemoteLook], Awaitable[T]]) -> T:
        """Return the result of a look, on the running loop."""
        async with AdminClient(env=self.environment) as admin:
            return await look(RemoteLook(admin, self._finished, self._clients.consumed_topics))

    def _until_all_serve(self, brokers: Sequence[ContainerBroker]) -> None:
        """Wait until brokers are registered, and answer.

        Raises:
            TimeoutError: They do not within 120 s; the text has the ends of their logs.
        """

        async def serve(look: RemoteLook) -> None:
            loop = asyncio.get_running_loop()
            until_s = loop.time() + STARTS_WITHIN_S
            while not await _all_serve(look.admin, brokers):
                if loop.time() >= until_s:
                    raise TimeoutError(f"brokers do not serve within {STARTS_WITHIN_S} s")
                await asyncio.sleep(_LOOK_S)

        try:
            self._looked(serve)
        except TimeoutError as error:
            for broker in brokers:
                _, log = broker.container.get_logs()
                lines = log.decode(errors="replace").splitlines()
                error.add_note("\n".join([f"{broker.name}:", *lines[-_LINES_SHOWN:]]))
            raise


async def _all_serve(admin: AdminClient, brokers: Sequence[ContainerBroker]) -> bool:
    """Tell whether brokers are registered and answer, and the slaves among them follow."""
    try:
        views = await admin.member_views()
    except TernError:
        return False
    answering = [view for view in views if not view.problem]
    serving = {(view.data.broker_name, view.member.broker_id) for view in answering}
    masters = {view.data.broker_name: view.status for view in answering if view.is_master}
    for broker in brokers:
        if (broker.broker_name, broker.broker_id) not in serving:
            return False
        master = masters.get(broker.broker_name)
        if broker.broker_id and master is not None:
            following = {each.broker_id for each in master.followers if each.is_in_sync}
            if broker.broker_id not in following:
                return False
    return True


class AsyncContainers(ClientFactories):
    """A cluster in containers with the methods of `Cluster`, for use on any event loop.

    Methods with `await` do not block the loop. Looks without it (`messages`, `expect`) block it for
    the moment that they take.
    """

    def __init__(self, containers: ContainedCluster) -> None:
        self._containers = containers

    def __getattr__(self, name: str) -> Any:
        """Return what needs no `await`."""
        return getattr(self._containers, name)

    def environment(self, client: EnvironmentUser) -> AbstractAsyncContextManager[Environment]:
        """Return the environment of a client. See `ContainedCluster.environment`."""
        return self._containers.environment(client)

    @property
    def nameserver(self) -> str:
        """Address of the NameServer. See `ContainedCluster.get_nameserver`."""
        return self._containers.nameserver

    @property
    def brokers(self) -> "list[AsyncContainerBroker]":
        """All brokers, masters before their slaves."""
        return [AsyncContainerBroker(each) for each in self._containers.brokers]

    def broker(self, name: str = "") -> "AsyncContainerBroker":
        """Return a broker; the first without a name."""
        return AsyncContainerBroker(self._containers.broker(name))

    async def settled(self, *, timeout_s: float = 10.0) -> None:
        """Wait until every group has caught up. See `ContainedCluster.settled`."""
        await self._containers.look(lambda look: look.settled(timeout_s))


class AsyncContainerBroker:
    """A broker in a container with the methods of `BrokerHandle`."""

    def __init__(self, broker: ContainerBroker) -> None:
        self._broker = broker

    def __getattr__(self, name: str) -> Any:
        """Return what needs no `await`."""
        return getattr(self._broker, name)

    async def start(self) -> None:
        """Start the broker again. See `ContainerBroker.start`."""
        await _beside_the_loop(self._broker.start)

    async def stop(self) -> None:
        """Let the broker leave in order. See `ContainerBroker.stop`."""
        await _beside_the_loop(self._broker.stop)

    async def crash(self) -> None:
        """End the broker at once. See `ContainerBroker.crash`."""
        await _beside_the_loop(self._broker.crash)

    async def restart(self) -> None:
        """Start the broker again. See `ContainerBroker.restart`."""
        await _beside_the_loop(self._broker.restart)


async def _beside_the_loop(function: Callable[[], None]) -> None:
    blocking = BlockingPool()
    try:
        await blocking.run(function)
    finally:
        await blocking.close()
