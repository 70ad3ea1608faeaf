import pytest

from ternmq_broker.replication.master.in_sync import (
    EVERYWHERE,
    FAR_BYTES,
    NEAR_BYTES,
    FollowerProgress,
    InSync,
)
from ternmq_model.errors import InvalidParameter
from ternmq_model.offsets import PhysicalOffset

MIB = 1 << 20


def at(offset: int) -> PhysicalOffset:
    return PhysicalOffset(offset)


def joined(
    in_sync: InSync, broker_id: int = 1, *, has: int, end: int, now_ms: int = 0
) -> FollowerProgress:
    """Return a follower that was sent all and has acknowledged `has`."""
    follower = in_sync.join(broker_id, at(0))
    in_sync.sent(follower, at(end), now_ms=now_ms)
    in_sync.acknowledge(follower, at(has), end=at(end), now_ms=now_ms)
    return follower


def counts(follower: FollowerProgress) -> bool:
    return follower.counts


def sync(needed: int = 1) -> InSync:
    return InSync(needed=needed, slave_timeout_ms=3000)


def test_masters_own_disk_decides_without_slaves() -> None:
    for in_sync in (sync(0), sync(1)):
        assert in_sync.confirm(at(100)) == 100
    assert sync(0).replicated_to == EVERYWHERE
    assert sync(0).is_enough
    assert sync(1).replicated_to == 0
    assert not sync(1).is_enough


@pytest.mark.parametrize(
    ("lacks", "counts"),
    [(0, True), (1, True), (NEAR_BYTES, True), (NEAR_BYTES + 1, False), (FAR_BYTES, False)],
)
def test_slave_counts_once_it_is_near_the_end(lacks: int, counts: bool) -> None:
    in_sync, end = sync(), FAR_BYTES * 2
    follower = joined(in_sync, has=end - lacks, end=end)
    assert follower.counts is counts
    assert in_sync.is_enough is counts


def test_joining_slave_does_not_count_before_its_first_acknowledgement() -> None:
    in_sync = sync()
    follower = in_sync.join(1, at(100))
    assert not follower.counts
    assert in_sync.replicated_to == 0


def test_master_waits_for_a_slave_from_where_it_began_to_count() -> None:
    in_sync = sync()
    in_sync.confirm(at(500))
    follower = joined(in_sync, has=400, end=1000)
    assert in_sync.confirm(at(900)) == 900  # appended before it counted: the disk alone decides
    in_sync.sent(follower, at(3000), now_ms=1)
    assert in_sync.confirm(at(3000)) == 1000
    in_sync.acknowledge(follower, at(2000), end=at(3000), now_ms=2)
    assert in_sync.confirm(at(3000)) == 2000
    assert in_sync.confirm(at(1500)) == 2000
    assert in_sync.replicated_to == 2000


def test_confirmed_message_counts_as_replicated_only_when_acknowledged() -> None:
    in_sync = sync()
    joined(in_sync, has=400, end=1000)
    assert in_sync.confirm(at(1000)) == 1000
    assert in_sync.replicated_to == 400


def test_joining_slave_releases_nothing_an_earlier_one_still_lacks() -> None:
    in_sync = sync()
    first = joined(in_sync, 1, has=100, end=100)
    in_sync.sent(first, at(1000), now_ms=1)
    second = joined(in_sync, 2, has=100, end=1000)
    assert counts(second)
    assert in_sync.confirm(at(1000)) == 100  # neither has more, and the first is waited for
    in_sync.acknowledge(second, at(400), end=at(1000), now_ms=2)
    assert in_sync.confirm(at(1000)) == 400
    in_sync.leave(first)
    assert in_sync.confirm(at(1000)) == 1000  # the second is waited for from there on


def test_two_slaves_are_waited_for_from_where_the_second_joined() -> None:
    in_sync = sync(2)
    first = joined(in_sync, 1, has=100, end=100)
    second = joined(in_sync, 2, has=100, end=500)
    assert in_sync.confirm(at(400)) == 400
    for follower, has in ((first, 900), (second, 600)):
        in_sync.sent(follower, at(1000), now_ms=1)
        in_sync.acknowledge(follower, at(has), end=at(1000), now_ms=1)
    joined(in_sync, 3, has=700, end=1000)
    assert in_sync.confirm(at(1000)) == 700
    assert in_sync.replicated_to == 700


def test_three_replicas_need_acknowledgements_of_two_slaves() -> None:
    in_sync = sync(2)
    first = joined(in_sync, 1, has=100, end=100)
    assert in_sync.counting == 1
    second = joined(in_sync, 2, has=100, end=100)
    third = joined(in_sync, 3, has=100, end=100)
    for follower, offset in ((first, 400), (second, 300), (third, 200)):
        in_sync.sent(follower, at(500), now_ms=1)
        in_sync.acknowledge(follower, at(offset), end=at(500), now_ms=1)
    assert in_sync.confirm(at(500)) == 300
    assert in_sync.replicated_to == 300
    in_sync.leave(first)
    assert in_sync.counting == 2
    assert in_sync.replicated_to == 200
    assert in_sync.confirm(at(500)) == 300
    in_sync.leave(second)
    assert in_sync.counting == 1
    assert in_sync.confirm(at(450)) == 450
    assert in_sync.replicated_to == 0


def test_silent_lagging_slave_ceases_to_count() -> None:
    in_sync = sync()
    follower = joined(in_sync, has=100, end=100)
    assert not in_sync.expire_silent(
        end=at(100), now_ms=60_000
    )  # it lacks nothing: silence is no fault
    in_sync.sent(follower, at(200), now_ms=60_000)
    assert not in_sync.expire_silent(end=at(200), now_ms=62_999)
    in_sync.acknowledge(follower, at(100), end=at(200), now_ms=62_999)  # nothing new
    assert in_sync.confirm(at(200)) == 100
    assert in_sync.expire_silent(end=at(200), now_ms=63_000) == [follower]
    assert not counts(follower)
    assert in_sync.confirm(at(200)) == 200
    in_sync.acknowledge(follower, at(100), end=at(200), now_ms=63_001)
    assert not counts(follower)  # as near as ever, but it says nothing new
    in_sync.acknowledge(follower, at(150), end=at(200), now_ms=63_002)
    assert counts(follower)
    assert follower.counts_from == 200


def test_progress_keeps_a_slow_slave_counting() -> None:
    in_sync = sync()
    follower = joined(in_sync, has=100, end=100)
    in_sync.sent(follower, at(200), now_ms=0)
    for second in range(1, 10):
        in_sync.acknowledge(follower, at(100 + second), end=at(200), now_ms=second * 1000)
        assert not in_sync.expire_silent(end=at(200), now_ms=second * 1000 + 999)


def test_unsent_appends_count_as_lag() -> None:
    in_sync = sync()
    follower = joined(in_sync, has=100, end=100)
    assert not in_sync.expire_silent(end=at(200), now_ms=1000)
    assert in_sync.expire_silent(end=at(200), now_ms=4000) == [follower]


def test_slave_far_behind_ceases_to_count() -> None:
    in_sync = sync()
    follower = joined(in_sync, has=100, end=100)
    assert not in_sync.expire_silent(end=at(100 + FAR_BYTES - 1), now_ms=1)
    assert in_sync.expire_silent(end=at(100 + FAR_BYTES), now_ms=1) == [follower]
    assert not in_sync.expire_silent(end=at(100 + FAR_BYTES), now_ms=1)


@pytest.mark.parametrize("wild", [201, 1 << 62, 99, -1])
def test_wild_acknowledgement_changes_nothing(wild: int) -> None:
    in_sync = sync()
    follower = joined(in_sync, has=100, end=100)
    in_sync.sent(follower, at(200), now_ms=1)
    before = (follower.acknowledged, follower.counts_from, follower.lacks_since_ms)
    with pytest.raises(InvalidParameter, match="acknowledges"):
        in_sync.acknowledge(follower, at(wild), end=at(300), now_ms=2)
    assert (follower.acknowledged, follower.counts_from, follower.lacks_since_ms) == before
    assert in_sync.confirm(at(300)) == 100
    assert in_sync.replicated_to == 100


def test_broker_id_follows_once_and_leaves_alone() -> None:
    in_sync = sync()
    first = joined(in_sync, has=MIB, end=MIB)
    with pytest.raises(InvalidParameter, match="id 1 follows already"):
        in_sync.join(1, at(0))
    in_sync.leave(first)
    second = joined(in_sync, has=MIB, end=MIB)
    in_sync.leave(first)
    assert in_sync.followers == [second]
    assert in_sync.counting == 1
