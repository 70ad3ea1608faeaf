from collections.abc import Sequence
from random import Random

import pytest

from ternmq_broker.replication.role.member_discovery import (
    MemberDiscovery,
    members_of,
    merged,
    with_remembered,
)
from ternmq_model.address import Address
from ternmq_model.epochs import EPOCH_MAX
from ternmq_model.errors import Unreachable
from ternmq_model.route import BrokerMember
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_remoting.converters import endpoint_to_pb
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Call, Identity, unary
from ternmq_remoting.service_methods import GET_CLUSTER
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.memory.memory_network import MemoryNetwork
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time

NS = (Address("ns1", 9876), Address("ns2", 9876))
A, B = Address("a", 10911), Address("b", 10911)


def member(broker_id: int, *endpoints: Address, epoch: int = 1) -> BrokerMember:
    return BrokerMember(broker_id, endpoints, epoch)


def data(*members: BrokerMember, cluster: str = "C", name: str = "n") -> common.BrokerData:
    return common.BrokerData(
        cluster=cluster,
        broker_name=name,
        members=[
            common.BrokerMember(
                broker_id=each.broker_id,
                endpoints=map(endpoint_to_pb, each.endpoints),
                epoch=each.epoch,
            )
            for each in members
        ],
    )


class Told:
    """A NameServer that knows what a test says."""

    def __init__(self, *brokers: common.BrokerData) -> None:
        self.brokers = brokers

    async def get_cluster(
        self, request: nameserver.GetClusterRequest, call: Call
    ) -> nameserver.GetClusterReply:
        assert request.broker_name == "n"
        return nameserver.GetClusterReply(brokers=self.brokers)


class Memory:
    """What a slave remembers."""

    def __init__(self, *members: BrokerMember) -> None:
        self.members: Sequence[BrokerMember] = members
        self.times = 0

    def remember(self, members: Sequence[BrokerMember]) -> None:
        self.members = members
        self.times += 1


def discovery(network: MemoryNetwork, memory: Memory) -> MemberDiscovery:
    env = Environment(
        clock=VirtualClock(), network=network.host("s"), random=Random(1), blocking=InlineBlocking()
    )
    return MemberDiscovery(
        env,
        cluster="C",
        name="n",
        nameservers=NS,
        remembered=lambda: memory.members,
        remember=memory.remember,
    )


def identity(broker_id: int, epoch: int = 1) -> Identity:
    return Identity("C", "n", broker_id, epoch)


def test_star_stands_for_the_host_of_every_nameserver() -> None:
    told = data(member(0, Address("*", 1), Address("a", 2)), member(1, Address("no host", 3)))
    found = members_of([told, data(name="m")], cluster="C", name="n", hosts=["h", "i", "h"])
    assert found == [
        member(0, Address("h", 1), Address("a", 2), Address("i", 1)),
        member(1),
    ]
    assert members_of([told], cluster="D", name="n", hosts=["h"]) == []


def test_addresses_of_a_member_are_merged_newest_first() -> None:
    assert merged([member(0, A), member(0, B, A, epoch=4), member(1, B)]) == {
        0: member(0, B, A, epoch=4),
        1: member(1, B),
    }


def test_members_are_found_at_any_nameserver_and_remembered() -> None:
    async def main() -> None:
        async with MemoryNetwork(Random(1)) as network:
            memory = Memory()
            found = discovery(network, memory)
            assert await found.members() == []
            handlers = [unary(GET_CLUSTER, Told(data(member(0, A), member(1, B))).get_cluster)]
            async with network.host("ns2").serve(handlers, NS[1]):
                assert await found.members() == [member(0, A), member(1, B)]
                assert await found.members() == memory.members
                assert memory.times == 1
            assert await found.members() == [member(0, A), member(1, B)]

    run_in_virtual_time(main())


def test_master_is_found_at_an_address_another_member_had() -> None:
    async def main() -> None:
        async with MemoryNetwork(Random(1)) as network:
            found = discovery(network, Memory(member(0, A), member(1, B)))
            with pytest.raises(Unreachable):
                await found.master(epoch_min=1, own_id=100)
            async with (
                network.host("a").serve([], A, identity=identity(100, 1)),
                network.host("b").serve([], B, identity=identity(0, 7)),
            ):
                connection = await found.master(epoch_min=1, own_id=100)
                assert connection.address == B
                await connection.close()

    run_in_virtual_time(main())


def test_master_of_a_lower_epoch_than_known_is_ignored() -> None:
    async def main() -> None:
        async with MemoryNetwork(Random(1)) as network:
            handlers = [unary(GET_CLUSTER, Told(data(member(0, A, epoch=5))).get_cluster)]
            async with (
                network.host("ns1").serve(handlers, NS[0]),
                network.host("a").serve([], A, identity=identity(0, 4)),
            ):
                with pytest.raises(Unreachable):
                    await discovery(network, Memory()).master(epoch_min=1, own_id=100)
            async with network.host("a").serve([], A, identity=identity(0, 4)):
                with pytest.raises(Unreachable):
                    await discovery(network, Memory(member(0, A))).master(epoch_min=5, own_id=100)

    run_in_virtual_time(main())


def test_made_up_epoch_of_a_member_hides_no_master_and_is_not_remembered() -> None:
    async def main() -> None:
        memory = Memory(member(1, B, epoch=1 << 62))
        told = Told(data(member(0, A), member(2, B, epoch=EPOCH_MAX + 1)))
        async with MemoryNetwork(Random(1)) as network:
            serves = [unary(GET_CLUSTER, told.get_cluster)]
            async with (
                network.host("ns1").serve(serves, Address("0.0.0.0", 9876)),
                network.host("a").serve([], Address("0.0.0.0", 10911), identity=identity(0)),
            ):
                connection = await discovery(network, memory).master(epoch_min=1, own_id=1)
                assert connection.address == A
                await connection.close()
        assert [each.epoch for each in memory.members] == [1, 0]

    run_in_virtual_time(main())


def test_id_that_a_member_had_at_its_own_place_is_not_remembered() -> None:
    async def main() -> None:
        async with MemoryNetwork(Random(1)) as network:
            memory = Memory()
            found = discovery(network, memory)
            found.note([data(member(0, A, B), member(1, B, A))], NS[0], 0)
            assert (memory.times, memory.members) == (0, ())
            found.note([data(member(0, A), member(1, A), member(2, B))], NS[0], 0)
            assert memory.members == [member(0, A), member(2, B)]

    run_in_virtual_time(main())


def test_missing_members_are_reported_without_dialling() -> None:
    async def main() -> None:
        async with MemoryNetwork(Random(1)) as network:
            with pytest.raises(Unreachable, match="no NameServer knows a member of broker n"):
                await discovery(network, Memory()).master(epoch_min=1, own_id=100)

    run_in_virtual_time(main())


def test_member_does_not_look_for_master_at_its_own_address() -> None:
    async def main() -> None:
        async with MemoryNetwork(Random(1)) as network:
            found = discovery(network, Memory(member(0, A, B), member(1, B)))
            async with network.host("b").serve([], B, identity=identity(1)):
                with pytest.raises(Unreachable) as raised:
                    await found.master(epoch_min=1, own_id=1)
                assert str(A) in str(raised.value)
                assert str(B) not in str(raised.value)

    run_in_virtual_time(main())


def test_member_with_a_new_id_is_forgotten_under_its_old_one() -> None:
    third = Address("c", 10911)
    remembered = [member(0, A), member(1, B), member(2, third)]
    assert with_remembered({0: member(0, B)}, remembered) == [member(0, B), member(2, third)]
    assert with_remembered({}, remembered) == remembered
