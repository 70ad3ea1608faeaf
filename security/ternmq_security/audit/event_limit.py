"""Limit of the lines of one caller, so that nobody's flood pushes out what others did. Pure.

A window begins with an event, and has 10 s. The first event of its like is written at once, and the
others as one line with their number at the end. A user, or a host without a verified user, has a
budget of bytes, and all such hosts together have one. What exceeds a budget counts in one line.
"""

from collections import Counter
from dataclasses import replace
from typing import Final

from ternmq_model.address import ANY_HOST, Address
from ternmq_remoting.security_event import ALLOWED, CANCELLED, SecurityEvent
from ternmq_remoting.service_methods import PUT_ACCESS

WINDOW_MS: Final = 10_000
BUDGET: Final = 256 << 10
"""Bytes of a caller: about 500 lines at once."""

HOSTS_BUDGET: Final = 4 * BUDGET
REFILL: Final = 4 << 10
"""Bytes that come back in a window. A flood needs more than a day for 128 MiB of files."""

FURTHER: Final = "further events of this kind"

Repeats = tuple[SecurityEvent, int, int]
"""Event, number of its repeats, and Unix milliseconds of the last one."""


class EventLimit:
    """Limit of events, but for changes of users, which have a line each. Owned by the audit trail.

    Times are Unix milliseconds.
    """

    def __init__(self, now_ms: int) -> None:
        self._began_ms = now_ms
        self._repeats: dict[SecurityEvent, tuple[int, int]] = {}
        self._used: Counter[str] = Counter()

    def admit(self, event: SecurityEvent, size: int, now_ms: int) -> SecurityEvent | None:
        """Return the event to write now, with a line of `size` bytes; None = it is counted."""
        if event.action == PUT_ACCESS.name and event.outcome in (ALLOWED, CANCELLED):
            return event
        host = event.address.host
        budgets = {host: BUDGET, ANY_HOST: HOSTS_BUDGET}
        if event.user is not None:
            budgets = {f"user {event.user}": BUDGET}
        exceeded = [each for each, most in budgets.items() if self._used[each] >= most]
        key = replace(event, address=Address(host, 0))
        if exceeded and key not in self._repeats:
            key = event = SecurityEvent(
                kind=event.kind,
                user=event.user,
                address=Address(host if exceeded == [host] else ANY_HOST, 0),
                action="*",
                outcome="*",
                reason=FURTHER,
            )
        if (repeats := self._repeats.get(key)) is not None:
            self._repeats[key] = (repeats[0] + 1, now_ms)
            return None
        if not self._repeats:
            self._began_ms = now_ms
        self._repeats[key] = (0, now_ms)
        if not exceeded:
            self._used.update(dict.fromkeys(budgets, size))
        return event

    def ended(self, now_ms: int) -> list[Repeats]:
        """Return the repeated events of the window if it is over, or if the clock was set back."""
        if self._began_ms <= now_ms < self._began_ms + WINDOW_MS:
            return []
        self._began_ms = now_ms
        found = [(event, *repeats) for event, repeats in self._repeats.items() if repeats[0]]
        self._repeats.clear()
        self._used = +Counter({each: used - REFILL for each, used in self._used.items()})
        return found
