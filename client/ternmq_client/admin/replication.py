"""Administration of the members of a broker name: who follows whom, how far, and who is master."""

import asyncio
from dataclasses import dataclass
from typing import Final

from ternmq_client.admin.admin_calls import side_by_side
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
"""It asks every NameServer and member for the highest epoch, and ends a term of the broker."""

_LOOK_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class MemberView:
    """One registered member of a broker name, and what it says of itself."""

    data: BrokerData
    """The broker name."""

    member: BrokerMember
    """As it is registered."""

    status: replication.ReplicationStatusReply | None = None
    """None = it did not tell."""

    broker: admin.DescribeBrokerReply | None = None
    """None = it did not tell, or was not asked."""

    store: admin.DescribeStoreReply | None = None
    """None = it did not tell, or was not asked."""

    problem: str = ""
    """Why it did not tell; empty when it did."""

    @property
    def is_master(self) -> bool:
        """True for the member that is registered as the master."""
        return self.member.broker_id == MASTER_ID


@dataclass(frozen=True, slots=True)
class NameServerEpoch:
    """The highest epoch of one broker name that one NameServer keeps."""

    address: Address
    """Address of the NameServer."""

    highest: int = 0
    """0 = it knows none, or did not tell."""

    problem: str = ""
    """Why it did not tell; empty when it did."""


class ReplicationAdmin(NameServerAdmin):
    """Members of broker names. Slaves are asked too, each by itself."""

    async def member_views(
        self, cluster: str = "", broker: str | None = None, *, with_stores: bool = False
    ) -> list[MemberView]:
        """Return every registered member with what it says of itself, sorted by name and id.

        All are asked side by side. One that does not answer is in the list, with its problem.

        Args:
            cluster: Of this cluster alone.
            broker: Of this broker name alone; an address of one of its members will do.
                None = of every name.
            with_stores: Ask also how brokers and stores stand, not for replication alone.

        Raises:
            RefusedError: BROKER_NOT_EXIST: no member of that name or cluster is registered.
            TransportError: No NameServer answers.
        """
        if broker is None:
            brokers = await self.brokers(cluster)
        else:
            brokers = [await self._data_of(broker, cluster)]
        members = [(data, member) for data in brokers for member in data.members]
        return await side_by_side(
            members, lambda one: self._member_view(*one, with_stores=with_stores)
        )

    async def promote(
        self, broker_name: str, broker_id: int, *, is_forced: bool = False
    ) -> admin.PromoteReply:
        """Make a slave the master of its broker name.

        Its log is the name's from then on: what the old master has beyond it is lost, and the old
        master follows once it is back. The answer is durable; the new master serves a moment later.

        Args:
            broker_name: The name.
            broker_id: Of the slave, as it is registered.
            is_forced: Also while the master is alive, or nobody can be asked for the highest epoch.

        Returns:
            The epoch that begins, where, and the offsets of groups that lay beyond the log's end.

        Raises:
            RefusedError: BROKER_NOT_EXIST: there is no such member; otherwise the slave's reason.
            UsageError: That member is the master.
        """
        data = await self._data_of(broker_name)
        member = data.member(broker_id)
        if member is None:
            there = ", ".join(str(each.broker_id) for each in data.members)
            text = f"broker {data.broker_name!r} has no member {broker_id}, only {there}"
            raise refusal(ResponseCode.BROKER_NOT_EXIST, text)
        if broker_id == MASTER_ID:
            raise UsageError(f"member 0 of broker {data.broker_name!r} is the master")
        async with self._member(data, member) as connection:
            request = admin.PromoteRequest(is_forced=is_forced)
            return await connection.call(PROMOTE, request, timeout_s=_PROMOTE_TIMEOUT_S)

    async def member_at(self, *addresses: Address) -> MemberView:
        """Return what the member at one of `addresses` says of itself, registered or not.

        Raises:
            RefusedError: Its version is too old to tell.
            TransportError: None of them answers.
        """
        async with self._connected(*addresses) as connection:
            status = await self._asked(
                connection, REPLICATION_STATUS, replication.ReplicationStatusRequest()
            )
        member = BrokerMember(status.broker_id, addresses)
        return MemberView(BrokerData(status.cluster, status.broker_name, (member,)), member, status)

    async def nameserver_epochs(self, cluster: str, broker_name: str) -> list[NameServerEpoch]:
        """Return the highest epoch that each configured NameServer keeps, in their order.

        Raises:
            RefusedError: No broker or cluster can have such a name.
        """

        async def ask(address: Address) -> NameServerEpoch:
            request = nameserver.GetEpochRequest(cluster=cluster, broker_name=broker_name)
            try:
                async with self._connected(address) as connection:
                    reply = await self._asked_nameserver(connection, GET_EPOCH, request)
            except TransportError as error:
                return NameServerEpoch(address, problem=str(error) or type(error).__name__)
            return NameServerEpoch(address, reply.highest_epoch)

        check_cluster(cluster)
        check_broker_name(broker_name)
        return await side_by_side(self._names.addresses, ask)

    async def until_master(self, broker_name: str, epoch: int, timeout_s: float = 30.0) -> None:
        """Wait until a master of that epoch, or a later one, is registered and answers.

        Raises:
            Unreachable: None is and does in time.
        """
        try:
            async with asyncio.timeout(timeout_s):
                is_there = await self._has_master(broker_name, epoch)
                while not is_there:
                    await asyncio.sleep(_LOOK_S)
                    is_there = await self._has_master(broker_name, epoch)
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
                    problem = "" if status else "its version knows nothing of replication"
                    return MemberView(data, member, status, problem=problem)
                broker = await self._asked(
                    connection, DESCRIBE_BROKER, admin.DescribeBrokerRequest()
                )
                store = await self._asked(connection, DESCRIBE_STORE, admin.DescribeStoreRequest())
                return MemberView(data, member, status, broker, store)
        except TernError as error:
            return MemberView(data, member, problem=str(error) or type(error).__name__)

    async def _status(self, connection: Connection) -> replication.ReplicationStatusReply | None:
        """Return how a member stands; None when its version is too old to tell."""
        try:
            return await self._asked(
                connection, REPLICATION_STATUS, replication.ReplicationStatusRequest()
            )
        except RefusedError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            return None
