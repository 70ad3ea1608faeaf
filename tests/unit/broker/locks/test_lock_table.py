from ternmq_broker.locks.lock_table import LockTable, QueueKey
from ternmq_model.errors import PermissionRefused

Q0, Q1 = QueueKey("T", 0), QueueKey("T", 1)


def table() -> LockTable:
    return LockTable(first_token=100, lease_ms=30_000)


def take(locks: LockTable, client: str, *queues: QueueKey, now_ms: int = 0) -> dict[QueueKey, int]:
    return dict(locks.lock("G", client, [(key, 0) for key in queues], now_ms=now_ms))


def is_good(locks: LockTable, key: QueueKey, token: int, now_ms: int = 0) -> bool:
    return locks.check("G", key.topic, key.queue_id, token, now_ms=now_ms) is None


def test_a_queue_has_one_holder_and_every_holding_its_own_higher_token() -> None:
    locks = table()
    assert take(locks, "a", Q0) == {Q0: 100}
    assert take(locks, "b", Q0, Q1) == {Q1: 101}
    assert locks.unlock("G", "a", [(Q0, 100)]) == 1
    assert take(locks, "b", Q0) == {Q0: 102}
    assert not is_good(locks, Q0, 100)
    assert is_good(locks, Q0, 102)


def test_who_takes_a_queue_again_that_it_holds_fences_its_own_earlier_holding() -> None:
    locks = table()
    take(locks, "a", Q0)
    assert take(locks, "a", Q0) == {Q0: 101}
    assert not is_good(locks, Q0, 100)


def test_a_renewal_keeps_the_token_and_begins_the_lease_anew() -> None:
    locks = table()
    take(locks, "a", Q0)
    assert locks.lock("G", "a", [(Q0, 100)], now_ms=29_999) == [(Q0, 100)]
    assert is_good(locks, Q0, 100, now_ms=59_998)
    assert not is_good(locks, Q0, 100, now_ms=59_999)


def test_a_renewal_that_comes_too_late_or_from_another_takes_nothing() -> None:
    locks = table()
    take(locks, "a", Q0)
    assert locks.lock("G", "b", [(Q0, 100)], now_ms=1) == []
    assert locks.lock("G", "a", [(Q0, 99)], now_ms=1) == []
    assert locks.lock("G", "a", [(Q0, 100)], now_ms=30_000) == []
    assert take(locks, "b", Q0, now_ms=30_000) == {Q0: 101}


def test_a_stale_token_unlocks_nothing() -> None:
    locks = table()
    take(locks, "a", Q0)
    take(locks, "a", Q0)
    assert locks.unlock("G", "a", [(Q0, 100), (Q1, 5)]) == 0
    assert locks.unlock("G", "b", [(Q0, 101)]) == 0
    assert is_good(locks, Q0, 101)


def test_who_has_no_lock_may_act_where_nobody_has_one() -> None:
    locks = table()
    assert is_good(locks, Q0, 0)
    take(locks, "a", Q0)
    refused = locks.check("G", "T", 0, 0, now_ms=0)
    assert isinstance(refused, PermissionRefused)
    assert "'a' holds it" in refused.remark
    assert is_good(locks, Q1, 0)
    assert locks.check("H", "T", 0, 0, now_ms=0) is None


def test_a_token_is_refused_where_nobody_holds_the_queue_any_more() -> None:
    locks = table()
    take(locks, "a", Q0)
    locks.left("a")
    refused = locks.check("G", "T", 0, 100, now_ms=0)
    assert refused is not None
    assert "lock token 100 is stale, nobody holds it" in refused.remark


def test_who_leaves_one_group_keeps_what_it_holds_in_another() -> None:
    locks = table()
    take(locks, "a", Q0)
    locks.lock("H", "a", [(Q0, 0)], now_ms=0)
    locks.left("a", "G")
    assert take(locks, "b", Q0) == {Q0: 102}
    assert locks.check("H", "T", 0, 101, now_ms=0) is None


def test_locks_of_deleted_topics_and_groups_are_gone() -> None:
    locks = table()
    other = QueueKey("U", 0)
    take(locks, "a", Q0, other)
    locks.remove_topic("T")
    assert not is_good(locks, Q0, 100)
    assert is_good(locks, other, 101)
    locks.remove_group("G")
    assert not is_good(locks, other, 101)


def test_a_group_is_orderly_while_a_lock_lasts() -> None:
    locks = table()
    assert not locks.is_orderly("G", now_ms=0)
    take(locks, "a", Q0)
    assert locks.is_orderly("G", now_ms=29_999)
    assert not locks.is_orderly("G", now_ms=30_000)
    holding = locks.holding("G", "T", 0, now_ms=29_999)
    assert holding is not None
    assert holding.client_id == "a"
    locks.expire(now_ms=30_000)
    assert locks.holding("G", "T", 0, now_ms=0) is None
