from dataclasses import replace

import pytest

from ternmq_model.address import Address
from ternmq_model.errors import IllegalName
from ternmq_model.queue import MessageQueue
from ternmq_model.route import (
    QUEUES_MAX,
    READ_WRITE,
    BrokerData,
    BrokerMember,
    Permission,
    QueueData,
    TopicConfig,
    TopicRoute,
    check_broker_name,
    check_cluster,
    check_topic_config,
    is_order_conf,
    order_sections,
)


def broker(name: str, *ids: int) -> BrokerData:
    members = (BrokerMember(broker_id, (Address(name, 10911),)) for broker_id in ids)
    return BrokerData("c", name, tuple(members))


def queues(name: str, *, read: int = 2, write: int = 2, permissions: int = 6) -> QueueData:
    return QueueData(name, read, write, Permission(permissions))


def ids_of(queues: list[MessageQueue]) -> list[tuple[str, int]]:
    return [(queue.broker_name, queue.queue_id) for queue in queues]


def test_queues_are_sorted_by_broker_then_id() -> None:
    route = TopicRoute("t", (queues("b"), queues("a")), (broker("b", 0), broker("a", 0)))
    expected = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert ids_of(route.write_queues()) == expected
    assert ids_of(route.read_queues()) == expected


def test_write_queues_need_a_writable_topic_and_a_master() -> None:
    route = TopicRoute(
        "t",
        (queues("a"), queues("b", permissions=4), queues("c", permissions=2, write=1)),
        (broker("a", 1), broker("b", 0), broker("c", 0, 1)),
    )
    assert ids_of(route.write_queues()) == [("c", 0)]


def test_readable_topic_is_read_whoever_is_up() -> None:
    route = TopicRoute(
        "t", (queues("a"), queues("b", permissions=2)), (broker("a", 1), broker("b", 0))
    )
    assert ids_of(route.read_queues()) == [("a", 0), ("a", 1)]


def test_order_configuration_fixes_the_queues() -> None:
    route = TopicRoute("t", (queues("a", write=8),), (broker("a", 1),), "b:1;a:2")
    assert ids_of(route.write_queues()) == [("a", 0), ("a", 1), ("b", 0)]


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("a:8", True),
        ("a:8;b:1", True),
        ("", False),
        ("a", False),
        ("a:0", False),
        ("a:8;", False),
        ("a:8;a:8", False),
        ("a:99999", False),
        ("a:-1", False),
    ],
)
def test_order_configuration_has_a_count_for_each_broker(text: str, good: bool) -> None:
    assert is_order_conf(text) is good


def test_slip_in_an_order_configuration_does_not_stop_its_readers() -> None:
    route = TopicRoute("t", order_topic_conf="a:1;;b:x;c:2")
    assert ids_of(route.write_queues()) == [("a", 0), ("c", 0), ("c", 1)]


def test_new_topic_has_the_templates_brokers_and_at_most_the_wanted_queues() -> None:
    template = TopicRoute(
        "TBW102", (queues("a", read=8, write=8), queues("b", read=1, write=8)), (broker("a", 0),)
    )
    route = template.for_new_topic("t", queues_max=4)
    assert route.topic == "t"
    assert [(data.read_queues, data.write_queues) for data in route.queues] == [(4, 4), (1, 1)]
    assert route.brokers == template.brokers
    retry = template.for_new_topic("%RETRY%g", queues_max=4)
    assert [(data.read_queues, data.write_queues) for data in retry.queues] == [(1, 1), (1, 1)]


def test_members_are_found_by_id() -> None:
    data = broker("a", 0, 2)
    assert data.master == data.members[0]
    assert data.member(2) == data.members[1]
    assert data.member(1) is None
    assert broker("a", 1).master is None
    route = TopicRoute("t", brokers=(data,))
    assert route.broker("a") == data
    assert route.broker("b") is None


@pytest.mark.parametrize(
    ("permissions", "text"), [(6, "RW-"), (4, "R--"), (2, "-W-"), (7, "RWX"), (0, "---")]
)
def test_permissions_have_the_form_operators_know(permissions: int, text: str) -> None:
    assert Permission(permissions).text == text


def test_permission_bits_of_a_later_version_are_kept() -> None:
    assert int(Permission(8 | 6).without(Permission.WRITE)) == 8 | 4


@pytest.mark.parametrize("name", ["", ".a", "a/b", "a b", "a\n", "ä", "a" * 128])
def test_illegal_broker_and_cluster_names_are_refused(name: str) -> None:
    with pytest.raises(IllegalName, match="broker name"):
        check_broker_name(name)
    with pytest.raises(IllegalName, match="cluster"):
        check_cluster(name)


@pytest.mark.parametrize("name", ["desk-1.example.org", "hz@broker-a"])
def test_host_name_with_or_without_a_machine_room_is_a_legal_broker_name(name: str) -> None:
    assert check_broker_name(name) == name
    assert list(order_sections(f"{name}:8")) == [(name, 8)]


@pytest.mark.parametrize("name", ["@a", "a@", "a@b@c", "a@.b"])
def test_machine_room_stands_before_a_name_and_a_cluster_has_none(name: str) -> None:
    with pytest.raises(IllegalName, match="broker name"):
        check_broker_name(name)
    with pytest.raises(IllegalName, match="cluster"):
        check_cluster("hz@c")


@pytest.mark.parametrize("count", [-1, QUEUES_MAX + 1])
def test_number_of_queues_of_a_topic_is_bounded(count: int) -> None:
    good = TopicConfig("t", 8, QUEUES_MAX, READ_WRITE)
    assert check_topic_config(good) is good
    for bad in (replace(good, read_queues=count), replace(good, write_queues=count)):
        with pytest.raises(IllegalName, match="topic 't'"):
            check_topic_config(bad)
