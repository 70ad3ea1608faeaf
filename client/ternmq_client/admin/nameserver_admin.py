"""Administration of NameServers, each of which gets every call by itself."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from hashlib import sha256

from ternmq_client.admin.admin_calls import AdminCalls, gather
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
    TernError,
    TransportError,
    Unreachable,
    UsageError,
)
from ternmq_model.names import check_topic, is_system_topic
from ternmq_model.response_code import KNOWS_NO_USERS, ResponseCode
from ternmq_model.route import ORDER_NAMESPACE, BrokerData, check_broker_name, is_order_conf
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_remoting.converters import error_of
from ternmq_remoting.rpc import Connection, Rep, Req, UnaryRpc, connected
from ternmq_remoting.service_methods import (
    ADD_WRITE_PERMISSION,
    DELETE_KV,
    GET_ACCESS,
    GET_CLUSTER,
    GET_KV,
    PUT_ACCESS,
    PUT_KV,
    WIPE_WRITE_PERMISSION,
)


@dataclass(frozen=True, slots=True)
class NameServerView:
    """Brokers that one NameServer knows."""

    address: Address
    """Address of the NameServer."""

    brokers: tuple[BrokerData, ...] = ()
    """Brokers, sorted by cluster and name."""

    problem: str = ""
    """Text of the error of a NameServer that did not answer; empty when it did."""

    warnings: tuple[str, ...] = ()
    """Sentences about what is not safe about the NameServer."""


class NameServerAdmin(AdminCalls):
    """Calls about the routes and settings of NameServers.

    NameServers do not share their settings, so changes go to every configured one. Repeating a
    change is safe.
    """

    async def wipe_write_permission(self, broker_name: str) -> int:
        """Take the write permission from a broker's topics in all routes; consumers read on.

        NameServers keep the change in memory. A restart of the broker or the NameServer ends it, as
        does a silence after which the NameServer drops the broker.

        Args:
            broker_name: Name of the broker, or a registered address of one of its members.

        Returns:
            The number of topics that lost the permission; 0 when they had lost it before.

        Raises:
            IllegalName: `broker_name` is neither a name nor an address; no NameServer was asked.
            RefusedError: BROKER_NOT_EXIST: no NameServer knows the broker.
            Unreachable: Some NameServers gave no answer; names them. The others made the change.
        """
        name = await self._name_of(broker_name)
        request = nameserver.WipeWritePermissionRequest(broker_name=name)
        replies = await self._call_each(WIPE_WRITE_PERMISSION, request)
        return max(reply.topics_changed for reply in replies)

    async def add_write_permission(self, broker_name: str) -> int:
        """Restore the permissions that `wipe_write_permission` took.

        Args:
            broker_name: Name of the broker, or a registered address of one of its members.

        Returns:
            The number of topics that got the permission back; 0 when none had lost it.

        Raises:
            IllegalName: `broker_name` is neither a name nor an address; no NameServer was asked.
            RefusedError: BROKER_NOT_EXIST: no NameServer knows the broker.
            Unreachable: Some NameServers gave no answer; names them. The others made the change.
        """
        name = await self._name_of(broker_name)
        request = nameserver.AddWritePermissionRequest(broker_name=name)
        replies = await self._call_each(ADD_WRITE_PERMISSION, request)
        return max(reply.topics_changed for reply in replies)

    async def nameserver_views(self) -> list[NameServerView]:
        """Return the brokers that each configured NameServer knows, in the order of addresses."""
        return await gather(self._names.addresses, self._nameserver_view)

    async def topic_order(self, topic: str) -> str:
        """Return the order configuration of a topic, such as `broker-a:8;broker-b:8`.

        Returns:
            The configuration; empty when the topic has none.

        Raises:
            IllegalName: No topic can have that name.
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
        """Set the order configuration of a topic: senders choose among exactly its queues.

        Args:
            topic: Name of the topic, which need not exist yet.
            order: Number of queues of each broker, such as `broker-a:8;broker-b:8`. Empty = delete
                the configuration.

        Raises:
            IllegalName: No topic can have that name, or it is the brokers' own; no NameServer was
                asked.
            UsageError: The order has another form; no NameServer was asked.
            Unreachable: Some NameServers gave no answer; names them. The others made the change.
        """
        check_topic(topic)
        if is_system_topic(topic):
            raise IllegalName("topic", topic, "is reserved for brokers")
        if not order:
            deletion = nameserver.DeleteKvRequest(namespace=ORDER_NAMESPACE, key=topic)
            await self._call_each(DELETE_KV, deletion)
            return
        if not is_order_conf(order):
            raise UsageError(f"order {order!r}: must have the form broker-a:8;broker-b:8")
        request = nameserver.PutKvRequest(namespace=ORDER_NAMESPACE, key=topic, value=order)
        await self._call_each(PUT_KV, request)

    async def access_table(self) -> tuple[int, bytes]:
        """Return the newest table of users and permissions that a NameServer has.

        Returns:
            Its version, 0 when there were never users, and the table as JSON.

        Raises:
            RefusedError: No NameServer returned its table, and one refused.
            TransportError: No NameServer answers.
        """
        answers = await gather(self._names.addresses, self._access_at)
        tables = [each for each in answers if not isinstance(each, TernError)]
        if not tables:
            errors = [each for each in answers if isinstance(each, TernError)]
            raise next((each for each in errors if isinstance(each, RefusedError)), errors[0])
        return max(tables, key=lambda each: (each[0], sha256(each[1]).digest()))

    async def put_access_table(self, table: bytes, expected_version: int) -> None:
        """Replace the table of users and permissions, at the first NameServer that has one.

        It is on the disk of that NameServer, which passes it on.

        Args:
            table: Table as JSON, with a version above the expected one.
            expected_version: Version of the table that is replaced.

        Raises:
            RefusedError: ILLEGAL_OPERATION: another version is present; NO_PERMISSION: this client
                may not change it; SERVICE_NOT_AVAILABLE, SYSTEM_ERROR: no NameServer knows its
                users. Nothing changed, unless a NameServer before gave no answer.
            TransportError: No NameServer answers. The change may have happened.
        """
        request = nameserver.PutAccessRequest(expected_version=expected_version, table=table)
        failure: TernError | None = None
        for address in self._names.addresses:
            try:
                async with self._connected(address) as connection:
                    reply = await self._call_nameserver(connection, PUT_ACCESS, request)
            except TernError as error:
                code = error.code if isinstance(error, RefusedError) else None
                if code not in (None, *KNOWS_NO_USERS):
                    raise
                # After a lost answer the next one refuses, or accepts the very same table.
                if failure is None or error.may_have_happened:
                    failure = error
            else:
                if reply.status.code:
                    raise error_of(reply.status, str(address))
                return
        assert failure is not None, "there is at least one address"
        raise failure

    async def _access_at(self, address: Address) -> tuple[int, bytes] | TernError:
        try:
            async with self._connected(address) as connection:
                request = nameserver.GetAccessRequest()
                reply = await self._call_nameserver(connection, GET_ACCESS, request)
        except TernError as error:
            return error
        return reply.version, reply.table

    async def _call_each(self, rpc: UnaryRpc[Req, Rep], request: Req) -> list[Rep]:
        """Send one request to each NameServer; return the replies of those that know the broker."""
        replies: list[Rep] = []
        unknown: list[RefusedError] = []
        failures: list[TransportError] = []
        silent: list[str] = []
        for address in self._names.addresses:
            try:
                async with self._connected(address) as connection:
                    replies.append(await self._call_nameserver(connection, rpc, request))
            except RefusedError as error:
                if error.code != ResponseCode.BROKER_NOT_EXIST:
                    raise
                unknown.append(error)
            except TransportError as error:
                failures.append(error)
                silent.append(f"{address}: {error}")
        if failures:
            how_many = f"{len(silent)} of {len(self._names.addresses)} nameservers"
            unreachable = Unreachable(f"no answer from {how_many}: {'; '.join(silent)}")
            unreachable.may_have_happened = bool(replies) or any(
                failure.may_have_happened for failure in failures
            )
            raise unreachable
        if not replies:
            raise unknown[0]
        return replies

    async def _data_of(self, broker: str, cluster: str = "") -> BrokerData:
        """Return the broker with a name or an address, from any NameServer.

        Raises:
            IllegalName: `broker` is neither a name nor an address.
            RefusedError: BROKER_NOT_EXIST: no NameServer that answers knows the broker.
        """
        try:
            known = await self.brokers(cluster)
        except RefusedError as error:
            if error.code != ResponseCode.BROKER_NOT_EXIST:
                raise
            known = []
        if found := by_name_and_address(known).get(broker):
            return found
        # NameServers need not know the same brokers.
        known = [
            as_dialled(data, view.address.host)
            for view in await self.nameserver_views()
            for data in view.brokers
            if cluster in ("", data.cluster)
        ]
        if found := by_name_and_address(known).get(broker):
            return found
        raise no_such_broker((broker,), self._names.addresses)

    async def _name_of(self, broker: str) -> str:
        """Return the name of a broker that is given by name or by address.

        Raises:
            IllegalName: `broker` is neither a name nor an address.
            RefusedError: BROKER_NOT_EXIST: no NameServer that answers knows the address.
        """
        if is_address(broker):
            return (await self._data_of(broker)).broker_name
        return check_broker_name(broker)

    async def _nameserver_view(self, address: Address) -> NameServerView:
        warnings: list[str] = []
        try:
            async with self._connected(address) as connection:

                async def ask(request: nameserver.GetClusterRequest) -> nameserver.GetClusterReply:
                    reply = await self._call_nameserver(connection, GET_CLUSTER, request)
                    warnings.extend(reply.warnings)
                    return reply

                brokers = await brokers_told(ask)
        except TransportError as error:
            return NameServerView(address, problem=str(error) or type(error).__name__)
        return NameServerView(address, tuple(brokers), warnings=tuple(warnings))

    def _connected(self, *addresses: Address) -> AbstractAsyncContextManager[Connection]:
        assert self._env is not None, "is open"
        timeout_s = self._config.connect_timeout_s
        return connected(self._env.network, addresses, timeout_s=timeout_s)

    async def _call_nameserver(
        self, connection: Connection, rpc: UnaryRpc[Req, Rep], request: Req
    ) -> Rep:
        try:
            return await self._call(connection, rpc, request)
        except RefusedError as error:
            raise of_no_nameserver(error, connection) from None
