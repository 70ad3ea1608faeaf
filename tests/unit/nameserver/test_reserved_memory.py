"""Memory that members of a `RouteTable` take, and that is reserved for those that left."""

from dataclasses import replace

import pytest

from ternmq_model.address import Address
from ternmq_model.data_version import DataVersion
from ternmq_model.errors import BrokerBusy
from ternmq_nameserver.route_table import BROKER_NAMES_MAX, RouteTable
from tests.support.registrations import master, room_for, slave, table_with, topics, unregister


def test_registration_that_would_grow_over_the_bound_changes_nothing() -> None:
    kept, other = master(), slave("b")
    table = RouteTable(bytes_max=room_for(kept, other))
    for registration in (kept, other):
        table.register(registration, now_ms=0)
    for grown in (
        master(topics=topics("t", "u"), data_version=DataVersion(2)),
        slave("b", topics=topics("tt"), data_version=DataVersion(2)),
        slave(),
        master("c"),
        master(endpoints=(*kept.endpoints, Address("a-9", 1))),
    ):
        with pytest.raises(BrokerBusy, match=f"broker {grown.broker_name}: .* bytes of topics"):
            table.register(grown, now_ms=1)
    assert [data.broker_name for data in table.clusters()] == ["a", "b"]
    assert [len(data.members) for data in table.clusters()] == [1, 1]
    assert table.topics() == ["t"]


def test_full_table_takes_signs_of_life_and_what_does_not_grow() -> None:
    kept = master(topics=topics("t", "u"))
    table = RouteTable(bytes_max=room_for(kept))
    table.register(kept, now_ms=0)
    table.register(kept, now_ms=1)
    table.register(replace(kept, incarnation="a-life-2"), now_ms=2)
    renamed = replace(kept, topics=topics("t", "v"), data_version=DataVersion(2))
    table.register(renamed, now_ms=3)
    assert table.topics() == ["t", "v"]


def test_room_comes_back_whichever_way_members_and_topics_go() -> None:
    grown = master(topics=topics("t", "u"), data_version=DataVersion(2))
    table = RouteTable(bytes_max=room_for(grown, slave(topics=())))
    for at_ms in range(0, 1_000_000, 200_000):
        table.register(master(), now_ms=at_ms)
        table.register(slave(), now_ms=at_ms)
        table.register(grown, now_ms=at_ms)
        table.register(slave(broker_id=2, endpoints=slave().endpoints), now_ms=at_ms)
        unregister(table, grown, at_ms)
        table.expire(now_ms=at_ms + 150_000)
        assert table.clusters() == ()


def test_room_of_members_that_left_is_theirs_until_their_expiry() -> None:
    table = RouteTable(bytes_max=room_for(master(topics=topics("t", "u")), slave(topics=())))
    filler = master("b", topics=())
    for at_ms in (0, 1_000_000):
        kept = master(topics=topics("t", "u"))
        table.register(kept, now_ms=at_ms)
        table.register(slave(), now_ms=at_ms)
        unregister(table, slave(), at_ms)
        unregister(table, kept, at_ms)
        for later_ms in (at_ms, at_ms + 120_000):
            table.expire(now_ms=later_ms)
            with pytest.raises(BrokerBusy, match="broker b: "):
                table.register(filler, now_ms=later_ms)
        if not at_ms:
            table.register(slave(topics=topics("t", "u")), now_ms=at_ms)
            table.register(replace(kept, incarnation="a-life-2"), now_ms=at_ms)
            table.expire(now_ms=500_000)
    table.expire(now_ms=1_240_002)
    table.register(filler, now_ms=1_240_002)
    table.register(slave("b", topics=()), now_ms=1_240_002)


def test_place_of_a_slave_that_left_is_its_own_until_its_expiry() -> None:
    table = table_with(*(slave(broker_id=number) for number in range(1, 32)))
    unregister(table, slave(broker_id=7))
    with pytest.raises(BrokerBusy, match="broker a has 31 slaves"):
        table.register(slave(broker_id=32), now_ms=1)
    table.register(slave(broker_id=7), now_ms=1)
    unregister(table, slave(broker_id=7))
    table.expire(now_ms=120_001)
    table.register(slave(broker_id=32), now_ms=120_001)


def test_name_that_left_is_its_own_until_its_expiry() -> None:
    table = RouteTable()
    for number in range(BROKER_NAMES_MAX):
        table.register(master(f"a{number}", topics=()), now_ms=0)
    unregister(table, master("a7"))
    with pytest.raises(BrokerBusy, match="no more fit"):
        table.register(master("b"), now_ms=1)
    table.register(master("a7"), now_ms=1)
    unregister(table, master("a7"))
    table.expire(now_ms=120_001)
    table.register(master("b"), now_ms=120_001)


def test_refused_broker_keeps_what_it_registered_before_it_grew() -> None:
    table = RouteTable(bytes_max=room_for(master()))
    table.register(master(), now_ms=0)
    grown = master(topics=topics("t", "u"), data_version=DataVersion(2))
    for registration in (
        grown,
        replace(grown, incarnation="a-life-2"),
        replace(grown, endpoints=(Address("elsewhere", 1),)),
    ):
        table.register(master(), now_ms=0)
        table.keep_alive(registration, now_ms=100_000)
        assert table.expire(now_ms=200_000) == ()
        assert table.topics() == ["t"]
    for stranger in (
        replace(grown, incarnation="x", endpoints=(Address("elsewhere", 1),)),
        replace(grown, cluster="d"),
        slave(),
        master("b"),
    ):
        table.keep_alive(stranger, now_ms=300_000)
    assert len(table.expire(now_ms=220_001)) == 1


def test_refused_process_unregisters_what_the_one_before_registered() -> None:
    table = RouteTable(bytes_max=room_for(master()))
    table.register(master(), now_ms=0)
    grown = master(topics=topics("t", "u"), data_version=DataVersion(2), incarnation="a-life-2")
    with pytest.raises(BrokerBusy):
        table.register(grown, now_ms=1)
    table.keep_alive(grown, now_ms=1)
    assert unregister(table, master()) == ()
    assert len(unregister(table, grown)) == 1


def test_slaves_leave_the_place_of_the_master_free() -> None:
    table = table_with(*(slave(broker_id=number) for number in range(1, 32)))
    with pytest.raises(BrokerBusy, match="broker a has 31 slaves"):
        table.register(slave(broker_id=32), now_ms=1)
    table.register(slave(broker_id=31), now_ms=1)
    table.register(master(), now_ms=1)
    promoted = slave(broker_id=0, endpoints=slave().endpoints, incarnation="a-1-life-1", epoch=1)
    table.register(promoted, now_ms=2)
    assert [member.broker_id for member in table.clusters()[0].members] == [0, *range(2, 32)]
