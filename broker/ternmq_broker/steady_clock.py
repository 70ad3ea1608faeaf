"""The one clock of a broker, which runs evenly and follows lasting steps of the wall clock.

Store times, delays and ages come from it. A short step of the machine's wall clock has no effect. A
lasting step is followed at once, and the owners of times are notified. A clock that is ahead of the
wall clock by at most a minute runs slower until both agree. `docs/adr/0022-one-clock.md` describes
the cases.
"""

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from ternmq_model.clock import SystemTime
from ternmq_runtime.service import Job

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

DOUBT_MS: Final = 60_000
"""Distance from the newest record at a start beyond which the wall clock is in doubt."""

_LEAD_MS_MAX: Final = 60_000
"""Largest lead that is reduced slowly; with a larger lead the clock goes back at once."""

_SLOWER: Final = 10
"""Divisor of the slowdown: a clock that is ahead loses one tenth of the time."""

_STEP_MS: Final = 100
"""Smallest step: moving all waiting messages for less is not worth it."""

_READ_PAUSE_S: Final = 1.0

_READINGS: Final = 5
"""Readings at the start, of which the best counts."""


class ClockCourse(NamedTuple):
    """Course of the clock from one step to the next."""

    base_ms: int
    """Time of the followed wall clock at the boot of the machine."""

    lead_ms: int
    """Lead over the followed wall clock, which shrinks while the clock runs slower."""

    since_ms: int
    """Time of the reading since the boot."""

    def lead_at(self, boot_ms: int) -> int:
        """Return the remaining lead."""
        return max(0, self.lead_ms - (boot_ms - self.since_ms) // _SLOWER)

    def at(self, boot_ms: int) -> int:
        """Return Unix milliseconds. They never fall while `boot_ms` rises."""
        return boot_ms + self.base_ms + self.lead_at(boot_ms)

    def followed(self, by_ms: int, boot_ms: int) -> "ClockCourse":
        """Return the course after a step of the followed wall clock by `by_ms`."""
        lead_ms = self.lead_at(boot_ms) - by_ms
        is_slow = 0 < lead_ms <= _LEAD_MS_MAX
        return ClockCourse(self.base_ms + by_ms, lead_ms if is_slow else 0, boot_ms)


class ClockSkew(NamedTuple):
    """Distance of the wall clock from the clock that is followed, ahead or behind."""

    by_ms: int
    """Smallest distance since then."""

    since_ms: int
    """Time of the first observation since the boot."""

    now_ms: int
    """Distance at the last reading."""


class ClockReading(NamedTuple):
    """One reading of the two clocks of the machine; the best reading is the least."""

    took_ms: int
    """Time between the two readings, the error of both."""

    base_ms: int
    """Time of the wall clock at the boot of the machine."""

    boot_ms: int
    """Time since the boot at the second reading."""


def read_clocks(system: SystemTime) -> ClockReading:
    """Read the machine's wall clock and its clock since its boot."""
    before_ms = system.boot_ms()
    base_ms = system.wall_ms() - before_ms
    boot_ms = system.boot_ms()
    return ClockReading(boot_ms - before_ms, base_ms, boot_ms)


class ClockState(NamedTuple):
    """State of a clock, for operators."""

    step_ms: int
    """Lead of the wall clock over the clock that is followed; 0 = they agree."""

    follow_in_ms: int
    doubted_for_ms: int
    lead_ms: int


def seen(skew: ClockSkew | None, by_ms: int, *, now_ms: int) -> ClockSkew | None:
    """Return the skew of a wall clock that is `by_ms` ahead; None = no skew. Pure."""
    if abs(by_ms) < _STEP_MS:
        return None
    if skew is None or (by_ms < 0) != (skew.by_ms < 0):
        return ClockSkew(by_ms, now_ms, by_ms)
    return ClockSkew(min(by_ms, skew.by_ms, key=abs), skew.since_ms, by_ms)


class SteadyClock:
    """A `Clock` that follows steps of the wall clock late or never. Owned by the broker's loop.

    Any thread may read it.

    Args:
        system: Clock of the machine.
        follow_after_ms: Time for which a step must last before it is followed.

    Attributes:
        on_step: Called after a step of this clock with its size, ms; negative = back.
        on_believed: Called when the doubt of the clock has ended.
        has_records: Returns whether the store has records. Without any, steps are followed at once.
    """

    def __init__(self, system: SystemTime, *, follow_after_ms: int) -> None:
        self._system = system
        self._follow_after_ms = follow_after_ms
        # A clock that starts behind would delay messages, one ahead would deliver them early.
        self._course = ClockCourse(min(read_clocks(system) for _ in range(_READINGS)).base_ms, 0, 0)
        self._skew: ClockSkew | None = None
        self._has_begun = False
        self._doubted_until_ms: int | None = None
        self.on_step: Callable[[int], None] = lambda _by_ms: None
        self.on_believed: Callable[[], None] = lambda: None
        self.has_records: Callable[[], bool] = lambda: True

    def monotonic_ms(self) -> int:
        """Return milliseconds of the machine's monotonic clock."""
        return self._system.monotonic_ms()

    def boot_ms(self) -> int:
        """Return milliseconds since the machine's boot."""
        return self._system.boot_ms()

    def wall_ms(self) -> int:
        """Return Unix milliseconds, which go back by more than a minute or not at all."""
        return self._course.at(self._system.boot_ms())

    @property
    def is_doubted(self) -> bool:
        """True for a while after a start far from the newest record: ages are not trusted."""
        until_ms = self._doubted_until_ms
        return until_ms is not None and self._system.boot_ms() < until_ms

    def believed_ms(self) -> int:
        """Return Unix milliseconds; 0 during a skew or a doubt."""
        return 0 if self._skew is not None or self.is_doubted else self.wall_ms()

    def begin(self, newest_at_ms: int, *, was_doubted: bool) -> int | None:
        """Compare the clock with the newest record, and begin a doubt if they differ widely.

        During a doubt, steps of the wall clock are followed at once, since they may correct it.
        Only the first call in a process begins a doubt. A clock that is behind by a minute at most
        begins with the time of the newest record.

        Args:
            newest_at_ms: Store time of the newest record, or the trusted clock at a later clean
                stop; 0 = neither.
            was_doubted: True when the previous process ended in doubt.

        Returns:
            Lead of the clock over the newest record, if that begins a doubt; else None.
        """
        boot_ms, course = self._system.boot_ms(), self._course
        ahead_ms = course.at(boot_ms) - newest_at_ms
        if -_LEAD_MS_MAX <= ahead_ms < 0:
            lead_ms = course.lead_at(boot_ms) - ahead_ms
            self._course = ClockCourse(course.base_ms, lead_ms, boot_ms)
            logger.warning("clock runs slower, the newest record is ahead by_ms=%d", -ahead_ms)
        is_first, self._has_begun = not self._has_begun, True
        differs = bool(newest_at_ms) and abs(ahead_ms) > DOUBT_MS
        if not is_first or not (differs or was_doubted):
            return None
        self._doubted_until_ms = boot_ms + self._follow_after_ms
        logger.warning(
            "clock in doubt, no file is deleted by age ahead_of_newest_record_ms=%d for_s=%d",
            ahead_ms,
            self._follow_after_ms // 1000,
        )
        return ahead_ms if differs else None

    def state(self) -> ClockState:
        """Return the state of the clock at the last reading of the wall clock."""
        boot_ms, skew, until_ms = self._system.boot_ms(), self._skew, self._doubted_until_ms
        return ClockState(
            step_ms=0 if skew is None else skew.now_ms,
            follow_in_ms=0
            if skew is None
            else max(0, skew.since_ms + self._follow_after_ms - boot_ms),
            doubted_for_ms=0 if until_ms is None else max(0, until_ms - boot_ms),
            lead_ms=self._course.lead_at(boot_ms),
        )

    def job(self) -> Job:
        """Return the job that reads the wall clock."""
        return Job(name="clock", interval_s=_READ_PAUSE_S, step=self.step)

    async def step(self) -> bool:
        """Read the wall clock, and follow a lasting step: one step of a job."""
        took_ms, base_ms, now_ms = read_clocks(self._system)
        by_ms = base_ms - self._course.base_ms
        if took_ms > 1:
            return False  # the readings were interrupted: the next step repeats them
        if self._doubted_until_ms is not None and not self.is_doubted:
            self._doubted_until_ms = None
            self.on_believed()
        was, self._skew = self._skew, seen(self._skew, by_ms, now_ms=now_ms)
        if self._skew is None:
            if was is not None:
                logger.warning("step of the wall clock reverted by_ms=%d", was.by_ms)
        elif self.is_doubted or not self.has_records():
            self._follow(by_ms)
        elif now_ms - self._skew.since_ms >= self._follow_after_ms:
            self._follow(self._skew.by_ms)
        elif was is None or abs(by_ms - was.now_ms) > DOUBT_MS or by_ms * was.now_ms < 0:
            logger.warning(
                "wall clock stepped, not followed yet by_ms=%d follow_in_s=%d",
                by_ms,
                self._follow_after_ms // 1000,
            )
        return False

    def _follow(self, by_ms: int) -> None:
        self._skew = None
        boot_ms, before = self._system.boot_ms(), self._course
        self._course = after = before.followed(by_ms, boot_ms)
        logger.warning("step of the wall clock followed by_ms=%d lead_ms=%d", by_ms, after.lead_ms)
        moved_ms = after.at(boot_ms) - before.at(boot_ms)
        if self.is_doubted and abs(moved_ms) > DOUBT_MS:
            self._doubted_until_ms = boot_ms + self._follow_after_ms
        if moved_ms:
            self.on_step(moved_ms)
