import pytest

from ternmq_broker.state.clients import ClientSession, ClientTable, GroupMembership
from ternmq_model.address import Address
from ternmq_model.errors import BrokerBusy
from ternmq_model.subscription import parse_subscription


def table() -> ClientTable:
    return ClientTable(broken_ms=10_000, silent_ms=60_000)


def session(
    client_id: str, incarnation: str = "1", now_ms: int = 0, user: str | None = None
) -> ClientSession:
    return ClientSession(client_id, incarnation, Address("127.0.0.1", 5), 0, now_ms, user=user)


def member(group: str = "G", expression: str = "*", version_ms: int = 0) -> GroupMembership:
    subscription = parse_subscription("T", expression, version_ms=version_ms)
    return GroupMembership(group, False, "LAST_OFFSET", {"T": subscription})


def joined(clients: ClientTable, client_id: str, *groups: str, now_ms: int = 0) -> ClientSession:
    new = session(client_id, now_ms=now_ms)
    assert clients.hello(new) is None
    told = {group: member(group) for group in groups}
    clients.heartbeat(new, producer_groups=(), memberships=told, now_ms=now_ms)
    return new


def ids(clients: ClientTable, group: str = "G") -> list[str]:
    return [each.client_id for each in clients.members(group)]


def test_members_come_sorted() -> None:
    clients = table()
    for client_id in ("b", "c", "a"):
        joined(clients, client_id, "G")
    assert ids(clients) == ["a", "b", "c"]
    assert clients.groups() == {"G"}


def test_goodbye_ends_the_membership_at_once() -> None:
    clients = table()
    one, _ = joined(clients, "a", "G", "H"), joined(clients, "b", "G")
    assert clients.remove(one) == {"G", "H"}
    assert ids(clients) == ["b"]
    assert clients.groups() == {"G"}
    assert clients.remove(one) == set()


def test_broken_stream_counts_as_a_member_for_10_s() -> None:
    clients = table()
    one = joined(clients, "a", "G")
    clients.broke(one, now_ms=5_000)
    assert clients.expired(now_ms=14_999) == []
    assert ids(clients) == ["a"]
    assert clients.expired(now_ms=15_000) == [one]


def test_silent_client_is_gone_after_60_s() -> None:
    clients = table()
    one = joined(clients, "a", "G")
    clients.heartbeat(one, producer_groups=(), memberships={"G": member()}, now_ms=30_000)
    assert clients.expired(now_ms=89_999) == []
    assert clients.expired(now_ms=90_000) == [one]


def test_new_stream_of_the_same_incarnation_notifies_no_member() -> None:
    clients = table()
    old = joined(clients, "a", "G")
    new = session("a")
    assert clients.hello(new) is None
    assert not clients.is_current(old)
    assert clients.members("G") == [new]
    told = clients.heartbeat(new, producer_groups=(), memberships={"G": member()}, now_ms=1)
    assert told == set()
    assert clients.remove(old) == set()
    assert clients.members("G") == [new]


def test_another_incarnation_is_refused_while_the_first_is_connected() -> None:
    clients = table()
    first = joined(clients, "a", "G")
    assert clients.hello(session("a", "2")) is first
    assert clients.displaced(session("a", "2")) is None
    clients.remove(first)
    assert clients.hello(session("a", "2")) is None


def test_another_incarnation_displaces_one_whose_stream_broke() -> None:
    clients = table()
    first = joined(clients, "a", "G")
    clients.broke(first, now_ms=1)
    assert clients.displaced(session("a")) is None  # itself again, which keeps its picture
    assert clients.displaced(session("a", "2")) is first
    assert clients.remove(first) == {"G"}
    assert clients.hello(session("a", "2")) is None


def test_members_are_notified_only_when_topics_or_filters_change() -> None:
    clients = table()
    one = joined(clients, "a", "G")

    def heard(**memberships: GroupMembership) -> set[str]:
        return clients.heartbeat(one, producer_groups=(), memberships=memberships, now_ms=1)

    assert heard(G=member(version_ms=7)) == set()
    assert heard(G=member(expression="x")) == {"G"}
    assert heard(G=member(expression="x"), H=member("H")) == {"H"}
    assert heard(H=member("H")) == {"G"}
    assert ids(clients) == []


def test_newest_subscription_of_the_members_counts() -> None:
    clients = table()
    one, two = joined(clients, "a", "G"), joined(clients, "b", "G")
    clients.heartbeat(
        one, producer_groups=(), memberships={"G": member(expression="new", version_ms=2)}, now_ms=1
    )
    clients.heartbeat(
        two, producer_groups=(), memberships={"G": member(expression="old", version_ms=1)}, now_ms=1
    )
    subscription = clients.subscription("G", "T")
    assert subscription is not None
    assert subscription.tags == {"new"}
    assert clients.subscription("G", "Other") is None
    assert clients.subscription("H", "T") is None


def test_producers_of_a_group_come_sorted_and_go_with_their_session() -> None:
    clients = table()
    for client_id in ("b", "a", "other"):
        new = session(client_id)
        clients.hello(new)
        group = "elsewhere" if client_id == "other" else "P"
        clients.heartbeat(new, producer_groups=(group,), memberships={}, now_ms=0)
    assert [each.client_id for each in clients.producers("P")] == ["a", "b"]
    clients.remove(clients.producers("P")[0])
    assert [each.client_id for each in clients.producers("P")] == ["b"]


def test_clients_that_fill_the_table_are_refused_and_cost_nobody_a_place() -> None:
    clients = ClientTable(broken_ms=10_000, silent_ms=60_000, bytes_max=10_000)
    kept = [joined(clients, client_id, "G") for client_id in "abc"]
    large = {"G": member(expression="x" * 100)}
    for one in kept:
        with pytest.raises(BrokerBusy, match="bytes of clients, groups and subscriptions"):
            clients.heartbeat(one, producer_groups=(), memberships=large, now_ms=50_000)
    for client_id in "de":
        assert clients.hello(session(client_id)) is None
    with pytest.raises(BrokerBusy, match="of 10000 are taken"):
        clients.hello(session("f"))
    assert ids(clients) == ["a", "b", "c"]
    assert all(clients.is_current(one) for one in kept)
    assert not {"a", "b", "c"} & {each.client_id for each in clients.expired(now_ms=70_000)}


def test_room_for_clients_comes_back_whichever_way_they_go() -> None:
    clients = ClientTable(broken_ms=10_000, silent_ms=60_000, bytes_max=8_000)
    for _ in range(20):
        first = joined(clients, "a", "G")
        again = session("a")
        assert clients.hello(again) is None
        clients.heartbeat(again, producer_groups=["P"], memberships={}, now_ms=1)
        told = {"G": member(expression="x" * 60)}
        clients.heartbeat(again, producer_groups=(), memberships=told, now_ms=2)
        assert clients.remove(first) == set()
        assert clients.remove(again) == {"G"}
        assert len(clients) == 0


@pytest.mark.parametrize("incarnation", ["1", "2"])
@pytest.mark.parametrize("user", ["mallory", None])
def test_client_id_belongs_to_its_user_until_its_session_is_removed(
    incarnation: str, user: str | None
) -> None:
    clients = table()
    own = session("a", user="shop")
    assert clients.hello(own) is None
    other = session("a", incarnation, user=user)
    for _ in ("open", "broken"):
        assert clients.displaced(other) is None
        assert clients.hello(other) is own
        assert clients.is_current(own)
        clients.broke(own, now_ms=0)
    assert clients.displaced(session("a", "2", user="shop")) is own
    assert clients.hello(session("a", user="shop")) is None
    current = clients.live("a")
    assert current is not None
    clients.remove(current)
    assert clients.hello(other) is None


def test_client_id_from_before_the_first_user_may_be_taken() -> None:
    clients = table()
    old = session("a")
    assert clients.hello(old) is None
    assert clients.hello(session("a", user="shop")) is None
