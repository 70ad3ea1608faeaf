"""The ring: RocketMQ's hash, and where members and queues lie on it."""

import hashlib

import pytest

from ternmq_consumer.rebalance.allocation.consistent_hash import (
    AllocateByConsistentHash,
    hash_of,
    name_of,
)
from ternmq_model.errors import ConfigError
from ternmq_model.queue import MessageQueue

QUEUES = [MessageQueue("topic", "broker", queue_id) for queue_id in range(24)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The first four bytes of the digests in RFC 1321.
        ("", 0xD41D8CD9),
        ("a", 0x0CC175B9),
        ("abc", 0x90015098),
        ("message digest", 0xF96B697D),
        ("abcdefghijklmnopqrstuvwxyz", 0xC3FCD3D7),
    ],
)
def test_hash_is_the_unsigned_beginning_of_the_md5(text: str, expected: int) -> None:
    assert hash_of(text) == expected


def test_queue_is_hashed_by_its_java_name() -> None:
    assert name_of(MessageQueue("T", "B", 3)) == "MessageQueue [topic=T, brokerName=B, queueId=3]"


def ring_walk(queue: MessageQueue, members: list[str], virtual_nodes: int) -> str:
    """Return whose point comes first, by looking at every point of the ring."""

    def place(text: str) -> int:
        return int(hashlib.md5(text.encode()).hexdigest()[:8], 16)

    points = sorted(
        (place(f"{member}-{number}"), member)
        for member in members
        for number in range(virtual_nodes)
    )
    at = place(f"MessageQueue [topic=topic, brokerName=broker, queueId={queue.queue_id}]")
    return next((member for point, member in points if point >= at), points[0][1])


@pytest.mark.parametrize("virtual_nodes", [1, 10, 100])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_queue_belongs_to_the_next_point_of_the_ring(count: int, virtual_nodes: int) -> None:
    members = [f"192.168.1.{number}@DEFAULT" for number in range(count)]
    allocate = AllocateByConsistentHash(virtual_nodes)
    for member in members:
        assert allocate(QUEUES, members, member) == [
            queue for queue in QUEUES if ring_walk(queue, members, virtual_nodes) == member
        ]


def test_ring_is_closed_and_exact_hits_belong_to_their_point() -> None:
    places = {"a-0": 10, "b-0": 20, **{name_of(q): 5 * q.queue_id for q in QUEUES}}
    allocate = AllocateByConsistentHash(1, hash_text=places.__getitem__)
    shares = {m: [q.queue_id for q in allocate(QUEUES[:6], ["a", "b"], m)] for m in ("a", "b")}
    assert shares == {"a": [0, 1, 2, 5], "b": [3, 4]}


def test_departing_member_moves_only_its_own_queues() -> None:
    allocate = AllocateByConsistentHash()
    before = {m: set(allocate(QUEUES, ["a", "b", "c"], m)) for m in ("a", "b", "c")}
    after = {m: set(allocate(QUEUES, ["a", "c"], m)) for m in ("a", "c")}
    assert after["a"] >= before["a"]
    assert after["c"] >= before["c"]
    assert after["a"] | after["c"] == set(QUEUES)


def test_foreign_member_gets_no_queues() -> None:
    assert not AllocateByConsistentHash()(QUEUES, ["a"], "b")
    assert not AllocateByConsistentHash()(QUEUES, [], "b")


@pytest.mark.parametrize("virtual_nodes", [0, -1, 10_001])
def test_impossible_number_of_virtual_nodes_is_refused(virtual_nodes: int) -> None:
    with pytest.raises(ConfigError, match=r"consumer\.allocate\.virtual_nodes"):
        AllocateByConsistentHash(virtual_nodes)
