import asyncio

from ternmq_broker.groups.filters.filter_registry import FilterRegistry
from ternmq_broker.groups.sessions import SessionManager
from ternmq_broker.state.clients import ClientSession, ClientTable, GroupMembership
from ternmq_broker.state.filters import FilterTable
from ternmq_model.address import Address
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.subscription import SQL92, parse_subscription


class StillClock:
    """A clock that stands."""

    def monotonic_ms(self) -> int:
        return 7

    def wall_ms(self) -> int:
        return 1_000_000


class Place:
    """Sessions and what is registered of them."""

    def __init__(self, log_end: int = 0) -> None:
        self.clock = StillClock()
        self.table = FilterTable()
        clients = ClientTable(broken_ms=1, silent_ms=1)
        self.registry = FilterRegistry(
            self.table, clients, self.clock, log_end=lambda: PhysicalOffset(log_end)
        )
        self.sessions = SessionManager(self.clock, clients, on_group=self.registry.group_changed)

    def member(self, client_id: str) -> ClientSession:
        session = ClientSession(client_id, "1", Address("h", 1), 0, 0)
        self.sessions.open(session)
        return session

    def says(self, session: ClientSession, *expressions: str, version_ms: int = 1) -> None:
        subscriptions = {
            f"T{number}": parse_subscription(f"T{number}", text, SQL92, version_ms=version_ms)
            for number, text in enumerate(expressions)
        }
        subscriptions["tagged"] = parse_subscription("tagged", "x", version_ms=version_ms)
        membership = GroupMembership("G", False, "", subscriptions)
        self.sessions.heartbeat(session, (), {"G": membership})


def test_conditions_of_members_are_registered_until_last_one_leaves() -> None:
    place = Place()
    one, two = place.member("a"), place.member("b")
    place.says(one, "a = 1", "b = 2")
    place.says(two, "a = 1", "b = 2", version_ms=2)
    assert [(each.topic, each.client_version) for each in place.table] == [("T0", 2), ("T1", 2)]
    place.sessions.goodbye(two)
    assert not any(each.dead_at_ms for each in place.table)
    place.says(one, "a = 1", version_ms=3)
    assert [bool(each.dead_at_ms) for each in place.table] == [False, True]
    place.sessions.goodbye(one)
    assert all(each.dead_at_ms for each in place.table)


def test_group_left_by_a_heartbeat_uses_no_filter_any_more() -> None:
    place = Place()
    one = place.member("a")
    place.says(one, "a = 1")
    place.sessions.heartbeat(one, (), {})
    assert all(each.dead_at_ms for each in place.table)


def test_bit_maps_tell_of_a_condition_from_the_logs_end_on() -> None:
    place = Place(log_end=1 << 50)
    place.says(place.member("a"), "a = 1")
    (one,) = place.table
    assert one.begin == 1 << 50


def test_unused_filter_is_forgotten_after_a_day() -> None:
    async def main() -> None:
        place = Place()
        one = place.member("a")
        place.says(one, "a = 1")
        place.sessions.goodbye(one)
        await place.registry.clean()
        assert place.table.get("T0", "G") is not None
        (entry,) = place.table
        place.table.clean(now_ms=entry.dead_at_ms + 86_399_999)
        assert place.table.get("T0", "G") is not None
        gone = place.table.clean(now_ms=entry.dead_at_ms + 86_400_000)
        assert [each.group for each in gone] == ["G"]
        assert place.table.get("T0", "G") is None

    asyncio.run(main())
