"""Limit of repeated events, so that nobody fills the disk with refused attempts. Pure.

The first event of its like is written at once, and those of the next 10 s as one line with their
number. A host has lines for 32 different events in 10 s, and all hosts for 512. Other events count
as further ones of their host, and beyond 1024 lines as further ones of any host.
"""

from dataclasses import dataclass, replace
from typing import Final

from ternmq_model.address import ANY_HOST, Address
from ternmq_remoting.security_event import EventKind, SecurityEvent

WINDOW_MS: Final = 10_000
OF_HOST_MAX: Final = 32
DIFFERENT_MAX: Final = 512
FURTHER: Final = "further events of this kind"

_Key = tuple[object, ...]


@dataclass(slots=True)
class EventWindow:
    """Repeats of one event. Owned by its limit."""

    event: SecurityEvent
    began_ms: int
    last_ms: int
    repeats: int = 0


class EventLimit:
    """Limit of refusals and sessions; changes are never held back. Owned by the audit trail."""

    def __init__(self) -> None:
        self._windows: dict[_Key, EventWindow] = {}
        self._by_host: dict[str, int] = {}

    def admit(self, event: SecurityEvent, now_ms: int) -> SecurityEvent | None:
        """Return the event to write now; None = it is counted, for `ended`.

        Args:
            event: Event.
            now_ms: Unix milliseconds.
        """
        if event.kind is EventKind.ADMIN:
            return event
        host, number = event.address.host, len(self._windows)
        of_host = self._by_host.get(host, 0)
        for each, has_space in (
            (event, of_host < OF_HOST_MAX and number < DIFFERENT_MAX),
            (_of_host(event, host), number < 2 * DIFFERENT_MAX),
            (_of_host(replace(event, user=None), ANY_HOST), True),
        ):
            key = _key(each)
            if (window := self._windows.get(key)) is not None:
                window.repeats += 1
                window.last_ms = now_ms
                return None
            if has_space:
                self._windows[key] = EventWindow(each, now_ms, now_ms)
                self._by_host[host] = of_host + 1
                return each
        raise AssertionError("the last one always has space")

    def ended(self, now_ms: int) -> list[EventWindow]:
        """End the windows that began 10 s ago; return those with repeats.

        Args:
            now_ms: Unix milliseconds. A clock that was set back ends every window of the future.
        """
        over = {
            key: window
            for key, window in self._windows.items()
            if not window.began_ms <= now_ms < window.began_ms + WINDOW_MS
        }
        return self._end(over)

    def end_all(self) -> list[EventWindow]:
        """End every window; return those with repeats."""
        return self._end(dict(self._windows))

    def _end(self, over: dict[_Key, EventWindow]) -> list[EventWindow]:
        for key in over:
            del self._windows[key]
        if over:
            self._by_host = {}
            for window in self._windows.values():
                host = window.event.address.host
                self._by_host[host] = self._by_host.get(host, 0) + 1
        return [window for window in over.values() if window.repeats]


def _of_host(event: SecurityEvent, host: str) -> SecurityEvent:
    """Return the event that stands for further ones of a host."""
    return SecurityEvent(
        kind=event.kind,
        user=event.user,
        address=Address(host, 0),
        action="*",
        outcome=event.outcome,
        reason=FURTHER,
    )


def _key(event: SecurityEvent) -> _Key:
    return (
        event.kind,
        event.user,
        event.claimed,
        event.certificate,
        event.address.host,
        event.action,
        event.resource,
        event.reason,
        event.details,
    )
