import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any, Final

import pytest

from ternmq_broker.replication.role.epoch_poll import (
    EpochAnswer,
    EpochPoll,
    EpochPollResult,
    answer_of,
    missing_slaves,
    named,
)
from ternmq_broker.replication.role.start_policy import MemberAnswer, NameServerAnswer
from ternmq_model.address import Address
from ternmq_model.epochs import EPOCH_MAX, EPOCH_STEP_MAX
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.route import BrokerMember
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Call, Identity, unary
from ternmq_remoting.service_methods import GET_EPOCH, REPLICATION_STATUS
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.memory.memory_network import MemoryNetwork
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time

SOMEWHERE = Address("0.0.0.0", 1)

MASTER: Final = Identity("c", "a", 0, 1)
SLAVE: Final = Identity("c", "a", 1, 1)


def member(broker_id: int, *hosts: str) -> BrokerMember:
    return BrokerMember(broker_id, tuple(Address(host, 1) for host in hosts))


class Finds:
    """Knows these members."""

    def __init__(self, *members: BrokerMember) -> None:
        self._members = members

    async def members(self) -> Sequence[BrokerMember]:
        """Return them."""
        return self._members


def status(
    broker_id: int, name: str = "a", highest_epoch: int = 0
) -> replication.ReplicationStatusReply:
    return replication.ReplicationStatusReply(
        cluster="c",
        broker_name=name,
        broker_id=broker_id,
        epochs=[
            replication.Epoch(number=1, start=0),
            replication.Epoch(number=2, start=50),
            replication.Epoch(number=3, start=200),
        ],
        log_end=100,
        highest_epoch=highest_epoch,
    )


def test_members_are_asked_concurrently_and_silent_ones_named() -> None:
    async def main() -> None:
        async def get_epoch(
            request: nameserver.GetEpochRequest, call: Call
        ) -> nameserver.GetEpochReply:
            assert (request.cluster, request.broker_name) == ("c", "a")
            return nameserver.GetEpochReply(is_known=True, highest_epoch=7)

        async def hang(request: nameserver.GetEpochRequest, call: Call) -> nameserver.GetEpochReply:
            await asyncio.sleep(3600)
            raise AssertionError

        async def tell(
            request: replication.ReplicationStatusRequest, call: Call
        ) -> replication.ReplicationStatusReply:
            return status(1, highest_epoch=9)

        async def tell_other(
            request: replication.ReplicationStatusRequest, call: Call
        ) -> replication.ReplicationStatusReply:
            return status(2, name="b")

        async with (
            MemoryNetwork(Random(1)) as network,
            network.host("ns").serve([unary(GET_EPOCH, get_epoch)], SOMEWHERE),
            network.host("hangs").serve([unary(GET_EPOCH, hang)], SOMEWHERE),
            network.host("s").serve([unary(REPLICATION_STATUS, tell)], SOMEWHERE, identity=SLAVE),
            network.host("other").serve(
                [unary(REPLICATION_STATUS, tell_other)],
                SOMEWHERE,
                identity=Identity("c", "b", 2, 1),
            ),
        ):
            env = Environment(
                clock=VirtualClock(),
                network=network.host("m"),
                random=Random(1),
                blocking=InlineBlocking(),
            )
            epoch_poll = EpochPoll(
                env,
                cluster="c",
                name="a",
                nameservers=[Address(host, 1) for host in ("ns", "hangs", "away")],
                members=Finds(
                    member(0, "gone"), member(1, "s"), member(2, "other"), member(3)
                ).members,
            )
            asked = await epoch_poll.ask()
            assert asyncio.get_running_loop().time() <= 2
            assert asked.answers == (NameServerAnswer(7), MemberAnswer(9, 2, PhysicalOffset(100)))
            assert asked.answered == ("ns:1", "s:1")
            assert asked.unreachable == ("hangs:1", "away:1", "gone:1", "other:1")
            assert (asked.highest, asked.members) == (9, asked.answers[1:])
            assert asked.missing_slaves == (2,)
            assert (await epoch_poll.ask(own_id=1)).answers == (NameServerAnswer(7),)

    run_in_virtual_time(main())


def test_member_reports_the_newest_epoch_of_its_log() -> None:
    assert answer_of(None) is None
    assert answer_of(status(1)) == MemberAnswer(3, 2, PhysicalOffset(100))


@pytest.mark.parametrize(
    ("own_store", "told", "is_counted"),
    [("x", "x", True), ("", "y", True), ("x", "", True), ("x", "y", False)],
)
def test_members_of_another_store_do_not_count(own_store: str, told: str, is_counted: bool) -> None:
    async def main() -> None:
        async def tell(
            request: replication.ReplicationStatusRequest, call: Call
        ) -> replication.ReplicationStatusReply:
            reply = status(0)
            reply.store_id = told
            return reply

        async with (
            MemoryNetwork(Random(1)) as network,
            network.host("m").serve([unary(REPLICATION_STATUS, tell)], SOMEWHERE, identity=MASTER),
        ):
            env = Environment(
                clock=VirtualClock(),
                network=network.host("s"),
                random=Random(1),
                blocking=InlineBlocking(),
            )
            discovery = Finds(member(0, "m"))
            epoch_poll = EpochPoll(
                env,
                cluster="c",
                name="a",
                nameservers=(),
                members=discovery.members,
                store_id=lambda: own_store,
            )
            asked = await epoch_poll.ask(own_id=1)
            assert asked.highest == (3 if is_counted else 0)
            assert asked.has_foreign_master is not is_counted

    run_in_virtual_time(main())


def test_made_up_epochs_are_no_answers(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async def get_epoch(
            request: nameserver.GetEpochRequest, call: Call
        ) -> nameserver.GetEpochReply:
            return nameserver.GetEpochReply(is_known=True, highest_epoch=1 << 62)

        async def tell(
            request: replication.ReplicationStatusRequest, call: Call
        ) -> replication.ReplicationStatusReply:
            return status(0, highest_epoch=1 << 61)

        async def tell_soberly(
            request: replication.ReplicationStatusRequest, call: Call
        ) -> replication.ReplicationStatusReply:
            return status(2)

        async with (
            MemoryNetwork(Random(1)) as network,
            network.host("ns").serve([unary(GET_EPOCH, get_epoch)], SOMEWHERE),
            network.host("m").serve([unary(REPLICATION_STATUS, tell)], SOMEWHERE, identity=MASTER),
            network.host("s").serve(
                [unary(REPLICATION_STATUS, tell_soberly)], SOMEWHERE, identity=SLAVE
            ),
        ):
            env = Environment(
                clock=VirtualClock(),
                network=network.host("x"),
                random=Random(1),
                blocking=InlineBlocking(),
            )
            epoch_poll = EpochPoll(
                env,
                cluster="c",
                name="a",
                nameservers=[Address("ns", 1)],
                members=Finds(member(0, "m"), member(2, "s")).members,
                known=lambda: 3,
            )
            asked = await epoch_poll.ask(own_id=1)
            assert (asked.highest, [each.broker_id for each in asked.accepted]) == (3, [2])
            assert asked.unreachable == ("ns:1", "m:1")
            assert asked.has_foreign_master  # a promotion beside it would be a second one
            assert (await epoch_poll.ask(own_id=1)).highest == 3  # and what is wrong is logged once

    run_in_virtual_time(main())
    assert caplog.text.count("repair-epoch") == 2


FAR = 3 * EPOCH_STEP_MAX


@pytest.mark.parametrize(
    ("nameserver_epoch", "reply", "highest"),
    [
        pytest.param(FAR, {"broker_id": 0, "number": FAR + 1}, FAR + 1, id="NameServer knows"),
        pytest.param(1, {"broker_id": 0, "number": FAR}, 1, id="NameServer knows nothing of it"),
        pytest.param(EPOCH_MAX, {"broker_id": 1, "number": 1}, EPOCH_MAX, id="last of all"),
        pytest.param(None, {"broker_id": 0, "number": FAR}, FAR, id="master"),
        pytest.param(None, {"broker_id": 0, "number": EPOCH_MAX + 1}, 0, id="beyond the last"),
        pytest.param(None, {"broker_id": 1, "number": FAR}, 0, id="slave"),
        pytest.param(None, {"broker_id": 0, "number": FAR, "is_fenced": True}, 0, id="fenced"),
        pytest.param(None, {"broker_id": 0, "number": 1, "heard": FAR}, 0, id="not in its log"),
        pytest.param(None, {"broker_id": 0, "number": FAR, "store_id": ""}, 0, id="of no store"),
    ],
)
def test_epoch_that_is_far_off_is_believed_of_nameservers_or_of_master_that_has_it(
    nameserver_epoch: int | None, reply: dict[str, Any], highest: int
) -> None:
    async def main() -> None:
        async def get_epoch(
            request: nameserver.GetEpochRequest, call: Call
        ) -> nameserver.GetEpochReply:
            return nameserver.GetEpochReply(is_known=True, highest_epoch=nameserver_epoch or 0)

        async def tell(
            request: replication.ReplicationStatusRequest, call: Call
        ) -> replication.ReplicationStatusReply:
            return replication.ReplicationStatusReply(
                cluster="c",
                broker_name="a",
                broker_id=reply["broker_id"],
                store_id=reply.get("store_id", "x"),
                epochs=[replication.Epoch(number=reply["number"], start=0)],
                highest_epoch=reply.get("heard", reply["number"]),
                is_fenced=reply.get("is_fenced", False),
            )

        async with (
            MemoryNetwork(Random(1)) as network,
            network.host("m").serve([unary(REPLICATION_STATUS, tell)], SOMEWHERE, identity=MASTER),
            network.host("ns").serve([unary(GET_EPOCH, get_epoch)], SOMEWHERE),
        ):
            env = Environment(
                clock=VirtualClock(),
                network=network.host("x"),
                random=Random(1),
                blocking=InlineBlocking(),
            )
            epoch_poll = EpochPoll(
                env,
                cluster="c",
                name="a",
                nameservers=[Address("away" if nameserver_epoch is None else "ns", 1)],
                members=Finds(member(reply["broker_id"], "m")).members,
                store_id=lambda: "x",
                known=lambda: 1,
            )
            assert (await epoch_poll.ask(own_id=100)).highest == highest

    run_in_virtual_time(main())


def test_epoch_is_confirmed_by_others_than_who_claims_it() -> None:
    member_answer = MemberAnswer(9, 9, PhysicalOffset(0))
    ns, s = (Address("ns", 1),), (Address("x", 1), Address("s", 1))
    asked = EpochPollResult(
        (EpochAnswer(NameServerAnswer(7), ns), EpochAnswer(member_answer, s, 1)), ()
    )
    assert asked.confirmed({"t": {1}}) == (7, "ns:1")
    assert asked.confirmed({"t": {2}}) == asked.confirmed({"s": {1}, "t": {2}}) == (9, "x:1")
    assert EpochPollResult((), ()).confirmed({"s": {1}}) == (0, "")


def test_stranger_that_claims_an_epoch_under_two_ids_does_not_confirm_itself() -> None:
    member_answer = MemberAnswer(9, 9, PhysicalOffset(0))
    asked = EpochPollResult((EpochAnswer(member_answer, (Address("evil", 1),), 77),), ())
    for claims in ({"evil": {77, 78}}, {"evil": {78, 79}}, {"other": {77, 78}}):
        assert asked.confirmed(claims) == (0, "")


def test_member_reports_whether_it_is_the_master() -> None:
    reply = status(0)
    assert answer_of(reply) == MemberAnswer(3, 2, PhysicalOffset(100), is_master=True)
    reply.is_fenced = True
    assert answer_of(reply) == MemberAnswer(3, 2, PhysicalOffset(100))


def test_slave_known_under_another_id_is_not_missing() -> None:
    both = (member(0, "s", "ns"), None), (member(1, "s", "ns"), None)
    assert missing_slaves(both, own_id=100) == ()
    apart = (member(0, "m", "ns"), None), (member(1, "s", "ns"), None)
    assert missing_slaves(apart, own_id=100) == (1,)
    assert missing_slaves(apart, own_id=1) == ()
    assert missing_slaves([(member(1, "s"), status(1))], own_id=None) == ()


def test_empty_answer_has_no_members_and_reads_as_nobody() -> None:
    asked = EpochPollResult((), ())
    assert (asked.highest, asked.members) == (0, ())
    assert named(asked.answered) == "nobody"
    assert named(("a:1", "b:2")) == "a:1,b:2"
