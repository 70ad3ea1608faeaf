"""Limit of repeated events: what is written at once, what is counted, and what a flood costs."""

from typing import Any

import pytest

from ternmq_model.address import Address
from ternmq_remoting.security_event import EventKind, SecurityEvent
from ternmq_security.audit.event_limit import (
    BUDGET,
    FURTHER,
    HOSTS_BUDGET,
    REFILL,
    WINDOW_MS,
    EventLimit,
)

SIZE = 1024


def refused(
    resource: str = "topic:T", host: str = "h", port: int = 1, **fields: Any
) -> SecurityEvent:
    given: dict[str, Any] = {
        "kind": EventKind.REFUSED,
        "user": None,
        "address": Address(host, port),
        "action": "Send",
        "resource": resource,
        "outcome": "refused",
        "reason": "no",
    }
    return SecurityEvent(**given | fields)


def changed(number: int, user: str = "shop", **fields: Any) -> SecurityEvent:
    given: dict[str, Any] = {
        "kind": EventKind.ADMIN,
        "action": "PutTopic",
        "outcome": "allowed",
        "user": user,
    }
    return refused(f"topic:{number}", **given | fields)


@pytest.mark.parametrize("outcome", ["refused", "allowed", "INVALID_PARAMETER"])
def test_repeats_of_a_window_are_one_event_with_their_number(outcome: str) -> None:
    limit = EventLimit(0)
    first = refused(outcome=outcome)
    assert limit.admit(first, SIZE, 0) is first
    for now_ms in (1, 5_000, WINDOW_MS - 1):
        assert limit.admit(refused(outcome=outcome, port=now_ms), SIZE, now_ms) is None
    assert limit.ended(WINDOW_MS - 1) == []
    assert limit.ended(WINDOW_MS) == [(refused(outcome=outcome, port=0), 3, WINDOW_MS - 1)]
    assert limit.admit(first, SIZE, WINDOW_MS) is first
    assert limit.ended(3 * WINDOW_MS) == []


def test_each_difference_counts() -> None:
    limit = EventLimit(0)
    for each in (
        refused(),
        refused("topic:U"),
        refused(host="other"),
        refused(user="bank"),
        refused(claimed="shop"),
        refused(action="Pull"),
        refused(reason="another"),
        refused(outcome="allowed"),
        refused(certificate="CN=shop"),
    ):
        assert limit.admit(each, SIZE, 0) is each


def test_changes_of_users_are_never_held_back() -> None:
    limit = EventLimit(0)
    for number in range(2 * BUDGET // SIZE):
        limit.admit(changed(number), SIZE, 0)
    for outcome in ("allowed", "cancelled"):
        change = changed(0, action="PutAccess", outcome=outcome)
        assert [limit.admit(change, SIZE, 0) for _ in range(2)] == [change, change]
    failed = changed(0, action="PutAccess", outcome="ILLEGAL_OPERATION")
    further = limit.admit(failed, SIZE, 0)
    assert further is None


@pytest.mark.parametrize("outcome", ["allowed", "INVALID_PARAMETER"])
def test_flood_of_one_user_is_bounded_and_hides_no_other_user(outcome: str) -> None:
    limit = EventLimit(0)
    attempts = 40_000
    events = [
        changed(number, outcome=outcome, host=f"h{number % 100}") for number in range(attempts)
    ]
    lines = [each for event in events if (each := limit.admit(event, SIZE, 0)) is not None]
    assert len(lines) == BUDGET // SIZE + 1
    further = lines[-1]
    assert (further.user, further.action, further.resource) == ("shop", "*", None)
    assert (further.outcome, further.reason, str(further.address)) == ("*", FURTHER, "*:0")
    for other in (changed(0, "bank"), refused()):
        assert limit.admit(other, SIZE, 0) is other
    ((_, repeats, _),) = limit.ended(WINDOW_MS)
    assert len(lines) + repeats == attempts


def test_flood_that_goes_on_gets_few_lines_in_each_window() -> None:
    limit = EventLimit(0)
    written = 0
    for window in range(100):
        now_ms = window * WINDOW_MS
        limit.ended(now_ms)
        for number in range(200):
            written += limit.admit(changed(number), SIZE, now_ms) is not None
    assert written * SIZE <= BUDGET + 100 * (REFILL + SIZE)


def test_flood_of_one_host_hides_no_other_host() -> None:
    limit = EventLimit(0)
    lines = [limit.admit(refused(f"topic:{number}"), SIZE, 0) for number in range(10_000)]
    (*_, further) = filter(None, lines)
    assert str(further.address) == "h:0"
    other = refused(host="other")
    assert limit.admit(other, SIZE, 0) is other


def test_flood_of_many_hosts_is_bounded_and_hides_no_user() -> None:
    limit = EventLimit(0)
    attempts = 10_000
    lines = [
        each
        for number in range(attempts)
        if (each := limit.admit(refused(host=f"h{number}"), SIZE, 0)) is not None
    ]
    assert len(lines) == HOSTS_BUDGET // SIZE + 1
    assert str(lines[-1].address) == "*:0"
    change = changed(0)
    assert limit.admit(change, SIZE, 0) is change
    assert len(lines) + sum(repeats for _, repeats, _ in limit.ended(WINDOW_MS)) == attempts


def test_clock_that_is_set_back_ends_the_window() -> None:
    limit = EventLimit(1_000_000)
    limit.admit(refused(), SIZE, 1_000_000)
    limit.admit(refused(), SIZE, 1_000_000)
    ((_, repeats, _),) = limit.ended(5)
    assert repeats == 1
