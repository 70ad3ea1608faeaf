"""What changes when the share changes, and when a look must be repeated."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from ternmq_consumer.rebalance.allocation.averagely import allocate_averagely
from ternmq_consumer.rebalance.allocation.machine_room import AllocateByMachineRoom
from ternmq_consumer.rebalance.allocation.strategy import AllocationStrategy
from ternmq_consumer.rebalance.rebalancer import (
    MISSES_MAX,
    AssignmentChange,
    KnownMembers,
    Rebalancer,
    change_of,
)
from ternmq_model.address import Address
from ternmq_model.errors import TernError, Unreachable, refusal
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import BrokerData, BrokerMember, Permission, QueueData, TopicRoute
from ternmq_model.subscription import Subscription, parse_subscription
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.rpc import Connection
from ternmq_runtime.timers import LOOP_TIMERS, Wait

QUEUES = [MessageQueue("t", name, queue_id) for name in ("a", "b") for queue_id in (0, 1)]


def test_change_names_revoked_and_assigned_queues() -> None:
    assert change_of(QUEUES[:2], QUEUES[1:3]) == AssignmentChange([QUEUES[0]], [QUEUES[2]])
    assert change_of(QUEUES, QUEUES) == AssignmentChange([], [])


def test_member_listed_before_stays_until_the_new_broker_settles() -> None:
    known = KnownMembers()
    assert known.take(["a", "b", "c"], "old", is_settled=True) == ["a", "b", "c"]
    assert known.take(["a"], "new", is_settled=False) == ["a", "b", "c"]
    assert not known.is_certain
    assert known.take(["a", "b", "d"], "new", is_settled=False) == ["a", "b", "c", "d"]
    # It has said goodbye: this broker had listed it.
    assert known.take(["a", "d"], "new", is_settled=False) == ["a", "c", "d"]
    assert known.take(["a", "d"], "newer", is_settled=False) == ["a", "c", "d"]
    assert known.take(["a", "d"], "newer", is_settled=True) == ["a", "d"]
    assert known.is_certain


def test_member_that_leaves_first_broker_is_gone_at_once() -> None:
    known = KnownMembers()
    assert known.take(["a", "b"], "first", is_settled=False) == ["a", "b"]
    assert known.take(["a"], "first", is_settled=False) == ["a"]
    assert known.is_certain


def topic_missing() -> TernError:
    return refusal(ResponseCode.TOPIC_NOT_EXIST, "topic 't' does not exist")


class World:
    """Brokers, routes and owned queues of one member, all as a test sets them."""

    def __init__(self) -> None:
        self.members: dict[str, list[str] | None] = {"a": ["me", "you"], "b": ["me", "you"]}
        self.route_error: TernError | None = None
        self.listing_error: TernError | None = None
        self.can_start = True
        self.queues: list[MessageQueue] = []
        self.allocate: AllocationStrategy = allocate_averagely
        self.settled = 0
        self.retries = 0
        self.permissions = Permission(6)
        self.permissions_at: dict[str, Permission] = {}
        self.read_queues = 2
        self.refusals: list[str] = []
        self.now_ms = 0
        self.told_since: list[int | None] = []
        self.untold: set[str] = set()

    async def route(self, topic: str) -> TopicRoute:
        if self.route_error is not None:
            raise self.route_error
        return TopicRoute(
            topic,
            tuple(
                QueueData(
                    name, self.read_queues, 2, self.permissions_at.get(name, self.permissions)
                )
                for name in ("a", "b")
            ),
            tuple(
                BrokerData("c", name, (BrokerMember(0, (Address(name, 1),)),))
                for name in ("a", "b")
            ),
        )

    def is_registered(self, topic: str, broker_name: str) -> bool:
        return broker_name not in self.untold

    async def broker(self, broker_name: str, broker_id: int = 0) -> Connection:
        if self.listing_error is not None:
            raise self.listing_error
        if self.members[broker_name] is None:
            raise Unreachable(broker_name)
        return cast("Connection", _Lists(self.members[broker_name] or []))

    def forget(self, broker_name: str, connection: Connection, broker_id: int = 0) -> None:
        raise AssertionError("nothing failed")

    def session_since_ms(self, broker_name: str, broker_id: int) -> tuple[int | None, bool]:
        return 0, True

    def members_to_list(self, route: TopicRoute) -> list[tuple[str, int]]:
        return [(data.broker_name, 0) for data in route.brokers]

    async def start(
        self, wanted: Mapping[MessageQueue, Subscription], since_ms: int | None
    ) -> bool:
        self.told_since.append(since_ms)
        if self.can_start:
            self.queues = sorted([*self.queues, *wanted])
        return self.can_start

    async def drop(self, queues: Sequence[MessageQueue]) -> None:
        self.queues = [queue for queue in self.queues if queue not in queues]

    def look(self, count: int = 1) -> None:
        """Run that many steps."""

        def settle() -> None:
            self.settled += 1

        def retry(_: Wait) -> None:
            self.retries += 1

        if not hasattr(self, "_rebalancer"):
            self._rebalancer = Rebalancer(
                self,
                self,
                self,
                group="g",
                client_id="me",
                subscriptions={"t": parse_subscription("t", "*")},
                allocate=self.allocate,
                timeout_s=1,
                take_over_wait_s=0,
                timers=LOOP_TIMERS,
                wall_ms=lambda: self.now_ms,
                on_settled=settle,
                retry_soon=retry,
                on_refused=lambda error: self.refusals.append(error.remark),
            )
        for _ in range(count):
            asyncio.run(self._step())

    async def _step(self) -> None:
        assert not await self._rebalancer.step()


class _Lists:
    def __init__(self, members: list[str]) -> None:
        self._members = members

    async def call(self, rpc: object, request: Any, *, timeout_s: float) -> Any:
        assert request.group == "g"
        return groups.ListMembersReply(client_ids=self._members)


def test_rebalance_makes_the_owned_queues_the_share() -> None:
    world = World()
    world.look()
    assert world.queues == QUEUES[:2]
    world.members["a"] = ["me"]
    world.look()
    assert world.queues == QUEUES
    world.members["a"] = ["i am before", "me"]
    world.look()
    assert world.queues == QUEUES[2:]
    assert (world.settled, world.retries) == (3, 0)


def test_queues_are_started_with_when_the_topic_was_first_shared() -> None:
    world = World()
    world.can_start, world.route_error = False, Unreachable("no nameserver")
    for world.now_ms in range(4):
        world.look()
        world.route_error = None
    assert world.told_since == [None, 1, 1]


def test_another_broker_is_asked_when_the_first_is_silent() -> None:
    world = World()
    world.members["a"] = None
    world.members["b"] = ["me"]
    world.look()
    assert world.queues == QUEUES


def test_owned_queues_stay_without_route_or_members() -> None:
    world = World()
    world.look()
    world.route_error = Unreachable("no nameserver")
    world.look()
    world.route_error = None
    world.members = {"a": None, "b": None}
    world.look()
    assert world.queues == QUEUES[:2]
    assert (world.settled, world.retries) == (1, 2)


def test_unlisted_member_gives_its_queues_away_after_some_rebalances() -> None:
    world = World()
    world.look()
    world.members["a"] = ["you"]
    world.look(MISSES_MAX - 1)
    assert world.queues == QUEUES[:2], "a broker that restarts hears from its clients one by one"
    world.look()
    assert world.queues == []
    world.members["a"] = ["me", "you"]
    world.look()
    assert world.queues == QUEUES[:2]


def test_unreadable_topic_is_given_away_and_reported_at_each_rebalance() -> None:
    world = World()
    world.look()
    world.permissions = Permission.WRITE
    world.look(3)
    assert world.queues == []
    assert world.refusals == ["topic 't' may not be read: a, b permit no reading"] * 3
    world.permissions = Permission.READ
    world.look()
    assert world.queues == QUEUES[:2]
    assert (world.settled, world.retries, len(world.refusals)) == (5, 0, 3)
    world.read_queues = 0
    world.look()
    assert world.refusals[3:] == ["topic 't' may not be read: it has no queues to read"]


def test_brokers_that_permit_no_reading_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def told() -> list[str]:
        return [line for line in caplog.messages if "read in part topic=t " in line]

    world = World()
    world.members = {"a": ["me"], "b": ["me"]}
    world.look(2)
    assert told() == []
    world.permissions_at["b"] = Permission.WRITE
    world.look(3)
    assert world.queues == QUEUES[:2]
    assert [line.endswith("not_permitted_at=b") for line in told()] == [True]
    world.permissions_at.clear()
    world.look()
    world.permissions_at["a"] = Permission.WRITE
    world.look(2)
    assert len(told()) == 2
    assert world.refusals == []


@pytest.mark.parametrize(("rooms", "told"), [("ab", []), ("ac", ["b"]), ("c", ["a", "b"])])
def test_queues_of_no_machine_room_are_logged_once(
    rooms: str, told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    world.allocate = AllocateByMachineRoom([*rooms])
    world.look(3)
    lines = [line for line in caplog.messages if "outside the machine rooms" in line]
    assert [line.partition("brokers=")[2] for line in lines] == [str(told)] * bool(told)
    assert world.settled == 3


@pytest.mark.parametrize(
    ("error", "level", "looks"),
    [
        (topic_missing(), "WARNING", 1),  # most likely it is mistyped
        (refusal(ResponseCode.NO_PERMISSION, "not you"), "WARNING", 1),
        (Unreachable("no nameserver"), "INFO", 1),
        (Unreachable("no nameserver"), "WARNING", 10),
    ],
)
def test_route_that_will_not_come_by_itself_is_warned_of_at_once(
    error: TernError, level: str, looks: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ternmq_consumer.rebalance.rebalancer")
    world = World()
    world.route_error = error
    for _ in range(looks):
        world.look()
        world.now_ms += 1000
    told = [record.levelname for record in caplog.records]
    assert told == ["INFO"] * (looks > 1) + [level]
    caplog.clear()
    for _ in range(20):
        world.look()
        world.now_ms += 1000
    assert len(caplog.records) == (level == "INFO")


def test_topic_that_was_shared_is_no_warning_when_it_goes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "ternmq_consumer.rebalance.rebalancer")
    world = World()
    world.look()
    caplog.clear()
    world.route_error = topic_missing()
    world.look()
    world.look(20)  # within no time: what changes meanwhile brings looks as well
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_refusal_to_list_members_is_warned_of_at_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.listing_error = refusal(ResponseCode.NO_PERMISSION, "not this group")
    world.look(3)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "not this group" in caplog.text


def test_empty_member_list_gives_nothing_away() -> None:
    world = World()
    world.look()
    world.members["a"] = []
    world.look(10)
    assert world.queues == QUEUES[:2]


def test_queue_that_cannot_be_taken_over_is_retried_soon() -> None:
    world = World()
    world.can_start = False
    world.look()
    assert (world.settled, world.retries) == (0, 1)
    world.can_start = True
    world.look()
    assert world.queues == QUEUES[:2]
    assert world.settled == 1


def test_share_is_of_told_brokers_and_queues_of_kept_ones_stay() -> None:
    world = World()
    world.members = {"a": ["me", "you"], "b": ["me"]}
    world.queues = [QUEUES[0], *QUEUES[2:]]  # of a shorter list of members
    world.untold = {"b"}
    world.look()
    assert world.queues == [QUEUES[0], *QUEUES[2:]]
    world.members = {"a": ["me", "they", "you"], "b": ["me"]}
    world.queues = QUEUES[3:]
    world.look()
    assert world.queues == [QUEUES[0], QUEUES[3]]
    world.untold = {"a", "b"}
    world.look()
    assert world.queues == [QUEUES[0], QUEUES[3]]
