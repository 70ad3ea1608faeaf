"""Requests to NameServers, of which one must answer."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import Message as ProtoMessage

from ternmq_client.single_flight import SingleFlight
from ternmq_model.address import Address
from ternmq_model.errors import (
    ClosedError,
    ConnectionLost,
    RefusedError,
    TernError,
    TopicNotFound,
    TransportError,
    Unreachable,
    refusal,
)
from ternmq_model.response_code import KNOWS_NO_USERS, ResponseCode
from ternmq_model.route import BrokerData, TopicRoute
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_remoting.converters import broker_data_from_pb, route_from_pb
from ternmq_remoting.environment import Environment
from ternmq_remoting.pagination import pages
from ternmq_remoting.rpc import Connection, UnaryRpc
from ternmq_remoting.service_methods import GET_CLUSTER, GET_TOPIC_ROUTE, LIST_TOPICS
from ternmq_runtime.service import OwnedTasks

Req = TypeVar("Req", bound=ProtoMessage)
Rep = TypeVar("Rep", bound=ProtoMessage)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FoundRoute:
    """Route from a NameServer, with the host that "*" stands for."""

    route: TopicRoute
    nameserver_host: str
    """Host of the NameServer of the route."""

    address: Address
    """Address of the NameServer of the route."""


class NameServers:
    """NameServers of a client. Requests go to one of them until it does not answer.

    Owned by one `ClientInstance`.

    Args:
        env: Clock, network and blocking calls.
        addresses: Addresses, at least one.
        tasks: Owner of the attempts to connect.
        connect_timeout_s: Timeout of a connection, s.
        request_timeout_s: Timeout of a request to a NameServer, s.
    """

    def __init__(
        self,
        env: Environment,
        addresses: Sequence[Address],
        tasks: OwnedTasks,
        *,
        connect_timeout_s: float,
        request_timeout_s: float,
    ) -> None:
        self._env = env
        self._addresses = tuple(addresses)
        self._connect_timeout_s = connect_timeout_s
        self._request_timeout_s = request_timeout_s
        self._connections: dict[Address, Connection] = {}
        self._current: Address | None = None
        self._is_closed = False
        self._connecting = SingleFlight[tuple[Address, ...], Connection](tasks)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Addresses of all NameServers, reachable or not."""
        return self._addresses

    @property
    def current_host(self) -> str:
        """Host of the NameServer that answered last, for "*" in its answers."""
        return (self._current or self._addresses[0]).host

    async def call(self, rpc: UnaryRpc[Req, Rep], request: Req) -> Rep:
        """Return the answer of the first NameServer that answers and knows its users.

        The request goes to another NameServer if the first does not answer, so it must be safe to
        repeat.

        Raises:
            RefusedError: A NameServer refuses the request.
            Unreachable: No NameServer answers. The error names each.
        """
        answer, _ = await self._ask_any(rpc, request, self._addresses)
        if isinstance(answer, RefusedError):
            raise answer
        return answer

    async def topics(self, cluster: str = "") -> AsyncGenerator[Sequence[str]]:
        """Yield the names of all topics, sorted, in pages.

        Args:
            cluster: Cluster of the topics; empty = all clusters.

        Raises:
            Unreachable: No NameServer answers. The error names each.
        """
        request = nameserver.ListTopicsRequest(cluster=cluster)
        async for reply in pages(lambda asked: self.call(LIST_TOPICS, asked), request):
            yield reply.topics

    async def brokers(self) -> list[BrokerData]:
        """Return all brokers, sorted by cluster and name.

        A NameServer that has just started, or just learnt its users, knows no broker. So there is
        none only after requests to all NameServers.

        Raises:
            Unreachable: No NameServer answers. The error names each.
        """
        found, address = await self._brokers_of(self._addresses)
        left = self._addresses
        while not found and (left := tuple(other for other in left if other != address)):
            try:
                found, address = await self._brokers_of(left)
            except (Unreachable, RefusedError):
                break
        return found

    async def _brokers_of(
        self, candidates: tuple[Address, ...]
    ) -> tuple[list[BrokerData], Address]:
        """Return the brokers that the first of `candidates` to answer knows, and its address."""
        address = candidates[0]

        async def ask(request: nameserver.GetClusterRequest) -> nameserver.GetClusterReply:
            nonlocal address
            answer, address = await self._ask_any(GET_CLUSTER, request, candidates)
            if isinstance(answer, RefusedError):
                raise answer
            return answer

        return await brokers_told(ask), address

    async def topic_route(self, topic: str) -> FoundRoute:
        """Return the route of `topic`.

        A NameServer that has just started knows no topic until brokers have registered. So a topic
        counts as unknown only after requests to all NameServers.

        Raises:
            TopicNotFound: No NameServer that answers knows the topic.
            Unreachable: No NameServer answers. The error names each.
        """
        request = nameserver.GetTopicRouteRequest(topic=topic)
        left = self._addresses
        unknown: TopicNotFound | None = None
        while left:
            try:
                answer, address = await self._ask_any(GET_TOPIC_ROUTE, request, left)
            except Unreachable:
                if unknown is None:
                    raise
                break
            if isinstance(answer, TopicNotFound):
                unknown = answer
                left = tuple(other for other in left if other != address)
            elif isinstance(answer, RefusedError):
                if unknown is None or answer.code not in KNOWS_NO_USERS:
                    raise answer
                break
            else:
                return FoundRoute(route_from_pb(topic, answer.route), address.host, address)
        assert unknown is not None, "there is at least one NameServer"
        raise unknown

    async def other_routes(self, topic: str, but: FoundRoute) -> list[TopicRoute]:
        """Return the routes of `topic` from the other NameServers that know it.

        The first NameServer may have just started, or brokers may not reach it.
        """
        others = [address for address in self._addresses if address != but.address]
        request = nameserver.GetTopicRouteRequest(topic=topic)
        asked = (self._ask_any(GET_TOPIC_ROUTE, request, (address,)) for address in others)
        found: list[TopicRoute] = []
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, tuple):
                if not isinstance(answer[0], RefusedError):
                    found.append(route_from_pb(topic, answer[0].route))
            elif not isinstance(answer, TernError):
                raise answer
        self._current = but.address
        return found

    async def close(self) -> None:
        """End every connection. Safe to repeat."""
        self._is_closed = True
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            await connection.close()

    async def _ask_any(
        self, rpc: UnaryRpc[Req, Rep], request: Req, candidates: tuple[Address, ...]
    ) -> tuple[Rep | RefusedError, Address]:
        """Send a request to the reachable `candidates`, one after the other, up to an answer."""
        left = candidates
        failures: list[TransportError] = []
        refused: tuple[RefusedError, Address] | None = None
        while left:
            try:
                connection = await self._connected(left)
            except Unreachable as error:
                failures.append(error)
                break
            address = self._current = connection.address
            left = tuple(other for other in left if other != address)
            try:
                return await connection.call(
                    rpc, request, timeout_s=self._request_timeout_s
                ), address
            except RefusedError as error:
                answer = of_no_nameserver(error, connection), address
                if error.code not in KNOWS_NO_USERS:
                    return answer
                refused = refused or answer
            except TransportError as error:
                logger.warning("nameserver gave no answer nameserver=%s err=%s", address, error)
                failures.append(error)
                await self._forget(connection)
            except ClosedError as error:
                if self._is_closed:
                    raise
                # Another request without an answer has closed the connection.
                failures.append(ConnectionLost(str(error)))
        if refused is not None:
            return refused
        unreachable = Unreachable(f"no nameserver answers: {'; '.join(map(str, failures))}")
        unreachable.may_have_happened = any(failure.may_have_happened for failure in failures)
        raise unreachable

    async def _connected(self, candidates: tuple[Address, ...]) -> Connection:
        if self._current in candidates and (kept := self._connections.get(self._current)):
            return kept
        for address in candidates:
            if kept := self._connections.get(address):
                return kept
        return await self._connecting.run(candidates, lambda: self._connect(candidates))

    async def _connect(self, candidates: tuple[Address, ...]) -> Connection:
        connection = await self._env.network.connect(candidates, timeout_s=self._connect_timeout_s)
        self._connections[connection.address] = connection
        logger.info("nameserver connected nameserver=%s", connection.address)
        return connection

    async def _forget(self, connection: Connection) -> None:
        if self._connections.get(connection.address) is connection:
            del self._connections[connection.address]
            await connection.close()


def of_no_nameserver(error: RefusedError, connection: Connection) -> RefusedError:
    """Return a clear refusal if the peer is no NameServer, else `error`. Pure.

    Args:
        error: Refusal of a request that every NameServer supports.
        connection: Connection to the peer.
    """
    if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return error
    who = connection.identity
    remark = (
        f"is {who or 'another service'}, not a NameServer: "
        "give the address of a NameServer, which listens on port 9876 by default"
    )
    return refusal(ResponseCode.INVALID_PARAMETER, remark, str(connection.address))


async def brokers_told(
    ask: Callable[[nameserver.GetClusterRequest], Awaitable[nameserver.GetClusterReply]],
) -> list[BrokerData]:
    """Return the brokers of one NameServer, each once. The request has pages."""
    replies = pages(ask, nameserver.GetClusterRequest())
    told = [broker_data_from_pb(data) async for reply in replies for data in reply.brokers]
    return list({(data.cluster, data.broker_name): data for data in told}.values())
