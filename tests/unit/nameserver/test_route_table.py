from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from ternmq_model.address import Address
from ternmq_model.data_version import DataVersion
from ternmq_model.epochs import EPOCH_STEP_MAX
from ternmq_model.errors import (
    IllegalName,
    InvalidParameter,
    RefusedError,
    TopicNotFound,
)
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import Permission, TopicConfig
from ternmq_nameserver.registration import ENDPOINTS_MAX, BrokerRegistration
from ternmq_nameserver.route_table import RouteTable
from tests.support.examples import examples
from tests.support.registrations import master, slave, table_with, topics, unregister


def test_registered_broker_serves_its_topics() -> None:
    table = table_with(master("b"), master("a", topics=topics("t", "u")))
    route = table.topic_route("t")
    assert [data.broker_name for data in route.queues] == ["a", "b"]
    assert [data.broker_name for data in route.brokers] == ["a", "b"]
    assert len(route.write_queues()) == 16
    assert table.topics() == ["t", "u"]
    with pytest.raises(TopicNotFound, match="no broker has topic v"):
        table.topic_route("v")


def test_topics_and_clusters_are_listed_by_cluster() -> None:
    table = table_with(master("b", cluster="d"), master("a", topics=topics("u")))
    assert table.topics("c") == ["u"]
    assert table.topics("d") == ["t"]
    assert table.topics("e") == []
    assert [(data.cluster, data.broker_name) for data in table.clusters()] == [
        ("c", "a"),
        ("d", "b"),
    ]
    assert [table.clusters(name) for name in ("b", "z")] == [table.clusters()[1:], ()]
    assert [(*name, [*ids]) for *name, ids in table.members()] == [("d", "b", [0]), ("c", "a", [0])]
    assert table.topic_count == 2


def test_silent_broker_is_dropped_after_its_expiry_and_not_before() -> None:
    table = table_with(master("a"), master("b", expiry_ms=5_000))
    assert table.expire(now_ms=5_000) == ()
    (change,) = table.expire(now_ms=5_001)
    assert str(change) == "broker removed cluster=c broker=b broker_id=0 members=0 reason=expired"
    table.register(master("a"), now_ms=100_000)
    assert table.expire(now_ms=220_000) == ()
    assert len(table.expire(now_ms=220_001)) == 1
    assert table.topics() == []


def test_topics_are_read_only_when_the_data_version_differs() -> None:
    table = table_with(master())
    same = table.register(master(topics=topics("t", "u")), now_ms=1)
    assert same.changes == ()
    assert table.topics() == ["t"]
    newer = master(topics=topics("u"), data_version=DataVersion(1, 1))
    (change,) = table.register(newer, now_ms=2).changes
    assert str(change) == "topics changed broker=a topics=1 changed=1 gone=1"
    assert table.topics() == ["u"]
    older = master(topics=topics("w"), data_version=DataVersion(0))
    table.register(older, now_ms=3)
    assert table.topics() == ["w"], "a version that differs is taken, higher or not"


def test_restarted_broker_sends_its_topics_again_with_an_old_data_version() -> None:
    table = table_with(master())
    again = master(incarnation="a-life-2", topics=topics("u"))
    changes = table.register(again, now_ms=1).changes
    assert str(changes[0]).startswith("broker registered cluster=c broker=a broker_id=0")
    assert str(changes[0]).endswith("change=replaced")
    assert table.topics() == ["u"]


def test_stale_goodbye_changes_nothing() -> None:
    before = master()
    table = table_with(before, master(incarnation="a-life-2"))
    route = table.topic_route("t")
    assert unregister(table, before) == ()
    assert unregister(table, master(incarnation="a-life-2", cluster="other")) == ()
    assert unregister(table, slave()) == ()
    assert unregister(table, master("unknown")) == ()
    assert table.topic_route("t") == route
    assert len(unregister(table, master(incarnation="a-life-2"))) == 1
    assert table.clusters() == ()


def test_slave_learns_its_master_and_a_master_learns_none() -> None:
    table = RouteTable()
    assert table.register(slave(), now_ms=0).master_endpoints == ()
    assert table.register(master(), now_ms=0).master_endpoints == ()
    assert table.register(slave(), now_ms=0).master_endpoints == master().endpoints


def test_lone_slave_keeps_the_topics_readable_and_unwritable() -> None:
    table = table_with(master(), slave())
    unregister(table, master())
    route = table.topic_route("t")
    assert len(route.read_queues()) == 8
    assert route.write_queues() == []
    unregister(table, slave())
    with pytest.raises(TopicNotFound):
        table.topic_route("t")


def test_masters_topics_replace_those_of_a_slave() -> None:
    table = table_with(slave(topics=topics("old")))
    assert table.topics() == ["old"]
    table.register(slave(topics=topics("new"), data_version=DataVersion(2)), now_ms=1)
    assert table.topics() == ["new"]
    table.register(master(), now_ms=2)
    table.register(slave(topics=topics("new"), data_version=DataVersion(3)), now_ms=3)
    unregister(table, master())
    table.register(slave(topics=topics("new"), data_version=DataVersion(4)), now_ms=4)
    assert table.topics() == ["t"]


def test_same_address_under_another_id_is_one_member() -> None:
    table = table_with(master(), slave())
    promoted = slave(broker_id=0, endpoints=slave().endpoints, epoch=1)
    changes = table.register(promoted, now_ms=1).changes
    assert any("broker removed cluster=c broker=a broker_id=1" in str(change) for change in changes)
    (data,) = table.clusters()
    assert [member.broker_id for member in data.members] == [0]


def test_lower_epoch_is_refused_and_changes_nothing() -> None:
    table = table_with(master(epoch=3))
    with pytest.raises(RefusedError, match="epoch 2 is over, 3 has begun") as caught:
        table.register(master(epoch=2, incarnation="x", topics=()), now_ms=1)
    assert caught.value.code == ResponseCode.ILLEGAL_OPERATION
    assert table.topics() == ["t"]
    assert len(unregister(table, master())) == 1


def test_master_of_an_epoch_below_a_living_slaves_is_refused() -> None:
    table = table_with(slave(epoch=5))
    with pytest.raises(RefusedError, match="epoch 4 is over"):
        table.register(master(epoch=4), now_ms=1)
    table.register(master(epoch=5), now_ms=1)
    table.register(slave(epoch=4), now_ms=1)  # a slave that has not heard yet


@pytest.mark.parametrize("registration", [master(), slave()])
def test_epoch_far_above_the_highest_known_is_refused(registration: BrokerRegistration) -> None:
    table = table_with(master(epoch=3))
    for known in (0, 10_000):
        far = replace(registration, epoch=max(known, 3) + EPOCH_STEP_MAX + 1)
        with pytest.raises(InvalidParameter, match=r"above .* the highest known.*repair-epoch"):
            table.register(far, now_ms=1, highest_epoch=known)
    table.register(replace(registration, epoch=3 + EPOCH_STEP_MAX), now_ms=1)


def test_refusal_by_an_epoch_that_is_made_up_names_the_repair() -> None:
    with pytest.raises(RefusedError, match=r"epoch 3 is over, .* repair-epoch"):
        RouteTable().register(master(epoch=3), now_ms=1, highest_epoch=1 << 62)
    with pytest.raises(RefusedError, match=r"epoch 3 is over, \d+ has begun \["):
        RouteTable().register(master(epoch=3), now_ms=1, highest_epoch=5 * EPOCH_STEP_MAX)


def test_broker_name_belongs_to_a_single_cluster() -> None:
    table = table_with(master(), slave())
    with pytest.raises(RefusedError, match="belongs to cluster c, not d"):
        table.register(slave(cluster="d"), now_ms=1)
    unregister(table, slave())
    table.register(master(cluster="d"), now_ms=1)
    assert [data.cluster for data in table.clusters()] == ["d"]


def test_wipe_lasts_until_another_process_is_master() -> None:
    table = table_with(master(), slave(), master("b"))
    assert table.wipe_write_permission("a") == 1
    assert table.wipe_write_permission("a") == 0
    newer = master(topics=topics("t", "u"), data_version=DataVersion(2))
    for registration in (master(), newer, slave()):
        table.register(registration, now_ms=1)
    assert table.topic_route("u").queues[0].permissions == Permission.READ
    assert {queue.broker_name for queue in table.topic_route("t").write_queues()} == {"b"}
    unregister(table, master())
    table.register(newer, now_ms=2)
    assert table.topic_route("u").write_queues() == []
    table.register(replace(newer, incarnation="a-life-2"), now_ms=3)
    assert len(table.topic_route("u").write_queues()) == 8


def test_wiped_permissions_alone_can_be_given_back() -> None:
    table = table_with(master(topics=(*topics("t"), TopicConfig("r", 1, 1, Permission.READ))))
    assert table.add_write_permission("a") == 0
    assert table.wipe_write_permission("a") == 1
    assert table.add_write_permission("a") == 1
    assert table.topic_route("t").queues[0].permissions == Permission.READ | Permission.WRITE
    assert table.topic_route("r").queues[0].permissions == Permission.READ


def test_permissions_of_an_unknown_broker_are_not_changed() -> None:
    with pytest.raises(RefusedError, match="no broker x is registered"):
        RouteTable().wipe_write_permission("x")
    with pytest.raises(RefusedError, match="no broker x is registered"):
        RouteTable().add_write_permission("x")


@pytest.mark.parametrize(
    "changes",
    [
        {"broker_id": -1},
        {"epoch": -1},
        {"epoch": (1 << 62) + 1},
        {"expiry_ms": 0},
        {"expiry_ms": 600_001},
        {"incarnation": ""},
        {"incarnation": "x" * 129},
        {"endpoints": ()},
        {"endpoints": (Address("h", 1),) * (ENDPOINTS_MAX + 1)},
        {"endpoints": (Address("h", 0),)},
        {"endpoints": (Address("a b", 1),)},
        {"topics": topics("t", "t")},
    ],
)
def test_impossible_values_are_refused(changes: dict[str, Any]) -> None:
    table = RouteTable()
    with pytest.raises(InvalidParameter, match="broker a: "):
        table.register(master(**changes), now_ms=0)
    assert table.clusters() == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"cluster": ""},
        {"broker_name": "../a"},
        {"topics": topics("../t")},
        {"topics": (TopicConfig("t", -1),)},
    ],
)
def test_illegal_names_are_refused(changes: dict[str, Any]) -> None:
    table = RouteTable()
    with pytest.raises(IllegalName):
        table.register(master(**changes), now_ms=0)
    assert table.clusters() == ()


def test_registration_displaces_no_member_of_another_name() -> None:
    table = table_with(master(), slave(), master("b", endpoints=master().endpoints))
    assert [(data.broker_name, len(data.members)) for data in table.clusters()] == [
        ("a", 2),
        ("b", 1),
    ]
    assert table.topics() == ["t"]


class RouteTableMachine(RuleBasedStateMachine):
    """Brokers come, go and fall silent in any order."""

    registrations = Bundle("registrations")

    def __init__(self) -> None:
        super().__init__()
        self.table = RouteTable()
        self.now_ms = 0
        self.seen: dict[tuple[str, int], tuple[BrokerRegistration, int]] = {}

    @rule(
        target=registrations,
        name=st.sampled_from("ab"),
        broker_id=st.integers(0, 2),
        life=st.integers(1, 2),
        version=st.integers(1, 2),
        names=st.sets(st.sampled_from("tuv")),
    )
    def register(
        self, name: str, broker_id: int, life: int, version: int, names: set[str]
    ) -> BrokerRegistration:
        registration = slave(
            name,
            broker_id,
            incarnation=f"{name}-{broker_id}-{life}",
            data_version=DataVersion(version),
            topics=topics(*sorted(names)),
        )
        self.table.register(registration, now_ms=self.now_ms)
        self.seen[name, broker_id] = registration, self.now_ms
        return registration

    @rule(registration=consumes(registrations))
    def unregister(self, registration: BrokerRegistration) -> None:
        key = registration.broker_name, registration.broker_id
        known = self.seen.get(key)
        before = self.table.clusters(), self.table.topics()
        changes = unregister(self.table, registration)
        if known and known[0].incarnation == registration.incarnation:
            assert len(changes) == 1
            del self.seen[key]
        else:
            assert changes == ()
            assert (self.table.clusters(), self.table.topics()) == before

    @rule(pause_ms=st.integers(0, 130_000))
    def wait(self, pause_ms: int) -> None:
        self.now_ms += pause_ms
        self.table.expire(now_ms=self.now_ms)
        self.seen = {
            key: (registration, seen_ms)
            for key, (registration, seen_ms) in self.seen.items()
            if self.now_ms - seen_ms <= registration.expiry_ms
        }

    @rule(name=st.sampled_from("ab"))
    def wipe(self, name: str) -> None:
        if any(key[0] == name for key in self.seen):
            self.table.wipe_write_permission(name)

    @invariant()
    def exactly_those_who_live_are_told(self) -> None:
        members = {
            (data.broker_name, member.broker_id)
            for data in self.table.clusters()
            for member in data.members
        }
        assert members == self.seen.keys()
        assert all(data.members for data in self.table.clusters())

    @invariant()
    def every_topic_has_a_broker_that_lives(self) -> None:
        living = {data.broker_name for data in self.table.clusters()}
        for topic in self.table.topics():
            route = self.table.topic_route(topic)
            names = [data.broker_name for data in route.queues]
            assert names == [data.broker_name for data in route.brokers]
            assert names == sorted(set(names)), "each broker once, sorted"
            assert set(names) <= living
            assert names


TestRouteTableMachine = RouteTableMachine.TestCase
TestRouteTableMachine.settings = settings(max_examples=examples(60), stateful_step_count=30)
