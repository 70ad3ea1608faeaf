import pytest

from ternmq_broker.transactions.check_policy import (
    CheckAction,
    CheckPolicy,
    decide_check,
    must_be_copied,
    next_check_ms,
)
from ternmq_broker.transactions.half_codec import HalfRecord
from ternmq_model.offsets import PhysicalOffset, QueueOffset

POLICY = CheckPolicy(
    timeout_ms=6_000, interval_ms=30_000, checks_max=15, age_max_ms=72 * 3_600_000, span_max=100
)


def half(checks: int = 0, immunity_ms: int | None = None, stored_at_ms: int = 0) -> HalfRecord:
    return HalfRecord(
        transaction=PhysicalOffset(1000),
        physical_offset=PhysicalOffset(1000),
        queue_offset=QueueOffset(3),
        first_queue_offset=QueueOffset(3),
        group="payers",
        message_id="m",
        transaction_id="m",
        topic="flights",
        queue_id=0,
        checks=checks,
        immunity_ms=immunity_ms,
        stored_at_ms=stored_at_ms,
        began_at_ms=0,
    )


@pytest.mark.parametrize(
    ("checks", "immunity_ms", "has_producer", "age_ms", "action", "after_ms"),
    [
        (0, None, True, 0, CheckAction.WAIT, 6_000),
        (0, None, True, 5_999, CheckAction.WAIT, 1),
        (0, None, True, 6_000, CheckAction.ASK, 30_000),
        (0, None, False, 6_000, CheckAction.ALONE, 6_000),
        (0, 0, True, 0, CheckAction.ASK, 30_000),
        (0, 50_000, True, 6_000, CheckAction.WAIT, 44_000),
        (0, 50_000, True, 50_000, CheckAction.ASK, 30_000),
        (0, 1 << 60, True, 6_000, CheckAction.WAIT, 72 * 3_600_000 - 5_999),
        (1, 50_000, True, 6_000, CheckAction.ASK, 30_000),
        (14, None, True, 426_000, CheckAction.ASK, 30_000),
        (15, None, True, 456_000, CheckAction.PARK_CHECKS, 30_000),
        (15, None, False, 456_000, CheckAction.PARK_CHECKS, 30_000),
        (14, None, False, 456_000, CheckAction.ALONE, 6_000),
        (0, None, False, 72 * 3_600_000 + 1, CheckAction.PARK_AGE, 30_000),
        (0, 1 << 60, True, 72 * 3_600_000 + 1, CheckAction.PARK_AGE, 30_000),
    ],
)
def test_open_transaction_waits_is_checked_or_parked(
    checks: int,
    immunity_ms: int | None,
    has_producer: bool,
    age_ms: int,
    action: CheckAction,
    after_ms: int,
) -> None:
    decision = decide_check(
        half(checks, immunity_ms), POLICY, has_producer=has_producer, age_ms=age_ms
    )
    assert (decision.action, decision.after_ms) == (action, after_ms)


@pytest.mark.parametrize(
    ("checks", "immunity_ms", "stored_at_ms", "now_ms", "after_ms"),
    [
        (0, None, 0, 1_000, 5_000),
        (0, None, 0, 60_000, 0),
        (0, 20_000, 0, 5_000, 15_000),
        (2, None, 36_000, 40_000, 26_000),
        (2, None, 36_000, 90_000, 0),
        (2, None, 90_000, 40_000, 30_000),
    ],
)
def test_found_half_message_waits_for_the_rest_of_its_time(
    checks: int, immunity_ms: int | None, stored_at_ms: int, now_ms: int, after_ms: int
) -> None:
    found = half(checks, immunity_ms, stored_at_ms)
    assert next_check_ms(found, POLICY, age_ms=now_ms, now_ms=now_ms) == after_ms


@pytest.mark.parametrize(
    ("behind", "holds_file", "moves"),
    [(100, False, False), (101, False, True), (1, True, True)],
)
def test_half_message_blocking_others_or_a_file_is_moved(
    behind: int, holds_file: bool, moves: bool
) -> None:
    assert must_be_copied(behind=behind, policy=POLICY, holds_file=holds_file) == moves


def staged(immunity_ms: int | None = None, checks: int = 0) -> HalfRecord:
    return half(checks, immunity_ms)._replace(staged_for="q/1")


@pytest.mark.parametrize("has_producer", [True, False])
@pytest.mark.parametrize(
    ("immunity_ms", "age_ms", "action", "after_ms"),
    [
        (None, 5_999, CheckAction.WAIT, 1),
        (None, 6_000, CheckAction.EXPIRE, 30_000),
        (50_000, 6_000, CheckAction.WAIT, 44_000),
        (50_000, 49_999, CheckAction.WAIT, 1),
        (50_000, 50_000, CheckAction.EXPIRE, 30_000),
        (1 << 60, 72 * 3_600_000 - 1, CheckAction.WAIT, 1),
        (1 << 60, 72 * 3_600_000, CheckAction.EXPIRE, 30_000),
        (1 << 60, 80 * 3_600_000, CheckAction.EXPIRE, 30_000),
    ],
)
def test_staged_transaction_expires_without_check(
    immunity_ms: int | None, age_ms: int, action: CheckAction, after_ms: int, has_producer: bool
) -> None:
    decision = decide_check(staged(immunity_ms), POLICY, has_producer=has_producer, age_ms=age_ms)
    assert (decision.action, decision.after_ms) == (action, after_ms)
    wait_ms = next_check_ms(staged(immunity_ms), POLICY, age_ms=age_ms, now_ms=age_ms)
    assert wait_ms == (after_ms if action is CheckAction.WAIT else 0)
