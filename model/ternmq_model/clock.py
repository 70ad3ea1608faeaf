"""Time as an argument: protocols of clocks."""

from typing import Protocol


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
