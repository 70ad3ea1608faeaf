"""Time as an argument: the protocols through which anything learns what time it is."""

from typing import Protocol


class Clock(Protocol):
    """Reads time. Only `ternmq_runtime.clock` reads the system's."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back: for leases, timeouts and ages."""
        ...

    def wall_ms(self) -> int:
        """Unix milliseconds, which an operator may set back: for time stamps only."""
        ...


class SystemTime(Clock, Protocol):
    """A machine's own clock, from which a `Clock` that nobody can set is made."""

    def boot_ms(self) -> int:
        """Milliseconds that never go back, and go on while the machine sleeps if it can tell."""
        ...
