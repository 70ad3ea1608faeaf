"""Limit of repeated events: what is written at once, what is counted, and what a flood costs."""

from typing import Any

from ternmq_model.address import Address
from ternmq_remoting.security_event import EventKind, SecurityEvent
from ternmq_security.audit.event_limit import (
    DIFFERENT_MAX,
    FURTHER,
    OF_HOST_MAX,
    WINDOW_MS,
    EventLimit,
)


def refused(
    resource: str = "topic:T", host: str = "h", port: int = 1, **fields: Any
) -> SecurityEvent:
    given: dict[str, Any] = {
        "kind": EventKind.REFUSED,
        "user": "shop",
        "address": Address(host, port),
        "action": "Send",
        "resource": resource,
        "outcome": "refused",
        "reason": "no",
    }
    return SecurityEvent(**given | fields)


def test_repeats_of_ten_seconds_are_one_event_with_their_number() -> None:
    limit = EventLimit()
    first = refused()
    assert limit.admit(first, 0) is first
    for now_ms in (1, 5_000, WINDOW_MS - 1):
        assert limit.admit(refused(port=now_ms), now_ms) is None
    assert limit.ended(WINDOW_MS - 1) == []
    (window,) = limit.ended(WINDOW_MS)
    assert (window.event, window.repeats, window.last_ms) == (first, 3, WINDOW_MS - 1)
    assert limit.admit(first, WINDOW_MS) is first
    assert limit.ended(3 * WINDOW_MS) == []


def test_each_difference_counts() -> None:
    limit = EventLimit()
    for each in (
        refused(),
        refused("topic:U"),
        refused(host="other"),
        refused(user="bank"),
        refused(user=None, claimed="shop"),
        refused(action="Pull"),
        refused(reason="another"),
        refused(certificate="CN=shop"),
    ):
        assert limit.admit(each, 0) is each


def test_changes_are_never_held_back() -> None:
    limit = EventLimit()
    change = refused(kind=EventKind.ADMIN)
    for _ in range(2 * DIFFERENT_MAX):
        assert limit.admit(change, 0) is change
    assert limit.end_all() == []


def test_flood_of_one_host_is_bounded_and_hides_no_other_host() -> None:
    limit = EventLimit()
    attempts = 10_000
    written = [limit.admit(refused(f"topic:{number}"), 0) for number in range(attempts)]
    lines = [each for each in written if each is not None]
    assert len(lines) == OF_HOST_MAX + 1
    further = lines[-1]
    assert (further.user, further.action, further.resource) == ("shop", "*", None)
    assert (further.reason, str(further.address)) == (FURTHER, "h:0")
    other = refused(host="other")
    assert limit.admit(other, 0) is other
    (window,) = limit.ended(WINDOW_MS)
    assert len(lines) + window.repeats == attempts
    again = refused("topic:1")
    assert limit.admit(again, WINDOW_MS) is again


def test_flood_of_many_hosts_is_bounded() -> None:
    limit = EventLimit()
    attempts = 10_000
    lines = [
        each
        for number in range(attempts)
        if (each := limit.admit(refused(host=f"h{number}"), 0)) is not None
    ]
    assert len(lines) == 2 * DIFFERENT_MAX + 1
    assert str(lines[-1].address) == "*:0"
    assert lines[-1].user is None
    assert len(lines) + sum(each.repeats for each in limit.end_all()) == attempts


def test_clock_that_is_set_back_ends_windows() -> None:
    limit = EventLimit()
    limit.admit(refused(), 1_000_000)
    limit.admit(refused(), 1_000_000)
    (window,) = limit.ended(5)
    assert window.repeats == 1
