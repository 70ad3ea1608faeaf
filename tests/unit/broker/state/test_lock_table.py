from ternmq_broker.state.lock_table import LockTable, QueueKey
from ternmq_model.errors import PermissionRefused

Q0, Q1 = QueueKey("T", 0), QueueKey("T", 1)


def table() -> LockTable:
    return LockTable(first_token=100, lease_ms=30_000)


def take(locks: LockTable, client: str, *queues: QueueKey, now_ms: int = 0) -> dict[QueueKey, int]:
    return dict(locks.lock("G", client, [(key, 0) for key in queues], now_ms=now_ms))


def is_good(locks: LockTable, key: QueueKey, token: int, now_ms: int = 0) -> bool:
    return locks.check("G", key.topic, key.queue_id, token, now_ms=now_ms) is None


def test_queue_has_one_holder_and_tokens_rise() -> None:
    locks = table()
    assert take(locks, "a", Q0) == {Q0: 100}
    assert take(locks, "b", Q0, Q1) == {Q1: 101}
    assert locks.unlock("G", "a", [(Q0, 100)]) == 1
    assert take(locks, "b", Q0) == {Q0: 102}
    assert not is_good(locks, Q0, 100)
    assert is_good(locks, Q0, 102)


def test_repeated_lock_fences_the_holders_earlier_token() -> None:
    locks = table()
    take(locks, "a", Q0)
    assert take(locks, "a", Q0) == {Q0: 101}
    assert not is_good(locks, Q0, 100)


def test_renewal_keeps_the_token_and_restarts_the_lease() -> None:
    locks = table()
    take(locks, "a", Q0)
    assert locks.lock("G", "a", [(Q0, 100)], now_ms=29_999) == [(Q0, 100)]
    assert is_good(locks, Q0, 100, now_ms=59_998)
    assert not is_good(locks, Q0, 100, now_ms=59_999)


def test_foreign_renewal_takes_nothing() -> None:
    locks = table()
    take(locks, "a", Q0)
    assert locks.lock("G", "b", [(Q0, 100)], now_ms=1) == []
    assert locks.lock("G", "a", [(Q0, 99)], now_ms=1) == []
    assert take(locks, "b", Q0, now_ms=30_000) == {Q0: 101}
    assert locks.lock("G", "a", [(Q0, 100)], now_ms=30_000) == []


def test_late_renewal_of_a_queue_that_nobody_has_used_keeps_the_token() -> None:
    locks = table()
    take(locks, "a", Q0)
    assert not is_good(locks, Q0, 100, now_ms=30_000)
    assert locks.lock("G", "a", [(Q0, 100)], now_ms=30_000) == [(Q0, 100)]
    assert is_good(locks, Q0, 100, now_ms=59_999)


def test_renewal_fails_after_the_use_without_a_lock_or_the_expiry() -> None:
    locks = table()
    take(locks, "a", Q0, Q1)
    assert is_good(locks, Q0, 0, now_ms=30_000)
    assert locks.lock("G", "a", [(Q0, 100), (Q1, 101)], now_ms=30_000) == [(Q1, 101)]
    locks.expire(now_ms=60_000)
    assert locks.lock("G", "a", [(Q1, 101)], now_ms=60_000) == []


def test_stale_token_unlocks_nothing() -> None:
    locks = table()
    take(locks, "a", Q0)
    take(locks, "a", Q0)
    assert locks.unlock("G", "a", [(Q0, 100), (Q1, 5)]) == 0
    assert locks.unlock("G", "b", [(Q0, 101)]) == 0
    assert is_good(locks, Q0, 101)


def test_unlocked_queue_accepts_clients_without_a_token() -> None:
    locks = table()
    assert is_good(locks, Q0, 0)
    take(locks, "a", Q0)
    refused = locks.check("G", "T", 0, 0, now_ms=0)
    assert isinstance(refused, PermissionRefused)
    assert "'a' holds it" in refused.remark
    assert is_good(locks, Q1, 0)
    assert locks.check("H", "T", 0, 0, now_ms=0) is None


def test_token_of_a_lapsed_lock_is_refused() -> None:
    locks = table()
    take(locks, "a", Q0)
    locks.left("a")
    refused = locks.check("G", "T", 0, 100, now_ms=0)
    assert refused is not None
    assert "lock token 100 is stale, no client holds it" in refused.remark


def test_client_leaving_one_group_keeps_its_locks_in_another() -> None:
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


def test_group_is_orderly_while_a_lock_lasts() -> None:
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
