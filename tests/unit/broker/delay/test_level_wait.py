"""When messages of a level are due."""

import numpy as np

from ternmq_broker.delay.level_wait import LevelWait

LEVEL = 3
DELAY_MS = 10_000
NOW_MS = 1_700_000_000_000


def due(wait: LevelWait, dues_ms: list[int], *, now_ms: int, monotonic_ms: int = 0) -> int:
    return wait.count_due(0, np.array(dues_ms), now_ms=now_ms, monotonic_ms=monotonic_ms)


def test_messages_are_due_up_to_the_first_that_is_not() -> None:
    wait = LevelWait(LEVEL)
    dues = [NOW_MS - 5, NOW_MS, NOW_MS + 1, NOW_MS]
    assert due(wait, dues, now_ms=NOW_MS) == 2
    assert due(wait, dues, now_ms=NOW_MS + 1) == 4
    assert wait.next_ms(NOW_MS + 1, now_ms=NOW_MS, monotonic_ms=0) == 1


def test_messages_stamped_in_the_future_wait_their_delay_from_first_sight() -> None:
    wait = LevelWait(LEVEL)
    far = NOW_MS + 3_600_000
    wait.note(2, far, now_ms=NOW_MS, monotonic_ms=500)
    wait.note(3, far, now_ms=NOW_MS, monotonic_ms=5_500)
    assert wait.next_ms(far, now_ms=NOW_MS, monotonic_ms=600) == DELAY_MS - 100
    assert due(wait, [far] * 4, now_ms=NOW_MS, monotonic_ms=10_499) == 0
    assert due(wait, [far] * 4, now_ms=NOW_MS, monotonic_ms=10_500) == 2
    assert due(wait, [far] * 4, now_ms=NOW_MS, monotonic_ms=15_500) == 3
    assert due(wait, [far] * 4, now_ms=NOW_MS, monotonic_ms=99_999) == 3


def test_close_arrivals_share_a_mark_and_none_is_early() -> None:
    wait = LevelWait(LEVEL)
    far = NOW_MS + 3_600_000
    for number in range(1000):
        wait.note(number + 1, far, now_ms=NOW_MS, monotonic_ms=number)
    for number in range(1000):
        early = due(wait, [far] * 1000, now_ms=NOW_MS, monotonic_ms=DELAY_MS + number)
        assert early <= number + 1
    assert due(wait, [far] * 1000, now_ms=NOW_MS, monotonic_ms=DELAY_MS + 1200) == 1000


def test_agreeing_clock_needs_no_mark() -> None:
    wait = LevelWait(LEVEL)
    wait.note(5, NOW_MS + DELAY_MS, now_ms=NOW_MS, monotonic_ms=0)
    assert due(wait, [NOW_MS + DELAY_MS], now_ms=NOW_MS, monotonic_ms=1 << 40) == 0
