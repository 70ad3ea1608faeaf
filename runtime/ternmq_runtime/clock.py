"""The system's clocks. The only module in TernMQ that reads them."""

import time
from typing import Final

_BOOT: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Clock that includes a sleep of the machine; else a sleep looks like a step of the wall clock."""


_MS_NS: Final = 1_000_000


def ticks_together_ns(wall_ns: int, boot_ns: int) -> int:
    """Return the correction by which a clock's milliseconds begin with those of the wall clock.

    Readings of both clocks are rounded down to whole milliseconds. If their milliseconds began at
    different moments, the difference of two readings would be wrong by 1 ms for a part of each
    millisecond, and times computed from it would be too early.
    """
    return (wall_ns - boot_ns) % _MS_NS


# The wall clock is read first, so the boot clock may be behind by that delay, but never ahead.
_TICKS_NS: Final = ticks_together_ns(time.time_ns(), time.clock_gettime_ns(_BOOT))


def rest(seconds: float) -> None:
    """Sleep in this thread, which must not run an event loop."""
    time.sleep(seconds)


def local_hour(wall_ms: int) -> int:
    """Return the hour of the local time, 0 to 23, at `wall_ms`, Unix ms."""
    return time.localtime(wall_ms / 1000).tm_hour


class SystemClock:
    """`ternmq_model.clock.SystemTime` of real processes. Stateless: threads may share it."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary moment of this boot. The clock never goes back.

        asyncio's event loops use this clock, so a fired timer is early by at most the rounding to a
        whole millisecond.
        """
        return time.monotonic_ns() // _MS_NS

    def monotonic_s(self) -> float:
        """Return the seconds of `monotonic_ms`, with their fractions."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Return Unix milliseconds. The clock jumps when the machine's clock is set."""
        return time.time_ns() // _MS_NS

    def boot_ms(self) -> int:
        """Return milliseconds since the start of the machine, its sleep included.

        These milliseconds begin together with those of the wall clock at the start of this process.
        """
        return (time.clock_gettime_ns(_BOOT) + _TICKS_NS) // _MS_NS
