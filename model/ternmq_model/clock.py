"""Time as an argument: the one protocol through which anything learns what time it is."""

from typing import Protocol


class Clock(Protocol):
    """Reads time. Only `ternmq_runtime.clock` reads the system's."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back: for leases, timeouts and ages."""
        ...

    def wall_ms(self) -> int:
        """Unix milliseconds, which an operator may set back: for time stamps only."""
        ...
