"""When messages of a level are due."""

import numpy as np

from ternmq_broker.scheduled.delay_levels import LevelDueTimes

LEVEL = 3
DELAY_MS = 10_000
NOW_MS = 1_700_000_000_000


def test_messages_may_be_due_up_to_the_last_that_is() -> None:
    wait = LevelDueTimes(LEVEL, end=0, now_ms=NOW_MS)
    dues = np.array([NOW_MS - 5, NOW_MS, NOW_MS + 1, NOW_MS + 2])
    for late_ms, count in ((-6, 0), (-5, 1), (0, 2), (1, 3), (2, 4)):
        assert wait.count_likely(dues, now_ms=NOW_MS + late_ms) == count
    assert wait.count_likely(dues[::-1], now_ms=NOW_MS) == 4


def test_time_that_no_message_has_may_be_due() -> None:
    wait = LevelDueTimes(LEVEL, end=0, now_ms=NOW_MS)
    dues = np.array([NOW_MS + 1, NOW_MS + DELAY_MS + 1, NOW_MS + DELAY_MS])
    assert wait.count_likely(dues, now_ms=NOW_MS) == 2
    assert wait.count_likely(dues[2:], now_ms=NOW_MS) == 0


def test_messages_found_at_the_start_wait_their_delay_at_most() -> None:
    wait = LevelDueTimes(LEVEL, end=2, now_ms=NOW_MS)
    codes = np.array([NOW_MS - 1, NOW_MS + 3_600_000, NOW_MS + 3_600_000])
    moved = np.zeros(3, dtype=np.int64)
    assert wait.dues_ms(0, codes, moved).tolist() == [NOW_MS - 1, NOW_MS + DELAY_MS, codes[2]]
    assert wait.dues_ms(1, codes[1:], moved[1:]).tolist() == [NOW_MS + DELAY_MS, codes[2]]
    assert codes[1] == NOW_MS + 3_600_000, "the queue's own are not changed"


def test_move_of_the_clock_moves_what_was_stored_before() -> None:
    wait = LevelDueTimes(LEVEL, end=0, now_ms=NOW_MS)
    codes, moved = np.full(4, NOW_MS), np.array([700, 700, -300, 0])
    assert (wait.dues_ms(0, codes, moved) - NOW_MS).tolist() == [700, 700, -300, 0]
    assert (wait.dues_ms(2, codes[2:], moved[2:]) - NOW_MS).tolist() == [-300, 0]


def test_step_moves_the_latest_time_of_messages_found_at_the_start() -> None:
    wait = LevelDueTimes(LEVEL, end=1, now_ms=NOW_MS)
    wait.stepped(5_000)
    codes, moved = np.array([NOW_MS + 3_600_000]), np.array([5_000])
    assert wait.dues_ms(0, codes, moved).tolist() == [NOW_MS + DELAY_MS + 5_000]
