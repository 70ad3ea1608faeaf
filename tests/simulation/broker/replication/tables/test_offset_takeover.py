import asyncio

import pytest

from ternmq_broker.replication.role.member_discovery import MemberDiscovery
from ternmq_broker.replication.tables.offset_takeover import take_over_offsets
from ternmq_broker.state.offset_versions import VERSION_STEP_MAX
from ternmq_broker.state.offsets import VersionedOffset
from ternmq_model.address import Address
from ternmq_model.offsets import QueueOffset
from ternmq_model.route import BrokerMember, TopicConfig
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting.rpc import Call, Identity, ServerStream, stream
from ternmq_remoting.service_methods import METADATA
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.metadata import MASTER, Member, Pair, pair

LONG = "g" * 200
"""A group as RocketMQ up to 5.3 has them."""

SLAVE = Address("s", 10911)
IDENTITY = Identity("C", "n", 1, 1)


async def take_over(master: Member, *members: BrokerMember) -> int:
    discovery = MemberDiscovery(
        master.env,
        cluster="C",
        name="n",
        nameservers=(),
        remembered=lambda: members,
        remember=lambda _: None,
    )
    return await take_over_offsets(
        master.env,
        discovery,
        master.tables,
        end_of=lambda _topic, _queue: QueueOffset(20),
    )


def test_returning_master_adopts_newer_tables_of_its_slaves() -> None:
    async def scenario(both: Pair) -> None:
        both.connection = None
        master, slave = both.master, both.slave
        for each in (master, slave):
            each.tables.topics.put(TopicConfig("T", 4, 4), now_ms=1)
        master.commit(5)
        master.commit(9, group="NEWER")
        master.commit(3, group="DELETED-THERE")
        slave.commit(8)
        slave.commit(4, group="NEWER")
        slave.commit(2, 1, group="RESET")
        slave.commit(50, group="BEYOND")
        slave.commit(7, VERSION_STEP_MAX + 1, group="MADE-UP")
        slave.tables.offsets.merge(VersionedOffset(LONG, "T", 0, QueueOffset(6), 0))
        slave.commit(1, topic="GONE")
        slave.commit(1, group="DELETED-THERE")
        slave.tables.offsets.remove_group("DELETED-THERE")
        nowhere = BrokerMember(2, (Address("nowhere", 1),))
        members = [BrokerMember(0, (MASTER,)), BrokerMember(1, (SLAVE,)), nowhere]
        handlers = slave.service().handlers()
        async with both.network.host("s").serve(handlers, SLAVE, identity=IDENTITY):
            assert await take_over(master, *members) == 4
            assert await take_over(master, *members) == 0
        assert master.offset() == (8, 0)
        assert master.offset("NEWER") == (9, 0)
        assert master.offset("RESET") == (2, 1)
        assert master.offset(LONG) == (6, 0)
        assert master.offset("BEYOND") == (20, 1), "what comes there is new to the group"
        assert master.offset("MADE-UP") == (None, 0)
        assert master.offset("DELETED-THERE") == (3, 0)
        assert master.offset(topic="GONE") == (None, 0)
        assert master.tables.groups.get("RESET") is not None
        await both.connect()
        await until(lambda: slave.offset("BEYOND") == (20, 1), within_s=1)

    async def main() -> None:
        async with pair() as both:
            await scenario(both)

    run_in_virtual_time(main())


class Mute:
    """Takes every question and answers none."""

    async def metadata(
        self,
        stream: ServerStream[replication.MetadataRequest, replication.MetadataReply],
        call: Call,
    ) -> None:
        await asyncio.sleep(100)


def test_silent_slave_delays_start_by_at_most_two_seconds() -> None:
    async def main() -> None:
        async with pair() as both:
            both.connection = None
            loop = asyncio.get_running_loop()
            handlers = [stream(METADATA, Mute().metadata)]
            async with both.network.host("s").serve(handlers, SLAVE, identity=IDENTITY):
                before = loop.time()
                assert await take_over(both.master, BrokerMember(1, (SLAVE,))) == 0
                assert loop.time() - before == pytest.approx(2.0)

    run_in_virtual_time(main())
