"""The one clock of a broker: it goes on evenly, and follows the wall clock to where that stays.

Store times, delays and ages are read from it. A step of the machine's wall clock that is taken back
soon changes nothing here; one that holds is followed at once, and who keeps times is told by how
much. A clock that is ahead of what it follows by a minute at most runs slower until it is not. The
cases are in `docs/adr/0022-one-clock.md`.
"""

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from ternmq_model.clock import SystemTime
from ternmq_runtime.service import Job

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

DOUBT_MS: Final = 60_000
"""A start this far from the newest record leaves the wall clock in doubt."""

_LEAD_MS_MAX: Final = 60_000
"""A clock that is ahead by more goes back at once."""

_SLOWER: Final = 10
"""One part in so many is what a clock that is ahead runs slower by."""

_STEP_MS: Final = 100
"""Less is no step: it is not worth it to file again what waits."""

_LOOK_S: Final = 1.0

_LOOKS: Final = 5
"""A clock begins with the best of so many."""


class ClockCourse(NamedTuple):
    """Course of the clock from one step to the next."""

    base_ms: int
    """The wall clock that is followed, when the machine booted."""

    lead_ms: int
    """The clock was ahead of that by so much, which it sheds by running slower."""

    since_ms: int
    """Time of the reading, on the machine's clock since its boot."""

    def lead_at(self, boot_ms: int) -> int:
        """Return how far the clock is still ahead."""
        return max(0, self.lead_ms - (boot_ms - self.since_ms) // _SLOWER)

    def at(self, boot_ms: int) -> int:
        """Return Unix milliseconds. They never fall while `boot_ms` rises."""
        return boot_ms + self.base_ms + self.lead_at(boot_ms)

    def followed(self, by_ms: int, boot_ms: int) -> "ClockCourse":
        """Return the course after the wall clock that is followed has moved by `by_ms`."""
        lead_ms = self.lead_at(boot_ms) - by_ms
        is_slow = 0 < lead_ms <= _LEAD_MS_MAX
        return ClockCourse(self.base_ms + by_ms, lead_ms if is_slow else 0, boot_ms)


class ClockSkew(NamedTuple):
    """Distance of the wall clock from the clock that is followed, ahead or behind."""

    by_ms: int
    """The least that it was since then."""

    since_ms: int
    """Time of the first observation, on the machine's clock since its boot."""

    now_ms: int
    """Distance at the last reading."""


class ClockReading(NamedTuple):
    """The machine's two clocks, read together: the best look is the least."""

    took_ms: int
    """The readings were so far apart: either clock may be off by as much."""

    base_ms: int
    """The wall clock when the machine booted."""

    boot_ms: int
    """The clock since the boot, as it was read last."""


def look(system: SystemTime) -> ClockReading:
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
    """Return what is known of the wall clock, which is `by_ms` ahead; None = it agrees. Pure."""
    if abs(by_ms) < _STEP_MS:
        return None
    if skew is None or (by_ms < 0) != (skew.by_ms < 0):
        return ClockSkew(by_ms, now_ms, by_ms)
    return ClockSkew(min(by_ms, skew.by_ms, key=abs), skew.since_ms, by_ms)


class SteadyClock:
    """A `Clock` that the wall clock's steps reach late or never. Owned by the broker's loop.

    Any thread may read it.

    Args:
        system: The machine's clock.
        follow_after_ms: How long a step must hold until it is followed.

    Attributes:
        on_step: Called with how far this clock has just moved: milliseconds, ahead or back.
        on_believed: Called when the clock is in doubt no more.
        has_records: Tells whether the store has any. While it has none, steps are followed at once.
    """

    def __init__(self, system: SystemTime, *, follow_after_ms: int) -> None:
        self._system = system
        self._follow_after_ms = follow_after_ms
        # What one broker keeps too long, the next one would deliver too early.
        self._course = ClockCourse(min(look(system) for _ in range(_LOOKS)).base_ms, 0, 0)
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
        """Return Unix milliseconds. They go back by more than a minute or not at all."""
        return self._course.at(self._system.boot_ms())

    @property
    def is_doubted(self) -> bool:
        """The clock began far from the newest record, not long ago: no age is trusted."""
        until_ms = self._doubted_until_ms
        return until_ms is not None and self._system.boot_ms() < until_ms

    def believed_ms(self) -> int:
        """Return Unix milliseconds; 0 while the wall clock says otherwise or is in doubt."""
        return 0 if self._skew is not None or self.is_doubted else self.wall_ms()

    def begin(self, newest_at_ms: int, *, was_doubted: bool) -> int | None:
        """Hold the clock against the newest record: of two times that far apart one is wrong.

        While that is in doubt, a step of the wall clock is followed at once: it may set it right.
        Only the first call in a process begins a doubt: later ones know the clock for longer. A
        clock that is behind by less begins with the newest record's time.

        Args:
            newest_at_ms: Store time of the newest record, or the believed clock at a clean stop
                after it; 0 = there is neither.
            was_doubted: An earlier process left the clock in doubt: the newest record may be of it.

        Returns:
            How far the clock is ahead of the newest record, if that begins a doubt.
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
            "clock in doubt, nothing is deleted by its age ahead_of_newest_record_ms=%d for_s=%d",
            ahead_ms,
            self._follow_after_ms // 1000,
        )
        return ahead_ms if differs else None

    def state(self) -> ClockState:
        """Return how the clock stands to the wall clock, as it was looked at last."""
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
        """Return what looks at the wall clock."""
        return Job(name="clock", interval_s=_LOOK_S, step=self.step)

    async def step(self) -> bool:
        """Look at the wall clock: one step of a job."""
        took_ms, base_ms, now_ms = look(self._system)
        by_ms = base_ms - self._course.base_ms
        if took_ms > 1:
            return False  # something came between the two: the next look knows better
        if self._doubted_until_ms is not None and not self.is_doubted:
            self._doubted_until_ms = None
            self.on_believed()
        was, self._skew = self._skew, seen(self._skew, by_ms, now_ms=now_ms)
        if self._skew is None:
            if was is not None:
                logger.warning("step of the wall clock taken back by_ms=%d", was.by_ms)
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
