"""What is told to every NameServer."""

from ternmq_client.administration.calls import AdminCalls
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
from ternmq_model.route import ORDER_NAMESPACE, check_broker_name, is_order_conf
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_remoting.contracts import (
    ADD_WRITE_PERMISSION,
    DELETE_KV,
    GET_KV,
    PUT_KV,
    WIPE_WRITE_PERMISSION,
)
from ternmq_remoting.rpc import Rep, Req, UnaryRpc


class NameServerAdmin(AdminCalls):
    """Routes and settings that NameServers keep.

    Each NameServer keeps them by itself, so every configured one is told. What is told is harmless
    to repeat.
    """

    async def wipe_write_permission(self, broker_name: str) -> int:
        """Let nobody send to a broker any more, while consumers read on.

        A NameServer keeps that in memory: it is over when the broker or that NameServer is
        restarted, or when the broker was silent for so long that it was dropped.

        Returns:
            How many topics lost the permission; 0 when it was taken before.

        Raises:
            IllegalName: No broker is called so; nothing was asked.
            RefusedError: BROKER_NOT_EXIST: no NameServer knows the broker.
            Unreachable: A NameServer gave no answer; names each such. The others were told.
        """
        check_broker_name(broker_name)
        request = nameserver.WipeWritePermissionRequest(broker_name=broker_name)
        replies = await self._tell_each(WIPE_WRITE_PERMISSION, request)
        return max(reply.topics_changed for reply in replies)

    async def add_write_permission(self, broker_name: str) -> int:
        """Give back what `wipe_write_permission` took.

        Returns:
            How many topics can be written again; 0 when nothing was taken.

        Raises:
            IllegalName: No broker is called so; nothing was asked.
            RefusedError: BROKER_NOT_EXIST: no NameServer knows the broker.
            Unreachable: A NameServer gave no answer; names each such. The others were told.
        """
        check_broker_name(broker_name)
        request = nameserver.AddWritePermissionRequest(broker_name=broker_name)
        replies = await self._tell_each(ADD_WRITE_PERMISSION, request)
        return max(reply.topics_changed for reply in replies)

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
        assert self._env is not None, "is open"
        connection = await self._env.network.connect(
            [address], timeout_s=self._config.connect_timeout_s
        )
        try:
            return await connection.call(rpc, request, timeout_s=self._timeout_s)
        finally:
            await connection.close()
