"""Whose counters `ternmq broker status` shows."""

import pytest

from ternmq_client.admin.replication import MemberView
from ternmq_console.broker.status import wanted_view
from ternmq_model.address import Address
from ternmq_model.errors import Unreachable
from ternmq_model.route import BrokerData, BrokerMember
from ternmq_protos.v1 import admin_pb2 as pb

MEMBERS = tuple(BrokerMember(number, (Address(f"a-{number}", 1),), 5) for number in (0, 1, 2))
DATA = BrokerData("c", "a", MEMBERS)


def seen(*silent: int) -> list[MemberView]:
    return [
        MemberView(DATA, each, problem=f"a-{each.broker_id} is silent")
        if each.broker_id in silent
        else MemberView(DATA, each, store=pb.DescribeStoreReply())
        for each in MEMBERS
    ]


def test_broker_name_stands_for_its_master_or_else_its_first_slave() -> None:
    assert wanted_view(seen(), "a").member.broker_id == 0
    assert wanted_view(seen(0), "a").member.broker_id == 1
    # A master that stopped in order is not registered at all.
    assert wanted_view(seen()[1:], "a").member.broker_id == 1


def test_address_stands_for_that_member_alone() -> None:
    assert wanted_view(seen(), "a-2:1").member.broker_id == 2
    with pytest.raises(Unreachable, match="broker a: no member answers: a-2 is silent"):
        wanted_view(seen(2), "a-2:1")


def test_silent_members_are_all_named() -> None:
    with pytest.raises(Unreachable, match="a-0 is silent; a-1 is silent; a-2 is silent"):
        wanted_view(seen(0, 1, 2), "a")
