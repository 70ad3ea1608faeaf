"""Time as an argument: protocols of clocks, and the text of a time."""

from datetime import UTC, datetime
from typing import Protocol


def utc_text(at_s: float) -> str:
    """Return Unix seconds as ISO 8601 in UTC with milliseconds: `2026-01-31T12:00:00.000Z`."""
    moment = datetime.fromtimestamp(at_s, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Clock(Protocol):
    """Clock of a process. Only `ternmq_runtime.clock` reads the system's clock."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back: for leases, timeouts and ages."""
        ...

    def wall_ms(self) -> int:
        """Unix milliseconds, which an operator may set back: for time stamps only."""
        ...


class SystemTime(Clock, Protocol):
    """Clock of a machine, from which a `Clock` without set-backs is derived."""

    def boot_ms(self) -> int:
        """Milliseconds that never go back and include a sleep of the machine, if supported."""
        ...
