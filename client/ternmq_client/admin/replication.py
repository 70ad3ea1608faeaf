"""Administration of the members of a broker name: status, promotion, epochs."""

import asyncio
from dataclasses import dataclass
from typing import Final

from ternmq_client.admin.admin_calls import gather
from ternmq_client.admin.nameserver_admin import NameServerAdmin
from ternmq_model.address import Address
from ternmq_model.errors import (
    RefusedError,
    TernError,
    TransportError,
    Unreachable,
    UsageError,
    refusal,
)
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import MASTER_ID, BrokerData, BrokerMember, check_broker_name, check_cluster
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting.rpc import Connection
from ternmq_remoting.service_methods import (
    DESCRIBE_BROKER,
    DESCRIBE_STORE,
    GET_EPOCH,
    PROMOTE,
    REPLICATION_STATUS,
)

_PROMOTE_TIMEOUT_S: Final = 30.0
"""Timeout of a promotion, which asks every NameServer and member for the highest epoch and ends a
term of the broker, s."""

_MASTER_POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class MemberView:
    """One registered member of a broker name, with the status that it returned."""

    data: BrokerData
    """Broker name with all its members."""

    member: BrokerMember
    """Member in its registered form."""

    status: replication.ReplicationStatusReply | None = None
    """Status of its replication; None = no answer."""

    broker: admin.DescribeBrokerReply | None = None
    """Status of the broker; None = no answer, or not asked for."""

    store: admin.DescribeStoreReply | None = None
    """Counters of the store; None = no answer, or not asked for."""

    problem: str = ""
    """Text of the error of a member that did not answer; empty when it did."""

    @property
    def is_master(self) -> bool:
        """True for the member that is registered as the master."""
        return self.member.broker_id == MASTER_ID


@dataclass(frozen=True, slots=True)
class NameServerEpoch:
    """Highest epoch of one broker name that one NameServer knows."""

    address: Address
    """Address of the NameServer."""

    highest: int = 0
    """Highest epoch; 0 = the NameServer knows none, or did not answer."""

    problem: str = ""
    """Text of the error of a NameServer that did not answer; empty when it did."""


class ReplicationAdmin(NameServerAdmin):
    """Calls about the members of broker names, masters and slaves alike."""

    async def member_views(
        self, cluster: str = "", broker: str | None = None, *, with_stores: bool = False
    ) -> list[MemberView]:
        """Return every registered member with its status, sorted by name and id.

        Members are asked concurrently. A member that does not answer has a `problem`.

        Args:
            cluster: Cluster of the members; empty = every cluster.
            broker: Broker name, or a registered address of one of its members. None = every name.
            with_stores: Ask for the status of brokers and stores, too.

        Raises:
            RefusedError: BROKER_NOT_EXIST: no member of that name or cluster is registered.
            TransportError: No NameServer answers.
        """
        if broker is None:
            brokers = await self.brokers(cluster)
        else:
            brokers = [await self._data_of(broker, cluster)]
        members = [(data, member) for data in brokers for member in data.members]
        return await gather(members, lambda one: self._member_view(*one, with_stores=with_stores))

    async def promote(
        self, broker_name: str, broker_id: int, *, is_forced: bool = False
    ) -> admin.PromoteReply:
        """Promote a slave to the master of its broker name.

        The slave's log becomes the log of the broker name: records of the old master beyond its end
        are lost, and the old master follows when it returns. The promotion is durable when the call
        returns; the new master serves a moment later.

        Args:
            broker_name: Broker name.
            broker_id: Registered id of the slave.
            is_forced: Promote while the master is alive, or without an answer about the highest
                epoch.

        Returns:
            The epoch that begins, its first log offset, and the groups' offsets beyond the log's
            end.

        Raises:
            RefusedError: BROKER_NOT_EXIST: no such member is registered. Otherwise the slave
                refuses.
            UsageError: The member is the master.
        """
        data = await self._data_of(broker_name)
        member = data.member(broker_id)
        if member is None:
            ids = ", ".join(str(each.broker_id) for each in data.members)
            text = f"broker {data.broker_name!r} has no member {broker_id}, only {ids}"
            raise refusal(ResponseCode.BROKER_NOT_EXIST, text)
        if broker_id == MASTER_ID:
            raise UsageError(f"member 0 of broker {data.broker_name!r} is the master")
        async with self._member(data, member) as connection:
            request = admin.PromoteRequest(is_forced=is_forced)
            return await connection.call(PROMOTE, request, timeout_s=_PROMOTE_TIMEOUT_S)

    async def member_at(self, *addresses: Address) -> MemberView:
        """Return the status of the member at one of `addresses`, registered or not.

        Raises:
            RefusedError: The member's version does not know replication.
            TransportError: No address answers.
        """
        async with self._connected(*addresses) as connection:
            status = await self._call(
                connection, REPLICATION_STATUS, replication.ReplicationStatusRequest()
            )
        member = BrokerMember(status.broker_id, addresses)
        return MemberView(BrokerData(status.cluster, status.broker_name, (member,)), member, status)

    async def nameserver_epochs(self, cluster: str, broker_name: str) -> list[NameServerEpoch]:
        """Return the highest epoch that each configured NameServer knows, in order of addresses.

        Raises:
            RefusedError: No broker or cluster can have such a name.
        """

        async def ask(address: Address) -> NameServerEpoch:
            request = nameserver.GetEpochRequest(cluster=cluster, broker_name=broker_name)
            try:
                async with self._connected(address) as connection:
                    reply = await self._call_nameserver(connection, GET_EPOCH, request)
            except TransportError as error:
                return NameServerEpoch(address, problem=str(error) or type(error).__name__)
            return NameServerEpoch(address, reply.highest_epoch)

        check_cluster(cluster)
        check_broker_name(broker_name)
        return await gather(self._names.addresses, ask)

    async def until_master(self, broker_name: str, epoch: int, timeout_s: float = 30.0) -> None:
        """Wait until a master of `epoch`, or of a later one, is registered and answers.

        Raises:
            Unreachable: No such master answers within `timeout_s`.
        """
        try:
            async with asyncio.timeout(timeout_s):
                serves = await self._has_master(broker_name, epoch)
                while not serves:
                    await asyncio.sleep(_MASTER_POLL_S)
                    serves = await self._has_master(broker_name, epoch)
        except TimeoutError:
            text = f"no master of epoch {epoch} serves {broker_name!r} after {timeout_s:.0f} s"
            raise Unreachable(text) from None

    async def _has_master(self, broker_name: str, epoch: int) -> bool:
        try:
            data = await self._data_of(broker_name)
        except RefusedError:
            return False
        if data.master is None or data.master.epoch < epoch:
            return False
        view = await self._member_view(data, data.master, with_stores=False)
        return view.status is not None and not view.status.is_fenced

    async def _member_view(
        self, data: BrokerData, member: BrokerMember, *, with_stores: bool
    ) -> MemberView:
        try:
            async with self._member(data, member) as connection:
                status = await self._status(connection)
                if not with_stores:
                    problem = "" if status else "its version does not support replication"
                    return MemberView(data, member, status, problem=problem)
                broker = await self._call(
                    connection, DESCRIBE_BROKER, admin.DescribeBrokerRequest()
                )
                store = await self._call(connection, DESCRIBE_STORE, admin.DescribeStoreRequest())
                return MemberView(data, member, status, broker, store)
        except TernError as error:
            return MemberView(data, member, problem=str(error) or type(error).__name__)

    async def _status(self, connection: Connection) -> replication.ReplicationStatusReply | None:
        """Return the replication status; None when the member's version does not know it."""
        try:
            return await self._call(
                connection, REPLICATION_STATUS, replication.ReplicationStatusRequest()
            )
        except RefusedError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            return None
