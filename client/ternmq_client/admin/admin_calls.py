"""Base of the administrative calls: NameServers and brokers, asked one by one or side by side."""

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
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Connection, Identity
from ternmq_remoting.system_environment import system_environment
from ternmq_runtime.lifecycle import Lifecycle
from ternmq_runtime.service import OwnedTasks

T = TypeVar("T")
U = TypeVar("U")

_DIALS_MAX: Final = 3
"""Silent members of one broker name that are waited for."""

_ASKED_AT_ONCE_MAX: Final = 128
"""Brokers dialled side by side: each registered address costs a socket and up to a second."""

_DIALLING_S: Final = 10.0
"""For all brokers that are asked the same. Who is not connected by then is not asked: anybody can
register thousands that are none."""


@dataclass(frozen=True, slots=True)
class BrokerAnswers(Generic[T]):
    """Answers of a cluster's brokers to one question.

    Attributes:
        told: Broker names and their answers, sorted by cluster and name.
        unknown: Refusals of brokers that do not have what was asked for.
        unreachable: Brokers that gave no answer.
    """

    told: tuple[tuple[str, T], ...]
    unknown: tuple[RefusedError, ...]
    unreachable: tuple[UnreachableBroker, ...]


@dataclass(slots=True)
class _SharedConnection:
    """A connection to one member, for all that talk to it at the same time."""

    dialling: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    connection: Connection | None = None
    failure: TernError | None = None
    """Why nobody answered; whoever waited for the dial gets it too."""


class AdminCalls(Lifecycle):
    """Reaches NameServers and brokers, between `async with` and its end.

    Every method asks the NameServer who is there, dials whom it needs and hangs up again, so that
    nothing here is ever out of date; methods that need one member at the same time share a
    connection. Masters alone are told to change something; what is only read
    a slave tells too, while its master is away.

    Args:
        config: The old name of `client`, with a deprecation warning.
        nameserver: `HOST:PORT`, several separated by `;` or `,`, or a sequence of such. None = as
            in `client`.
        client: How to find and talk to services.
        env: The seams. None = the real world, opened and closed with the client.

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
        env: Environment | None = None,
    ) -> None:
        self._config = resolve_client(
            nameserver, client, deprecated=config, deprecated_name="config"
        )
        self._env = env
        self._nameservers: NameServers | None = None
        self._shared: dict[tuple[str, str, BrokerMember], _SharedConnection] = {}

    async def _open(self, stack: AsyncExitStack) -> None:
        if self._env is None:
            self._env = await stack.enter_async_context(system_environment())
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
        """Return every broker name, sorted; only those of `cluster` when that is given.

        Addresses are those to dial from here: "*" is the host of the NameServer that told it.

        Raises:
            RefusedError: BROKER_NOT_EXIST: no broker is registered in `cluster`.
            TransportError: No NameServer answers.
        """
        told = [data for data in await self._names.brokers() if cluster in ("", data.cluster)]
        there = [as_dialled(data, self._names.current_host) for data in told]
        if cluster and not there:
            remark = f"no broker is registered in cluster {cluster!r}"
            raise refusal(ResponseCode.BROKER_NOT_EXIST, remark)
        return there

    async def master_of(self, broker: str) -> BrokerData:
        """Return the broker of a name, or of an address that its master is registered with.

        Raises:
            RefusedError: BROKER_NOT_EXIST: there is no such broker, or none at all.
        """
        (data,) = await self._wanted(brokers=(broker,))
        return data

    async def _wanted(
        self, cluster: str = "", brokers: Collection[str] = ()
    ) -> Sequence[BrokerData]:
        """Return the broker names that were asked for, whose masters are to change something.

        Args:
            cluster: Of this cluster alone.
            brokers: These alone: names, or addresses that their masters are registered with.

        Raises:
            RefusedError: BROKER_NOT_EXIST: there is no such broker, or none at all.
            Unreachable: One has no master at present. Nothing is changed anywhere.
        """
        wanted = await self._readable(cluster, brokers)
        for data in wanted:
            if data.master is None:
                raise Unreachable(without_master(data))
        return wanted

    async def _readable(
        self, cluster: str = "", brokers: Collection[str] = ()
    ) -> Sequence[BrokerData]:
        """Return the broker names that were asked for, to read from: a slave will do.

        Raises:
            RefusedError: BROKER_NOT_EXIST: there is no such broker, or none at all.
        """
        if isinstance(brokers, str):
            raise UsageError(f"brokers={brokers!r} must be a list: [{brokers!r}]")
        there = await self.brokers(cluster)
        if not there:
            raise refusal(ResponseCode.BROKER_NOT_EXIST, "no broker is registered in any cluster")
        named = by_name_and_address(there)
        if missing := sorted(set(brokers) - named.keys()):
            raise no_such_broker(missing, self._config.addresses())
        wanted = {named[name].broker_name for name in brokers}
        return [data for data in there if not brokers or data.broker_name in wanted]

    async def _ask_each(
        self,
        question: Callable[[BrokerData, Connection], Awaitable[T]],
        *,
        brokers: Collection[str] = (),
        unknown: tuple[type[RefusedError], ...] = (),
    ) -> BrokerAnswers[T]:
        """Ask every broker the same, side by side. One that gives no answer is a line, no failure.

        Those that are not connected within ten seconds are not asked.

        Args:
            question: Gets a broker and a connection to its first member that answers.
            brokers: These alone: names, or addresses that their masters are registered with.
            unknown: What a broker refuses with that does not have what is asked for.

        Raises:
            RefusedError: BROKER_NOT_EXIST: there is no such broker; or what the first refuses with
                that refuses, when none answers.
            Unreachable: None has what is asked for, and not all answer; names each such.
        """
        told: list[tuple[str, T]] = []
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

        for data, answer, error in await side_by_side(await self._readable(brokers=brokers), ask):
            if error is None:
                told.append((data.broker_name, cast("T", answer)))
            elif isinstance(error, unknown):
                missing.append(error)
            else:
                unreachable.append(_unreachable(data, error))
                refused = refused or (error if isinstance(error, RefusedError) else None)
        if not told:
            if refused is not None and not missing:
                raise refused
            require_all(unreachable)
        return BrokerAnswers(tuple(told), tuple(missing), tuple(unreachable))

    @asynccontextmanager
    async def _master(self, data: BrokerData) -> AsyncGenerator[Connection]:
        """Give a connection to a master.

        Raises:
            Unreachable: There is none, or it does not answer.
        """
        if data.master is None:
            raise Unreachable(without_master(data))
        async with self._member(data, data.master) as connection:
            yield connection

    @asynccontextmanager
    async def _masters(
        self, wanted: Sequence[BrokerData]
    ) -> AsyncGenerator[Sequence[tuple[BrokerData, Connection]]]:
        """Give connections to masters, all of them before anything is changed anywhere.

        Raises:
            Unreachable: One does not answer, or there is none.
        """
        async with AsyncExitStack() as stack:

            async def dialled(data: BrokerData) -> tuple[BrokerData, Connection]:
                return data, await stack.enter_async_context(self._master(data))

            yield await side_by_side(wanted, dialled)

    async def _change_each(
        self,
        change: Callable[[BrokerData, Connection], Awaitable[T]],
        *,
        cluster: str = "",
        brokers: Collection[str] = (),
        topic: str = "",
        unknown: tuple[type[RefusedError], ...] = (),
        told: Callable[[T], str] = lambda _: "",
    ) -> tuple[list[tuple[str, T]], list[RefusedError]]:
        """Have masters change something, one after the other, once all are connected.

        Args:
            change: Gets a broker and a connection to its master.
            cluster: Of this cluster alone.
            brokers: These alone: names, or addresses that their masters are registered with.
            topic: What is changed is of this topic: brokers that no NameServer tells for it are
                not asked, unless none is told, or brokers are named.
            unknown: What a broker refuses with that does not have what is to be changed.
            told: Returns what to tell of a change that is done when a later one fails.

        Returns:
            Broker names and their answers, sorted by cluster and name; and refusals of those that
            do not have what was to be changed.

        Raises:
            RefusedError: BROKER_NOT_EXIST: there is no such broker: nothing is changed. Else a
                broker refuses; the text names those that have changed, and those not asked.
            Unreachable: A master does not answer, or there is none: nothing is changed.
            TransportError: A master gave no answer; as with a refusal, and it may have changed.
        """
        holders = await self._holders(topic, cluster) if topic and not brokers else ()
        wanted = holders or await self._wanted(cluster, brokers)
        done: list[tuple[str, T]] = []
        missing: list[RefusedError] = []
        async with self._masters(wanted) as masters:
            for place, (data, connection) in enumerate(masters):
                try:
                    done.append((data.broker_name, await change(data, connection)))
                except unknown as error:
                    missing.append(error)
                except TernError as error:
                    left = [each.broker_name for each, _ in masters[place + 1 :]]
                    texts = [f"{name}{told(answer)}" for name, answer in done]
                    error.args = (_unfinished(str(error), data.broker_name, texts, left),)
                    raise
        return done, missing

    async def _holders(self, topic: str, cluster: str) -> Sequence[BrokerData]:
        """Return the brokers that any NameServer tells for a topic, sorted by cluster and name."""
        try:
            found = await self._names.topic_route(check_topic(topic))
        except TopicNotFound:
            return []
        routes = [found.route, *await self._names.other_routes(topic, found)]
        told = {data.broker_name: data for route in reversed(routes) for data in route.brokers}
        wanted = (data for data in told.values() if cluster in ("", data.cluster))
        return sorted(wanted, key=lambda data: (data.cluster, data.broker_name))

    @asynccontextmanager
    async def _reader(self, data: BrokerData) -> AsyncGenerator[Connection]:
        """Give a connection to the first member that answers, the master before its slaves.

        Members are dialled for three times the patience for one, however many are registered.

        Raises:
            Unreachable: None answers; names each that was dialled.
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
        return self._nameservers

    @property
    def _timeout_s(self) -> float:
        return self._config.request_timeout_s


async def side_by_side(things: Sequence[T], question: Callable[[T], Awaitable[U]]) -> list[U]:
    """Return the answers to a question about each thing, in their order. 128 are asked at once.

    Raises:
        TernError: The first that a question raised, after all have ended.
    """
    free = asyncio.Semaphore(_ASKED_AT_ONCE_MAX)
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
    """Return what to tell who needs the master of a broker name that has none. Pure."""
    slaves = [
        f"{member.broker_id} at {', '.join(map(str, member.endpoints))}" for member in data.members
    ]
    return (
        f"broker {data.broker_name} has no master at present (slaves: {'; '.join(slaves)}): "
        "nothing can be changed there until it returns or a slave is promoted"
    )


def _unfinished(reason: str, failed: str, done: Sequence[str], left: Sequence[str]) -> str:
    """Return what to tell of a change that failed at one of several brokers. Pure."""
    if not done and not left:
        return reason
    parts = [f"{reason}; failed on broker {failed}"]
    parts += [f"done on {', '.join(done)}"] if done else []
    parts += [f"not asked: {', '.join(left)}"] if left else []
    return "; ".join(parts)


def _unreachable(data: BrokerData, error: TernError) -> UnreachableBroker:
    addresses = (str(address) for member in data.members for address in member.endpoints)
    reason = str(error).removeprefix(_no_answer_of(data)) or type(error).__name__
    return UnreachableBroker(data.broker_name, tuple(addresses), reason)


def _no_answer_of(data: BrokerData) -> str:
    return f"broker {data.broker_name}: no member answers: "
