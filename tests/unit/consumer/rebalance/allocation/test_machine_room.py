"""Shares by machine room, by RocketMQ's rules."""

import pytest

from ternmq_consumer.rebalance.allocation.averagely import allocate_averagely, allocate_by_circle
from ternmq_consumer.rebalance.allocation.machine_room import (
    AllocateByMachineRoom,
    AllocateNearby,
    room_of_broker,
    room_of_member,
)
from ternmq_model.errors import ConfigError
from ternmq_model.queue import MessageQueue


def queues_of(*brokers: str, count: int = 4) -> list[MessageQueue]:
    return [MessageQueue("t", name, queue_id) for name in brokers for queue_id in range(count)]


@pytest.mark.parametrize(
    ("members", "shares"),
    [
        # Seven queues of wanted rooms: each member has its stretch, then one that is left over.
        (1, [[0, 1, 2, 3, 4, 5, 6]]),
        (2, [[0, 1, 2, 6], [3, 4, 5]]),
        (3, [[0, 1, 6], [2, 3], [4, 5]]),
        (4, [[0, 4], [1, 5], [2, 6], [3]]),
        (7, [[0], [1], [2], [3], [4], [5], [6]]),
        (8, [[0], [1], [2], [3], [4], [5], [6], []]),
    ],
)
def test_queues_of_the_wanted_machine_rooms_are_shared_out(
    members: int, shares: list[list[int]]
) -> None:
    wanted = [*queues_of("hz@a", count=2), *queues_of("hz-b", count=2), *queues_of("sh", count=3)]
    others = queues_of("hz_a", "@hz", "bj@hz", "bj-hz", "a-hz@b")
    names = [f"m{number}" for number in range(members)]
    allocate = AllocateByMachineRoom(["hz", "sh"])
    for name, share in zip(names, shares, strict=True):
        found = allocate([*wanted, *others], names, name)
        assert found == [wanted[place] for place in share]
    assert not allocate(wanted, names, "stranger")


@pytest.mark.parametrize("rooms", [[], [""], ["a@b"]])
def test_impossible_machine_rooms_are_refused(rooms: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"consumer\.allocate\.rooms"):
        AllocateByMachineRoom(rooms)


def test_single_machine_room_may_be_given_as_a_string() -> None:
    assert AllocateByMachineRoom("hz")(queues_of("hz@a"), ["m"], "m") == queues_of("hz@a")


@pytest.mark.parametrize(
    ("name", "room"), [("hz@broker-a", "hz"), ("hz-broker-a", "hz"), ("broker", "broker"), ("", "")]
)
def test_machine_room_of_a_broker_is_in_its_name(name: str, room: str) -> None:
    assert room_of_broker(name) == room


def test_machine_room_of_a_member_is_in_its_hosts_name() -> None:
    assert room_of_member("hz-app1@12#99-ab") == "hz"
    assert room_of_member("laptop@12#99") == "laptop@12#99"


def test_queues_go_to_members_of_their_machine_room_and_deserted_rooms_to_all() -> None:
    queues = queues_of("hz-a", "sh-b", "xz-c")
    members = ["bj-1@x", "hz-1@x", "hz-2@x", "sh-1@x"]
    for inner in (allocate_averagely, allocate_by_circle):
        allocate = AllocateNearby(inner)
        shares = {member: allocate(queues, members, member) for member in members}
        hz, sh, xz = queues[:4], queues[4:8], queues[8:]
        assert shares["hz-1@x"] == [*inner(hz, ["1", "2"], "1"), *inner(xz, members, "hz-1@x")]
        assert shares["hz-2@x"] == [*inner(hz, ["1", "2"], "2"), *inner(xz, members, "hz-2@x")]
        assert shares["sh-1@x"] == [*sh, *inner(xz, members, "sh-1@x")]
        assert shares["bj-1@x"] == inner(xz, members, "bj-1@x")
        assert sorted(queue for share in shares.values() for queue in share) == queues
    assert not AllocateNearby(allocate_averagely)(queues, members, "hz-9@x")


def test_application_may_assign_machine_rooms() -> None:
    queues = queues_of("a", "b")
    allocate = AllocateNearby(
        allocate_averagely,
        room_of_broker={"a": "1", "b": "2"}.__getitem__,
        room_of_member={"x": "2", "y": "1"}.__getitem__,
    )
    assert allocate(queues, ["x", "y"], "x") == queues[4:]
    assert allocate(queues, ["x", "y"], "y") == queues[:4]
