"""Asking every member of a broker name, over the in-memory network on virtual time."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_model.address import Address
from ternmq_model.errors import IllegalName, RefusedError, Unreachable, UsageError, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import nameserver_pb2 as pb
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting import service_methods
from ternmq_remoting.rpc import Call, Handler, Identity, unary
from ternmq_testing.memory.memory_network import MemoryNetwork
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.simulation.client.admin.test_admin_client import HOSTS, two_nameservers


@dataclass
class ToyMember:
    """Says what it is told to say."""

    broker_id: int
    role: str
    is_alive_master: bool = False
    is_old: bool = False
    forced: list[bool] = field(default_factory=list[bool])

    @property
    def host(self) -> str:
        """Where it is."""
        return f"a-{self.broker_id}"

    def handlers(self) -> Sequence[Handler]:
        """Return what it serves."""
        status = () if self.is_old else (unary(service_methods.REPLICATION_STATUS, self._status),)
        return (
            *status,
            unary(service_methods.PROMOTE, self._promote),
            unary(service_methods.DESCRIBE_BROKER, self._describe),
            unary(service_methods.DESCRIBE_STORE, self._describe_store),
        )

    async def _status(
        self, _: replication.ReplicationStatusRequest, _call: Call
    ) -> replication.ReplicationStatusReply:
        return replication.ReplicationStatusReply(broker_id=self.broker_id, role=self.role)

    async def _promote(self, request: admin.PromoteRequest, _: Call) -> admin.PromoteReply:
        self.forced.append(request.is_forced)
        if self.is_alive_master and not request.is_forced:
            raise refusal(ResponseCode.ILLEGAL_OPERATION, "the master is alive")
        return admin.PromoteReply(epoch=1000, log_end=77)

    async def _describe(
        self, _: admin.DescribeBrokerRequest, _call: Call
    ) -> admin.DescribeBrokerReply:
        return admin.DescribeBrokerReply(version=f"v{self.broker_id}")

    async def _describe_store(
        self, _: admin.DescribeStoreRequest, _call: Call
    ) -> admin.DescribeStoreReply:
        return admin.DescribeStoreReply(puts=self.broker_id)


async def register(
    network: MemoryNetwork,
    member: ToyMember,
    *,
    nameservers: Sequence[str] = HOSTS,
    epoch: int = 1,
    host: str = "",
) -> None:
    for address in nameservers:
        connection = await network.connect([Address(address, 9876)])
        request = pb.RegisterBrokerRequest(
            cluster="c",
            broker_name="a",
            broker_id=member.broker_id,
            endpoints=[common.Endpoint(host=host or member.host, port=10911)],
            data_version=common.DataVersion(timestamp_ms=1),
            incarnation=str(epoch),
            epoch=epoch,
        )
        await connection.call(service_methods.REGISTER_BROKER, request, timeout_s=3.0)
        await connection.close()


@asynccontextmanager
async def a_pair(
    *, is_slave_old: bool = False
) -> AsyncGenerator[tuple[MemoryNetwork, AdminClient, ToyMember, ToyMember]]:
    """Give a master and its slave, registered at two NameServers."""
    members = (ToyMember(0, "sync_master"), ToyMember(1, "slave", is_old=is_slave_old))
    async with AsyncExitStack() as stack:
        network, client = await stack.enter_async_context(two_nameservers())
        for member in members:
            await stack.enter_async_context(
                network.host(member.host).serve(
                    member.handlers(),
                    Address("0.0.0.0", 10911),
                    identity=Identity("c", "a", member.broker_id, 1),
                )
            )
            await register(network, member)
        yield network, client, *members


def test_silent_member_is_named_with_its_problem_beside_the_others() -> None:
    async def main() -> None:
        async with a_pair() as (network, client, _, _):
            master, slave = await client.member_views()
            assert (master.is_master, slave.is_master) == (True, False)
            assert master.status is not None
            assert slave.status is not None
            assert (master.status.role, slave.status.role) == ("sync_master", "slave")
            assert slave.broker is None
            _, slave = await client.member_views(broker="a-1:10911", with_stores=True)
            assert slave.broker is not None
            assert slave.store is not None
            assert (slave.broker.version, slave.store.puts) == ("v1", 1)
            network.partition("client", "a-1")
            master, slave = await client.member_views("c", "a")
            assert master.status is not None
            assert slave.status is None
            assert "a-1:10911" in slave.problem
            with pytest.raises(
                RefusedError, match="broker b: no such broker is registered"
            ) as told:
                await client.member_views(broker="b")
            assert told.value.code == ResponseCode.BROKER_NOT_EXIST
            # An empty variable in somebody's script names nobody, rather than everybody.
            with pytest.raises(IllegalName, match="broker name '': must not be empty"):
                await client.member_views(broker="")

    run_in_virtual_time(main())


def test_member_of_an_older_version_reports_the_rest() -> None:
    async def main() -> None:
        async with a_pair(is_slave_old=True) as (_, client, _, _):
            _, slave = await client.member_views(with_stores=True)
            assert slave.broker is not None
            assert (slave.status, slave.problem) == (None, "")
            _, slave = await client.member_views()
            assert slave.problem == "its version does not support replication"

    run_in_virtual_time(main())


def test_each_nameserver_reports_its_own_view() -> None:
    async def main() -> None:
        async with a_pair() as (network, client, _, _):
            await register(network, ToyMember(2, "slave"), nameservers=["ns-2"])
            first, second = await client.nameserver_views()
            assert [len(view.brokers[0].members) for view in (first, second)] == [2, 3]
            network.partition("client", "ns-1")
            first, second = await client.nameserver_views()
            assert "ns-1:9876" in first.problem
            assert not second.problem

    run_in_virtual_time(main())


def test_member_is_asked_where_it_is_and_each_nameserver_for_the_epoch() -> None:
    async def main() -> None:
        async with a_pair() as (network, client, _, _):
            there = await client.member_at(Address("nowhere", 1), Address("a-1", 10911))
            assert there.status is not None
            assert (there.member.broker_id, there.status.role) == (1, "slave")
            network.partition("client", "ns-1")
            first, second = await client.nameserver_epochs("c", "a")
            assert (first.highest, "ns-1:9876" in first.problem) == (0, True)
            assert (second.highest, second.problem) == (1, "")
            with pytest.raises(IllegalName):
                await client.nameserver_epochs("c", "a b")
            network.partition("client", "a-1")
            with pytest.raises(Unreachable):
                await client.member_at(Address("a-1", 10911))

    run_in_virtual_time(main())


def test_write_permission_is_taken_by_an_address_that_one_nameserver_knows() -> None:
    async def main() -> None:
        async with two_nameservers() as (network, client):
            await register(network, ToyMember(0, "sync_master"), nameservers=["ns-2"])
            await register(network, ToyMember(1, "slave"), nameservers=["ns-2"])
            for address in ("a-0:10911", "a-1:10911"):
                assert await client.wipe_write_permission(address) == 0  # it has no topic
                assert await client.add_write_permission(address) == 0
            for verb in (client.wipe_write_permission, client.add_write_permission):
                with pytest.raises(RefusedError, match="broker a-2:10911: no such broker") as told:
                    await verb("a-2:10911")
                assert told.value.code == ResponseCode.BROKER_NOT_EXIST

    run_in_virtual_time(main())


def test_host_of_the_nameserver_counts_for_a_broker_on_every_interface() -> None:
    async def main() -> None:
        async with two_nameservers() as (network, client):
            for member in (ToyMember(0, "sync_master"), ToyMember(1, "slave")):
                await register(network, member, nameservers=["ns-2"], host="*")
            network.partition("client", "ns-1")
            for data in (await client.master_of("ns-2:10911"), *await client.brokers()):
                assert [each.endpoints for each in data.members] == 2 * [(Address("ns-2", 10911),)]
            network.heal()
            assert len(await client.member_views(broker="ns-2:10911")) == 2

    run_in_virtual_time(main())


def test_broker_known_to_one_nameserver_is_found() -> None:
    async def main() -> None:
        async with two_nameservers() as (network, client):
            for member in (ToyMember(0, "sync_master"), ToyMember(1, "slave")):
                await register(network, member, nameservers=["ns-2"])
            master, slave = await client.member_views("c", "a")
            assert (master.is_master, slave.is_master) == (True, False)
            with pytest.raises(RefusedError, match="broker a: no such broker is registered"):
                await client.member_views("another", "a")
            with pytest.raises(Unreachable, match="a-1:10911"):
                await client.promote("a", 1)

    run_in_virtual_time(main())


def test_slave_is_promoted_by_its_id_and_the_master_is_not() -> None:
    async def main() -> None:
        async with a_pair() as (_, client, _, slave):
            reply = await client.promote("a", 1)
            assert (reply.epoch, reply.log_end) == (1000, 77)
            slave.is_alive_master = True
            with pytest.raises(RefusedError, match="the master is alive"):
                await client.promote("a", 1)
            await client.promote("a", 1, is_forced=True)
            assert slave.forced == [False, False, True]
            with pytest.raises(UsageError, match="member 0 of broker 'a' is the master"):
                await client.promote("a", 0)
            with pytest.raises(RefusedError, match="broker 'a' has no member 7, only 0, 1"):
                await client.promote("a", 7)

    run_in_virtual_time(main())


def test_promotion_waits_until_the_slave_serves_as_master() -> None:
    async def main() -> None:
        async with a_pair() as (network, client, master, _):
            await client.until_master("a", 1, timeout_s=1.0)
            with pytest.raises(Unreachable, match="no master of epoch 1000 serves 'a' after 1 s"):
                await client.until_master("a", 1000, timeout_s=1.0)
            await register(network, master, epoch=1000)
            with pytest.raises(Unreachable):
                await client.until_master("a", 1000, timeout_s=1.0)  # it still tells epoch 1

    run_in_virtual_time(main())
