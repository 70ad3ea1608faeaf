"""Base of the administrative calls: connections to NameServers and brokers, and fan-out to many."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar, cast

from ternmq_client.admin.broker_names import (
    as_dialled,
    by_name_and_address,
    no_such_broker,
)
from ternmq_client.admin.descriptions import UnreachableBroker, require_all
from ternmq_client.config import ClientConfig, resolve_client
from ternmq_client.routes.nameservers import NameServers
from ternmq_model.address import resolve_addresses
from ternmq_model.errors import (
    RefusedError,
    TernError,
    TopicNotFound,
    Unreachable,
    UsageError,
    refusal,
)
from ternmq_model.names import check_topic
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import BrokerData, BrokerMember
from ternmq_remoting.environment import Environment, EnvironmentSource
from ternmq_remoting.rpc import Connection, Identity, Rep, Req, UnaryRpc
from ternmq_remoting.system_environment import client_environment
from ternmq_runtime.lifecycle import Lifecycle
from ternmq_runtime.service import OwnedTasks

T = TypeVar("T")
U = TypeVar("U")

_DIALS_MAX: Final = 3
"""Connection timeouts that one broker name may cost, however many of its members are silent."""

_CONCURRENT_MAX: Final = 128
"""Brokers dialled at the same time: each registered address costs a socket and up to a second."""

_DIALLING_S: Final = 10.0
"""Time to connect to all brokers that get one question, s. Anybody can register thousands of
addresses where no broker runs."""


@dataclass(frozen=True, slots=True)
class BrokerAnswers(Generic[T]):
    """Answers of a cluster's brokers to one question.

    Attributes:
        by_broker: Broker names and their answers, sorted by cluster and name.
        unknown: Refusals of brokers that do not have the requested object.
        unreachable: Brokers that gave no answer.
    """

    by_broker: tuple[tuple[str, T], ...]
    unknown: tuple[RefusedError, ...]
    unreachable: tuple[UnreachableBroker, ...]

    @property
    def answers(self) -> list[T]:
        """Answers without the brokers' names."""
        return [answer for _, answer in self.by_broker]


@dataclass(slots=True)
class _SharedConnection:
    """Connection to one member, shared by concurrent calls."""

    dialling: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    connection: Connection | None = None
    failure: TernError | None = None
    """Error of the dial, which every call that waited for the connection raises."""


class AdminCalls(Lifecycle):
    """Connections to NameServers and brokers, open between `async with` and its end.

    Every method reads the routes from a NameServer, connects to the members that it needs and
    disconnects, so nothing is cached. Methods that need one member at the same time share a
    connection. Changes go to masters alone; reads are answered by a slave too, while its master is
    away.

    Args:
        config: Old name of `client`, with a deprecation warning.
        nameserver: `HOST:PORT`, several separated by `;` or `,`, or a sequence of these. None = the
            one in `client`.
        client: Settings of the connections.
        env: Clock, network and threads. None = the operating system's, opened and closed with the
            client.

    Raises:
        ConfigError: An address is illegal, an argument has another type, or `nameserver` and
            `client` name different NameServers.
    """

    def __init__(
        self,
        config: ClientConfig | None = None,
        *,
        nameserver: str | Sequence[str] | None = None,
        client: ClientConfig | None = None,
        env: Environment | EnvironmentSource | None = None,
    ) -> None:
        self._config = resolve_client(
            nameserver, client, deprecated=config, deprecated_name="config"
        )
        self._given_env = env
        self.disowned = ""
        self._env: Environment | None = None
        self._nameservers: NameServers | None = None
        self._shared: dict[tuple[str, str, BrokerMember], _SharedConnection] = {}

    async def _open(self, stack: AsyncExitStack) -> None:
        self._env = await stack.enter_async_context(
            client_environment(self._given_env, self, self._config.credentials)
        )
        tasks = await stack.enter_async_context(OwnedTasks())
        self._nameservers = NameServers(
            self._env,
            self._config.addresses(),
            tasks,
            connect_timeout_s=self._config.connect_timeout_s,
            request_timeout_s=self._config.request_timeout_s,
        )
        stack.push_async_callback(self._nameservers.close)

    async def brokers(self, cluster: str = "") -> list[BrokerData]:
        """Return the brokers of `cluster`, or of every cluster when that is empty, sorted by name.

        A registered host "*" is replaced by the host of the NameServer that returned it.

        Raises:
            RefusedError: BROKER_NOT_EXIST: no broker is registered in `cluster`.
            TransportError: No NameServer answers.
        """
        registered = await self._names.brokers()
        host = self._names.current_host
        found = [as_dialled(data, host) for data in registered if cluster in ("", data.cluster)]
        if cluster and not found:
            remark = f"no broker is registered in cluster {cluster!r}"
            raise refusal(ResponseCode.BROKER_NOT_EXIST, remark)
        return found

    async def master_of(self, broker: str) -> BrokerData:
        """Return the broker with a name, or with a registered address of its master.

        Raises:
            RefusedError: BROKER_NOT_EXIST: no such broker is registered.
            Unreachable: The broker has no master at present.
        """
        (data,) = await self._writable(brokers=(broker,))
        return data

    async def _writable(
        self, cluster: str = "", brokers: Collection[str] = ()
    ) -> Sequence[BrokerData]:
        """Return the selected brokers, each of which has a master.

        Args:
            cluster: Cluster of the brokers; empty = every cluster.
            brokers: Names or registered addresses of masters; empty = every broker.

        Raises:
            RefusedError: BROKER_NOT_EXIST: no such broker is registered, or none at all.
            Unreachable: A broker has no master at present.
        """
        selected = await self._readable(cluster, brokers)
        for data in selected:
            if data.master is None:
                raise Unreachable(without_master(data))
        return selected

    async def _readable(
        self, cluster: str = "", brokers: Collection[str] = ()
    ) -> Sequence[BrokerData]:
        """Return the selected brokers, with or without a master.

        Raises:
            RefusedError: BROKER_NOT_EXIST: no such broker is registered, or none at all.
        """
        if isinstance(brokers, str):
            raise UsageError(f"brokers={brokers!r} must be a list: [{brokers!r}]")
        registered = await self.brokers(cluster)
        if not registered:
            raise refusal(ResponseCode.BROKER_NOT_EXIST, "no broker is registered in any cluster")
        named = by_name_and_address(registered)
        if missing := sorted(set(brokers) - named.keys()):
            raise no_such_broker(missing, self._config.addresses())
        selected = {named[name].broker_name for name in brokers}
        return [data for data in registered if not brokers or data.broker_name in selected]

    async def _call(self, connection: Connection, rpc: UnaryRpc[Req, Rep], request: Req) -> Rep:
        return await connection.call(rpc, request, timeout_s=self._timeout_s)

    def _calling(
        self, rpc: UnaryRpc[Req, Rep], request: Req, timeout_s: float | None = None
    ) -> Callable[[BrokerData, Connection], Awaitable[Rep]]:
        """Return a question for `_ask_each` and `_change_each`: `request` as it is."""
        limit_s = timeout_s or self._timeout_s
        return lambda _, connection: connection.call(rpc, request, timeout_s=limit_s)

    async def _ask_each(
        self,
        question: Callable[[BrokerData, Connection], Awaitable[T]],
        *,
        brokers: Collection[str] = (),
        unknown: tuple[type[RefusedError], ...] = (),
    ) -> BrokerAnswers[T]:
        """Ask brokers one question concurrently, and collect answers and failures.

        Brokers that are not connected within ten seconds count as unreachable.

        Args:
            question: Function of a broker and a connection to its first member that answers.
            brokers: Names or registered addresses of masters; empty = every broker.
            unknown: Refusals of a broker that does not have the requested object.

        Raises:
            RefusedError: BROKER_NOT_EXIST: no such broker is registered; or the first refusal, when
                no broker answers.
            Unreachable: No broker has the requested object, and some gave no answer; names them.
        """
        answers: list[tuple[str, T]] = []
        missing: list[RefusedError] = []
        unreachable: list[UnreachableBroker] = []
        refused: RefusedError | None = None

        until_s = asyncio.get_running_loop().time() + _DIALLING_S

        async def ask(data: BrokerData) -> tuple[BrokerData, T | None, TernError | None]:
            try:
                async with AsyncExitStack() as stack:
                    async with asyncio.timeout_at(until_s):
                        connection = await stack.enter_async_context(self._reader(data))
                    return data, await question(data, connection), None
            except TimeoutError:
                late = Unreachable(f"not connected {_DIALLING_S:.0f} s after the first was dialled")
                return data, None, late
            except TernError as error:
                return data, None, error

        for data, answer, error in await gather(await self._readable(brokers=brokers), ask):
            if error is None:
                answers.append((data.broker_name, cast("T", answer)))
            elif isinstance(error, unknown):
                missing.append(error)
            else:
                unreachable.append(_unreachable(data, error))
                refused = refused or (error if isinstance(error, RefusedError) else None)
        if not answers:
            if refused is not None and not missing:
                raise refused
            require_all(unreachable)
        return BrokerAnswers(tuple(answers), tuple(missing), tuple(unreachable))

    @asynccontextmanager
    async def _master(self, data: BrokerData) -> AsyncGenerator[Connection]:
        """Connect to the master of a broker.

        Raises:
            Unreachable: The broker has no master, or the master does not answer.
        """
        if data.master is None:
            raise Unreachable(without_master(data))
        async with self._member(data, data.master) as connection:
            yield connection

    @asynccontextmanager
    async def _masters(
        self, brokers: Sequence[BrokerData]
    ) -> AsyncGenerator[Sequence[tuple[BrokerData, Connection]]]:
        """Connect to the masters of `brokers`, to all of them before the first change.

        Raises:
            Unreachable: A broker has no master, or a master does not answer.
        """
        async with AsyncExitStack() as stack:

            async def dialled(data: BrokerData) -> tuple[BrokerData, Connection]:
                return data, await stack.enter_async_context(self._master(data))

            yield await gather(brokers, dialled)

    async def _change_each(
        self,
        change: Callable[[BrokerData, Connection], Awaitable[T]],
        *,
        cluster: str = "",
        brokers: Collection[str] = (),
        topic: str = "",
        unknown: tuple[type[RefusedError], ...] = (),
        summary: Callable[[T], str] = lambda _: "",
    ) -> tuple[list[tuple[str, T]], list[RefusedError]]:
        """Make a change on masters, one after the other, once all are connected.

        Args:
            change: Function of a broker and a connection to its master.
            cluster: Cluster of the brokers; empty = every cluster.
            brokers: Names or registered addresses of masters; empty = every broker.
            topic: Topic that the change is about. Brokers outside its route are left out, unless
                its route is empty or `brokers` names them.
            unknown: Refusals of a broker that does not have the object to change.
            summary: Description of a finished change, for the error text of a later failure.

        Returns:
            Broker names and their answers, sorted by cluster and name; and the refusals in
            `unknown`.

        Raises:
            RefusedError: BROKER_NOT_EXIST: no such broker is registered: nothing is changed.
                Otherwise a broker refuses; the text names the brokers that have changed, and those
                that were not asked.
            Unreachable: A broker has no master, or a master does not answer: nothing is changed.
            TransportError: A master gave no answer and may have changed; the text is that of a
                refusal.
        """
        holders = await self._holders(topic, cluster) if topic and not brokers else ()
        selected = holders or await self._writable(cluster, brokers)
        done: list[tuple[str, T]] = []
        missing: list[RefusedError] = []
        async with self._masters(selected) as masters:
            for index, (data, connection) in enumerate(masters):
                try:
                    done.append((data.broker_name, await change(data, connection)))
                except unknown as error:
                    missing.append(error)
                except TernError as error:
                    rest = [each.broker_name for each, _ in masters[index + 1 :]]
                    texts = [f"{name}{summary(answer)}" for name, answer in done]
                    error.args = (_unfinished(str(error), data.broker_name, texts, rest),)
                    raise
        return done, missing

    async def _holders(self, topic: str, cluster: str) -> Sequence[BrokerData]:
        """Return the brokers in any NameServer's route of a topic, sorted by cluster and name."""
        try:
            found = await self._names.topic_route(check_topic(topic))
        except TopicNotFound:
            return []
        routes = [found.route, *await self._names.other_routes(topic, found)]
        by_name = {data.broker_name: data for route in reversed(routes) for data in route.brokers}
        selected = (data for data in by_name.values() if cluster in ("", data.cluster))
        return sorted(selected, key=lambda data: (data.cluster, data.broker_name))

    @asynccontextmanager
    async def _reader(self, data: BrokerData) -> AsyncGenerator[Connection]:
        """Connect to the first member that answers, the master before its slaves.

        All dials together take three connection timeouts at most.

        Raises:
            Unreachable: No member answers; names each that was dialled.
        """
        failures: list[str] = []
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _DIALS_MAX * self._config.connect_timeout_s
        async with AsyncExitStack() as stack:
            for member in data.members:
                if loop.time() >= until_s:
                    break
                try:
                    connection = await stack.enter_async_context(self._member(data, member))
                except Unreachable as error:
                    failures.append(str(error))
                    continue
                yield connection
                return
        raise Unreachable(_no_answer_of(data) + "; ".join(failures))

    @asynccontextmanager
    async def _member(self, data: BrokerData, member: BrokerMember) -> AsyncGenerator[Connection]:
        key = (data.cluster, data.broker_name, member)
        shared = self._shared.setdefault(key, _SharedConnection())
        shared.users += 1
        try:
            yield await self._dialled(data, member, shared)
        finally:
            shared.users -= 1
            is_last = not shared.users
            if (is_last or shared.failure) and self._shared.get(key) is shared:
                del self._shared[key]
            if is_last and shared.connection is not None:
                await shared.connection.close()

    async def _dialled(
        self, data: BrokerData, member: BrokerMember, shared: _SharedConnection
    ) -> Connection:
        async with shared.dialling:
            if shared.failure is not None:
                raise shared.failure
            if shared.connection is None:
                assert self._env is not None, "is open"
                host = self._names.current_host
                try:
                    shared.connection = await self._env.network.connect(
                        resolve_addresses(member.endpoints, nameserver_host=host),
                        expect=Identity(
                            data.cluster, data.broker_name, member.broker_id, member.epoch
                        ),
                        timeout_s=self._config.connect_timeout_s,
                    )
                except TernError as error:
                    shared.failure = error
                    raise
            return shared.connection

    @property
    def _names(self) -> NameServers:
        if self._nameservers is None:
            raise UsageError("the client is not open: use it inside `async with`")
        self._check_owner()
        if self.disowned:
            raise UsageError(self.disowned)
        return self._nameservers

    @property
    def _timeout_s(self) -> float:
        return self._config.request_timeout_s


async def gather(things: Sequence[T], question: Callable[[T], Awaitable[U]]) -> list[U]:
    """Return the answers to a question about each thing, in order; 128 run concurrently.

    Raises:
        TernError: The first that a question raised, after all have ended.
    """
    free = asyncio.Semaphore(_CONCURRENT_MAX)
    errors: list[TernError] = []

    async def ask(thing: T) -> U | None:
        async with free:
            try:
                return await question(thing)
            except TernError as error:
                errors.append(error)
                return None

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask(thing)) for thing in things]
    if errors:
        raise errors[0]
    return [cast("U", task.result()) for task in tasks]


def without_master(data: BrokerData) -> str:
    """Return the error text of a change to a broker without a master. Pure."""
    slaves = [
        f"{member.broker_id} at {', '.join(map(str, member.endpoints))}" for member in data.members
    ]
    return (
        f"broker {data.broker_name} has no master at present (slaves: {'; '.join(slaves)}): "
        "nothing can be changed there until it returns or a slave is promoted"
    )


def _unfinished(reason: str, failed: str, done: Sequence[str], rest: Sequence[str]) -> str:
    """Return the error text of a change that failed at one of several brokers. Pure."""
    if not done and not rest:
        return reason
    parts = [f"{reason}; failed on broker {failed}"]
    parts += [f"done on {', '.join(done)}"] if done else []
    parts += [f"not asked: {', '.join(rest)}"] if rest else []
    return "; ".join(parts)


def _unreachable(data: BrokerData, error: TernError) -> UnreachableBroker:
    addresses = (str(address) for member in data.members for address in member.endpoints)
    reason = str(error).removeprefix(_no_answer_of(data)) or type(error).__name__
    return UnreachableBroker(data.broker_name, tuple(addresses), reason)


def _no_answer_of(data: BrokerData) -> str:
    return f"broker {data.broker_name}: no member answers: "
