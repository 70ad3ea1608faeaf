"""The system's clocks. The only module in TernMQ that reads them."""

import time
from typing import Final

_BOOT: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The clock that counts a sleep of the machine, which else looks like a step of the wall clock."""


def rest(seconds: float) -> None:
    """Let the present thread, which must not be an event loop's, do nothing for a while."""
    time.sleep(seconds)


def local_hour(wall_ms: int) -> int:
    """Return the hour, 0 to 23, that a clock on the wall here shows at `wall_ms`, Unix time."""
    return time.localtime(wall_ms / 1000).tm_hour


class SystemClock:
    """The `ternmq_model.clock.SystemTime` of real processes. Stateless: threads may share one."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary moment of this boot; never goes back.

        It is the clock of asyncio's own event loops, so a timer that has fired is never early
        by more than the rounding to a whole millisecond.
        """
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Return Unix milliseconds; jumps when the machine's clock is set."""
        return time.time_ns() // 1_000_000

    def boot_ms(self) -> int:
        """Return milliseconds since the machine was started, its sleep included."""
        return time.clock_gettime_ns(_BOOT) // 1_000_000
