"""Routes from NameServers that do not know everything yet."""

from ternmq_client.routes.partial_routes import completed, without
from ternmq_model.address import Address
from ternmq_model.route import READ_WRITE, BrokerData, BrokerMember, QueueData, TopicRoute

A, A1, B = Address("a", 1), Address("a1", 1), Address("b", 1)


def route(**brokers: dict[int, Address]) -> TopicRoute:
    return TopicRoute(
        "t",
        tuple(QueueData(name, 4, 4, READ_WRITE) for name in sorted(brokers)),
        tuple(
            BrokerData("c", name, tuple(BrokerMember(n, (at,)) for n, at in sorted(ids.items())))
            for name, ids in sorted(brokers.items())
        ),
    )


def nobody(_name: str, _id: int) -> bool:
    return False


def everybody(_name: str, _id: int) -> bool:
    return True


def is_a0(name: str, broker_id: int) -> bool:
    return (name, broker_id) == ("a", 0)


WHOLE = route(a={0: A, 1: A1}, b={0: B})


def test_complete_route_is_taken_as_it_is() -> None:
    more = route(a={0: A, 1: A1}, b={0: B}, c={0: Address("c", 1)})
    assert completed(more, WHOLE, nobody) is more
    assert completed(WHOLE, WHOLE, nobody) is WHOLE


def test_missing_brokers_and_members_are_kept() -> None:
    assert completed(route(b={0: B}), WHOLE, nobody) == WHOLE
    assert completed(route(a={1: A1}, b={0: B}), WHOLE, nobody) == WHOLE
    assert completed(None, WHOLE, nobody) == WHOLE


def test_news_of_known_brokers_is_taken() -> None:
    moved = route(b={0: Address("elsewhere", 1)})
    assert completed(moved, WHOLE, nobody) == route(a={0: A, 1: A1}, b={0: Address("elsewhere", 1)})


def test_unreachable_members_are_dropped() -> None:
    found = route(a={1: A1}, b={0: B})
    assert completed(found, WHOLE, is_a0) is found
    assert completed(route(b={0: B}), WHOLE, is_a0) == found


def test_queues_of_unreachable_brokers_are_read_and_not_written() -> None:
    both = route(a={0: A}, b={0: B})
    kept = completed(route(b={0: B}), both, is_a0)
    assert kept.read_queues() == both.read_queues()
    assert {queue.broker_name for queue in kept.write_queues()} == {"b"}


def test_unreachable_brokers_are_written_when_there_is_no_other() -> None:
    assert completed(None, WHOLE, everybody) == WHOLE
    slave_only = route(b={1: B})
    assert {
        queue.broker_name for queue in completed(slave_only, WHOLE, everybody).write_queues()
    } == {"a"}


def test_route_without_a_broker_lacks_its_queues() -> None:
    assert without(WHOLE, {"a"}) == route(b={0: B})


def test_process_with_a_new_id_is_not_kept_under_the_old_one() -> None:
    promoted = route(a={0: A1}, b={0: B})
    assert completed(promoted, WHOLE, nobody) is promoted
