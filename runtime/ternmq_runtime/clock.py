"""The system's clocks. The only module in TernMQ that reads them."""

import time
from typing import Final

_BOOT: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The clock that counts a sleep of the machine, which else looks like a step of the wall clock."""


_MS_NS: Final = 1_000_000


def ticks_together_ns(wall_ns: int, boot_ns: int) -> int:
    """Return what to add to a clock so that its milliseconds begin when the wall clock's do.

    Both are rounded down to whole milliseconds. Where these begin at different moments, the
    difference of two readings is a millisecond too much for a part of each, and a time that is
    worked out from it comes too early.
    """
    return (wall_ns - boot_ns) % _MS_NS


# The wall clock is read first: the boot clock may be behind by what lies between, never ahead.
_TICKS_NS: Final = ticks_together_ns(time.time_ns(), time.clock_gettime_ns(_BOOT))


def rest(seconds: float) -> None:
    """Sleep in the present thread, which must not be an event loop's."""
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
        return time.monotonic_ns() // _MS_NS

    def wall_ms(self) -> int:
        """Return Unix milliseconds; jumps when the machine's clock is set."""
        return time.time_ns() // _MS_NS

    def boot_ms(self) -> int:
        """Return milliseconds since the machine was started, its sleep included.

        They begin together with those of the wall clock as it was when this process began.
        """
        return (time.clock_gettime_ns(_BOOT) + _TICKS_NS) // _MS_NS
