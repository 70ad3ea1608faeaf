"""When a broker's clock follows the wall clock."""

import asyncio

import pytest

from ternmq_broker.steady_clock import SteadyClock

FOLLOW_MS = 600_000
WALL_MS = 1_700_000_000_000
DAY_MS = 86_400_000


class Machine:
    """A machine whose clocks a test sets."""

    def __init__(self) -> None:
        self.now_ms = 5_000
        self.step_ms = 0
        self.asleep_ms = 0
        self.between_ms = 0
        """How long it does something else between two readings of a clock."""

        self.busy_ms: list[int] = []
        """The same for the first readings, one after the other."""

    def monotonic_ms(self) -> int:
        return self.now_ms

    def boot_ms(self) -> int:
        self.now_ms += self.busy_ms.pop(0) if self.busy_ms else self.between_ms
        return self.now_ms + self.asleep_ms

    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms + self.asleep_ms + self.step_ms


class Watched:
    """A clock on such a machine, which is looked at every second."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.clock = SteadyClock(self.machine, follow_after_ms=FOLLOW_MS)
        self.steps: list[int] = []
        self.clock.on_step = self.steps.append

    def pass_s(self, seconds: int) -> None:
        for _ in range(seconds):
            self.machine.now_ms += 1_000
            asyncio.run(self.clock.step())

    @property
    def error_ms(self) -> int:
        """How far the clock is from where the machine's would be had nobody set it."""
        return self.clock.wall_ms() - WALL_MS - self.machine.boot_ms()


def test_step_that_is_taken_back_changes_nothing() -> None:
    watched = Watched()
    watched.machine.step_ms = 40 * DAY_MS
    watched.pass_s(15)
    assert watched.error_ms == 0
    watched.machine.step_ms = 0
    watched.pass_s(2 * FOLLOW_MS // 1_000)
    assert watched.error_ms == 0
    assert not watched.steps


@pytest.mark.parametrize("step_ms", [-DAY_MS, -60_001, 150, DAY_MS])
def test_step_that_holds_is_followed_and_told_once(step_ms: int) -> None:
    watched = Watched()
    watched.machine.step_ms = step_ms
    watched.pass_s(FOLLOW_MS // 1_000)
    assert watched.error_ms == 0
    watched.pass_s(1)
    assert watched.error_ms == step_ms
    watched.pass_s(FOLLOW_MS // 500)
    assert watched.steps == [step_ms]


@pytest.mark.parametrize("back_ms", [150, 5_000, 60_000])
def test_clock_runs_slower_instead_of_going_back_by_a_minute_or_less(back_ms: int) -> None:
    watched = Watched()
    watched.machine.step_ms = -back_ms
    watched.pass_s(FOLLOW_MS // 1_000 + 1)
    begun_ms, before_ms = watched.machine.now_ms, watched.clock.wall_ms()
    while watched.clock.wall_ms() != watched.machine.wall_ms():
        watched.machine.now_ms += 1
        assert 0 <= watched.clock.wall_ms() - before_ms <= 1
        before_ms = watched.clock.wall_ms()
    assert watched.machine.now_ms - begun_ms == 10 * back_ms
    assert not watched.steps
    watched.pass_s(2 * FOLLOW_MS // 1_000)
    assert watched.error_ms == -back_ms


def test_step_ahead_takes_up_what_the_clock_is_ahead_by() -> None:
    watched = Watched()
    watched.machine.step_ms = -60_000
    watched.pass_s(FOLLOW_MS // 1_000 + 1)
    watched.machine.step_ms = 0
    watched.pass_s(FOLLOW_MS // 1_000 + 1)
    assert watched.error_ms == 0
    assert watched.steps == [60_000], "all but nothing was shed meanwhile"


def test_least_distance_that_held_is_followed_and_the_rest_later() -> None:
    watched = Watched()
    watched.machine.step_ms = DAY_MS
    watched.pass_s(500)
    watched.machine.step_ms = DAY_MS + 5_000
    watched.pass_s(101)
    assert watched.steps == [DAY_MS]
    watched.pass_s(600)
    assert watched.steps == [DAY_MS]
    watched.pass_s(1)
    assert watched.steps == [DAY_MS, 5_000]


def test_step_to_the_other_side_waits_anew() -> None:
    watched = Watched()
    watched.machine.step_ms = DAY_MS
    watched.pass_s(500)
    watched.machine.step_ms = -DAY_MS
    watched.pass_s(600)
    assert not watched.steps
    watched.pass_s(1)
    assert watched.steps == [-DAY_MS]


@pytest.mark.parametrize("each_ms", [-60, 60])
def test_small_steps_in_a_row_are_followed(each_ms: int) -> None:
    watched = Watched()
    for _ in range(120):
        watched.machine.step_ms += each_ms
        watched.pass_s(60)
        assert abs(watched.clock.wall_ms() - watched.machine.wall_ms()) <= 1_500
    assert abs(watched.error_ms) > 5_000


def test_machine_that_slept_steps_no_clock() -> None:
    watched = Watched()
    watched.machine.asleep_ms = DAY_MS
    watched.pass_s(2 * FOLLOW_MS // 1_000)
    assert not watched.steps
    assert watched.clock.wall_ms() == watched.machine.wall_ms()
    assert watched.clock.monotonic_ms() == watched.machine.now_ms


@pytest.mark.parametrize("busy_ms", [[0, 11], [11, 0, 11, 11, 0, 7], [3, 9, 0, 1, 5]])
def test_clock_of_a_busy_machine_begins_within_a_millisecond(busy_ms: list[int]) -> None:
    machine = Machine()
    machine.busy_ms = busy_ms
    clock = SteadyClock(machine, follow_after_ms=FOLLOW_MS)
    assert not machine.busy_ms
    assert abs(clock.wall_ms() - machine.wall_ms()) <= 1


def test_reading_that_took_long_tells_no_step() -> None:
    watched = Watched()
    watched.machine.between_ms = 2
    watched.machine.step_ms = DAY_MS
    watched.pass_s(2 * FOLLOW_MS // 1_000)
    assert not watched.steps
    watched.machine.between_ms = 0
    watched.pass_s(2 * FOLLOW_MS // 1_000)
    assert watched.steps == [DAY_MS]


@pytest.mark.parametrize("ahead_ms", [-DAY_MS, DAY_MS])
def test_start_far_from_the_newest_record_is_in_doubt_and_follows_at_once(ahead_ms: int) -> None:
    watched = Watched()
    watched.clock.begin(watched.clock.wall_ms() - ahead_ms, was_doubted=False)
    assert watched.clock.is_doubted
    watched.pass_s(10)
    watched.machine.step_ms = -ahead_ms
    watched.pass_s(1)
    assert watched.steps == [-ahead_ms]
    watched.pass_s(FOLLOW_MS // 1_000)
    assert not watched.clock.is_doubted


@pytest.mark.parametrize("behind_ms", [1, 60_000])
def test_start_behind_the_newest_record_begins_at_its_time(behind_ms: int) -> None:
    watched = Watched()
    watched.clock.begin(watched.machine.wall_ms() + behind_ms, was_doubted=False)
    assert watched.error_ms == behind_ms
    watched.pass_s(behind_ms // 1_000 * 5)
    assert watched.error_ms == (behind_ms + 1) // 2
    watched.pass_s(behind_ms // 1_000 * 5 + 1)
    assert watched.error_ms == 0
    assert not watched.steps


@pytest.mark.parametrize("ahead_ms", [-60_000, 0, 60_000])
def test_start_near_the_newest_record_is_not_in_doubt(ahead_ms: int) -> None:
    watched = Watched()
    watched.clock.begin(watched.clock.wall_ms() - ahead_ms, was_doubted=False)
    assert not watched.clock.is_doubted


def test_step_is_followed_at_once_while_the_store_is_empty() -> None:
    watched = Watched()
    watched.clock.begin(0, was_doubted=False)
    assert not watched.clock.is_doubted, "an empty store has no newest record"
    watched.clock.has_records = lambda: False
    watched.machine.step_ms = DAY_MS
    watched.pass_s(1)
    assert watched.steps == [DAY_MS]
    watched.clock.has_records = lambda: True
    watched.machine.step_ms = 0
    watched.pass_s(600)
    assert watched.steps == [DAY_MS]


def test_doubt_goes_on_in_the_next_process_until_the_clock_held() -> None:
    watched = Watched()
    told: list[bool] = []
    watched.clock.on_believed = lambda: told.append(watched.clock.is_doubted)
    assert watched.clock.begin(watched.clock.wall_ms(), was_doubted=True) is None
    watched.pass_s(500)
    watched.machine.step_ms = DAY_MS
    watched.pass_s(600)
    assert watched.clock.is_doubted, "a step begins the time anew"
    assert not told
    watched.pass_s(1)
    assert told == [False]
    watched.pass_s(FOLLOW_MS // 1_000)
    assert told == [False]


def test_clock_is_not_believed_beside_the_wall_clock_or_in_doubt() -> None:
    watched = Watched()
    watched.clock.begin(watched.clock.wall_ms(), was_doubted=False)
    watched.pass_s(1)
    assert watched.clock.believed_ms() == watched.clock.wall_ms()
    watched.machine.step_ms = 200
    watched.pass_s(1)
    assert watched.clock.believed_ms() == 0
    watched = Watched()
    watched.clock.begin(watched.clock.wall_ms(), was_doubted=True)
    assert watched.clock.believed_ms() == 0


def test_change_of_role_begins_no_doubt() -> None:
    watched = Watched()
    watched.clock.begin(watched.clock.wall_ms(), was_doubted=False)
    watched.pass_s(3_600)
    watched.machine.step_ms = DAY_MS
    watched.pass_s(1)
    newest_ms = WALL_MS + 5_000
    assert watched.clock.begin(newest_ms, was_doubted=False) is None
    assert not watched.clock.is_doubted
    watched.pass_s(590)
    assert not watched.steps
