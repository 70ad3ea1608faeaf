"""Administration of NameServers: each of them is asked, and told, by itself."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ternmq_client.admin.admin_calls import AdminCalls, side_by_side
from ternmq_client.admin.broker_names import (
    as_dialled,
    by_name_and_address,
    is_address,
    no_such_broker,
)
from ternmq_client.routes.nameservers import brokers_told, of_no_nameserver
from ternmq_model.address import Address
from ternmq_model.errors import (
    IllegalName,
    RefusedError,
    TransportError,
    Unreachable,
    UsageError,
)
from ternmq_model.names import check_topic, is_system_topic
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import ORDER_NAMESPACE, BrokerData, check_broker_name, is_order_conf
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_remoting.rpc import Connection, Rep, Req, UnaryRpc
from ternmq_remoting.service_methods import (
    ADD_WRITE_PERMISSION,
    DELETE_KV,
    GET_CLUSTER,
    GET_KV,
    PUT_KV,
    WIPE_WRITE_PERMISSION,
)


@dataclass(frozen=True, slots=True)
class NameServerView:
    """View of the cluster by one NameServer."""

    address: Address
    """Address of the NameServer."""

    brokers: tuple[BrokerData, ...] = ()
    """Sorted by cluster and name."""

    problem: str = ""
    """Why it told nothing; empty when it did."""


class NameServerAdmin(AdminCalls):
    """Routes and settings that NameServers keep.

    Each NameServer keeps them by itself, so every configured one is told. What is told is harmless
    to repeat.
    """

    async def wipe_write_permission(self, broker_name: str) -> int:
        """Let nobody send to a broker any more, while consumers read on.

        A NameServer keeps that in memory: it is over when the broker or that NameServer is
        restarted, or when the broker was silent for so long that it was dropped.

        Args:
            broker_name: Its name, or an address that one of its members is registered with.

        Returns:
            How many topics lost the permission; 0 when it was taken before.

        Raises:
            IllegalName: `broker_name` is neither a name nor an address; nothing was asked.
            RefusedError: BROKER_NOT_EXIST: no NameServer knows the broker.
            Unreachable: A NameServer gave no answer; names each such. The others were told.
        """
        name = await self._name_of(broker_name)
        request = nameserver.WipeWritePermissionRequest(broker_name=name)
        replies = await self._tell_each(WIPE_WRITE_PERMISSION, request)
        return max(reply.topics_changed for reply in replies)

    async def add_write_permission(self, broker_name: str) -> int:
        """Give back what `wipe_write_permission` took.

        Args:
            broker_name: Its name, or an address that one of its members is registered with.

        Returns:
            How many topics can be written again; 0 when nothing was taken.

        Raises:
            IllegalName: `broker_name` is neither a name nor an address; nothing was asked.
            RefusedError: BROKER_NOT_EXIST: no NameServer knows the broker.
            Unreachable: A NameServer gave no answer; names each such. The others were told.
        """
        name = await self._name_of(broker_name)
        request = nameserver.AddWritePermissionRequest(broker_name=name)
        replies = await self._tell_each(ADD_WRITE_PERMISSION, request)
        return max(reply.topics_changed for reply in replies)

    async def nameserver_views(self) -> list[NameServerView]:
        """Return what each configured NameServer knows, side by side, in their order."""
        return await side_by_side(self._names.addresses, self._nameserver_view)

    async def topic_order(self, topic: str) -> str:
        """Return the order configuration of a topic, such as `broker-a:8;broker-b:8`.

        Returns:
            Empty when the topic has none.

        Raises:
            IllegalName: No topic is called so.
            TransportError: No NameServer answers.
        """
        request = nameserver.GetKvRequest(namespace=ORDER_NAMESPACE, key=check_topic(topic))
        try:
            reply = await self._names.call(GET_KV, request)
        except RefusedError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return ""
            raise
        return reply.values[topic]

    async def set_topic_order(self, topic: str, order: str) -> None:
        """Give a topic a fixed order of queues: senders pick among exactly these.

        Args:
            topic: Need not exist yet.
            order: Such as `broker-a:8;broker-b:8`: each broker's number of queues. Empty = the
                topic has no order any more.

        Raises:
            IllegalName: No topic is called so, or brokers alone write to it; nothing was asked.
            UsageError: The order has another form; nothing was asked.
            Unreachable: A NameServer gave no answer; names each such. The others were told.
        """
        check_topic(topic)
        if is_system_topic(topic):
            raise IllegalName("topic", topic, "is the brokers' own")
        if not order:
            forgotten = nameserver.DeleteKvRequest(namespace=ORDER_NAMESPACE, key=topic)
            await self._tell_each(DELETE_KV, forgotten)
            return
        if not is_order_conf(order):
            raise UsageError(f"order {order!r}: must be such as broker-a:8;broker-b:8")
        kept = nameserver.PutKvRequest(namespace=ORDER_NAMESPACE, key=topic, value=order)
        await self._tell_each(PUT_KV, kept)

    async def _tell_each(self, rpc: UnaryRpc[Req, Rep], request: Req) -> list[Rep]:
        """Tell every NameServer the same; return the answers of those that knew the broker."""
        replies: list[Rep] = []
        unknown: list[RefusedError] = []
        failures: list[TransportError] = []
        silent: list[str] = []
        for address in self._names.addresses:
            try:
                replies.append(await self._tell(address, rpc, request))
            except RefusedError as error:
                if error.code != ResponseCode.BROKER_NOT_EXIST:
                    raise
                unknown.append(error)
            except TransportError as error:
                failures.append(error)
                silent.append(f"{address}: {error}")
        if failures:
            how_many = f"{len(silent)} of {len(self._names.addresses)} nameservers"
            unreachable = Unreachable(f"{how_many} not told: {'; '.join(silent)}")
            unreachable.may_have_happened = bool(replies) or any(
                failure.may_have_happened for failure in failures
            )
            raise unreachable
        if not replies:
            raise unknown[0]
        return replies

    async def _tell(self, address: Address, rpc: UnaryRpc[Req, Rep], request: Req) -> Rep:
        async with self._connected(address) as connection:
            return await self._asked_nameserver(connection, rpc, request)

    async def _data_of(self, broker: str, cluster: str = "") -> BrokerData:
        """Return the broker of a name or an address: NameServers need not know the same ones.

        Raises:
            IllegalName: It is neither.
            RefusedError: BROKER_NOT_EXIST: no NameServer that answers knows it.
        """
        try:
            there = await self.brokers(cluster)
        except RefusedError as error:
            if error.code != ResponseCode.BROKER_NOT_EXIST:
                raise
            there = []
        if found := by_name_and_address(there).get(broker):
            return found
        there = [
            as_dialled(data, view.address.host)
            for view in await self.nameserver_views()
            for data in view.brokers
            if cluster in ("", data.cluster)
        ]
        if found := by_name_and_address(there).get(broker):
            return found
        raise no_such_broker((broker,), self._names.addresses)

    async def _name_of(self, broker: str) -> str:
        """Return a broker's name as it is, and the name that an address belongs to.

        Raises:
            IllegalName: It is neither.
            RefusedError: BROKER_NOT_EXIST: no NameServer that answers knows the address.
        """
        if is_address(broker):
            return (await self._data_of(broker)).broker_name
        return check_broker_name(broker)

    async def _nameserver_view(self, address: Address) -> NameServerView:
        try:
            async with self._connected(address) as connection:
                brokers = await brokers_told(
                    lambda request: self._asked_nameserver(connection, GET_CLUSTER, request)
                )
        except TransportError as error:
            return NameServerView(address, problem=str(error) or type(error).__name__)
        return NameServerView(address, tuple(brokers))

    @asynccontextmanager
    async def _connected(self, *addresses: Address) -> AsyncGenerator[Connection]:
        assert self._env is not None, "is open"
        connection = await self._env.network.connect(
            addresses, timeout_s=self._config.connect_timeout_s
        )
        try:
            yield connection
        finally:
            await connection.close()

    async def _asked_nameserver(
        self, connection: Connection, rpc: UnaryRpc[Req, Rep], request: Req
    ) -> Rep:
        try:
            return await self._asked(connection, rpc, request)
        except RefusedError as error:
            raise of_no_nameserver(error, connection) from None

    async def _asked(self, connection: Connection, rpc: UnaryRpc[Req, Rep], request: Req) -> Rep:
        return await connection.call(rpc, request, timeout_s=self._timeout_s)
