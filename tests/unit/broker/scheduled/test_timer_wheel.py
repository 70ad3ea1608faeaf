"""What waits for its time."""

from random import Random

import numpy as np
import pytest

from ternmq_broker.scheduled.timer_wheel import NEVER_MS, DueMessages, TimerWheel

NOW_MS = 1_700_000_000_000


def add(wheel: TimerWheel, *waiting: tuple[int, int]) -> None:
    """Let messages wait: offset and code."""
    wheel.add(
        np.array([offset for offset, _ in waiting], dtype=np.int64),
        np.array([code for _, code in waiting], dtype=np.int64),
    )


def take(wheel: TimerWheel, now_ms: int, count_max: int = 100) -> list[tuple[int, int, int]]:
    return rows(wheel.take(now_ms, count_max))


def rows(due: DueMessages) -> list[tuple[int, int, int]]:
    return list(zip(*(column.tolist() for column in due), strict=True))


def test_timer_wheel_is_empty_at_first() -> None:
    wheel = TimerWheel()
    assert len(wheel) == 0
    assert wheel.first_ms == NEVER_MS
    assert wheel.first_offset() is None
    assert take(wheel, NOW_MS) == []
    assert rows(wheel.waiting()) == []
    wheel.add(np.array([], dtype=np.int64), np.array([], dtype=np.int64))
    assert len(wheel) == 0


def test_message_is_taken_once_and_not_before_its_time() -> None:
    wheel = TimerWheel()
    add(wheel, (5, NOW_MS + 300))
    assert wheel.first_ms <= NOW_MS + 300
    assert take(wheel, NOW_MS + 299) == []
    assert take(wheel, NOW_MS + 300) == [(5, NOW_MS + 300, 0)]
    assert take(wheel, NOW_MS + 300) == []
    assert len(wheel) == 0


def test_cancellations_come_first_within_their_tick() -> None:
    wheel = TimerWheel()
    add(wheel, (1, NOW_MS + 100), (2, NOW_MS + 101), (3, NOW_MS), (4, NOW_MS + 100))
    assert take(wheel, NOW_MS + 100, 2) == [(3, NOW_MS, 0), (2, NOW_MS + 100, 1)]
    assert take(wheel, NOW_MS + 100) == [(1, NOW_MS + 100, 0), (4, NOW_MS + 100, 0)]


def test_late_entries_are_due_at_once() -> None:
    wheel = TimerWheel()
    add(wheel, (1, NOW_MS), (2, NOW_MS + 10_000))
    assert take(wheel, NOW_MS) == [(1, NOW_MS, 0)]
    add(wheel, (3, NOW_MS - 60_000), (4, NOW_MS + 100))
    assert wheel.first_offset() == 2
    assert wheel.first_ms == NOW_MS - 60_000
    assert take(wheel, NOW_MS) == [(3, NOW_MS - 60_000, 0)]
    assert wheel.first_ms == NOW_MS + 100
    assert take(wheel, NOW_MS + 10_000) == [(4, NOW_MS + 100, 0), (2, NOW_MS + 10_000, 0)]


def test_messages_before_an_offset_can_be_taken_out_for_rolling() -> None:
    wheel = TimerWheel()
    add(wheel, (1, NOW_MS), (2, NOW_MS + 50_000), (3, NOW_MS + 100_001), (4, NOW_MS + 50_100))
    assert take(wheel, NOW_MS) == [(1, NOW_MS, 0)]
    assert rows(wheel.take_before(2, 10)) == []
    assert sorted(rows(wheel.take_before(4, 10))) == [
        (2, NOW_MS + 50_000, 0),
        (3, NOW_MS + 100_000, 1),
    ]
    assert len(wheel) == 1
    assert wheel.first_offset() == 4
    assert take(wheel, NOW_MS + 200_000) == [(4, NOW_MS + 50_100, 0)]


@pytest.mark.parametrize("seed", range(30))
def test_timer_wheel_agrees_with_a_sorted_list(seed: int) -> None:
    chance = Random(seed)
    wheel = TimerWheel()
    model: dict[int, int] = {}
    taken: list[int] = []
    now_ms, offset = NOW_MS, 0
    span_ms = chance.choice((500, 20_000, 3 * 86_400_000))
    for _ in range(200):
        match chance.randrange(4):
            case 0 | 1:
                count = chance.randrange(1, 20)
                codes = [
                    (now_ms + chance.randrange(-1000, span_ms)) // 100 * 100 + chance.randrange(2)
                    for _ in range(count)
                ]
                add(wheel, *zip(range(offset, offset + count), codes, strict=True))
                model.update(zip(range(offset, offset + count), codes, strict=True))
                offset += count
            case 2:
                now_ms += chance.randrange(span_ms // 10)
            case _:
                for number, due_ms, cancels in take(wheel, now_ms, chance.randrange(1, 30)):
                    assert due_ms <= now_ms
                    assert model.pop(number) == due_ms + cancels
                    taken.append(number)
        assert len(wheel) == len(model)
        waiting = {number: due_ms + cancels for number, due_ms, cancels in rows(wheel.waiting())}
        assert waiting == model
        assert wheel.first_offset() == min(model, default=None)
        assert wheel.first_ms <= min(model.values(), default=NEVER_MS)
    while len(wheel):
        now_ms += span_ms
        for number, due_ms, cancels in take(wheel, now_ms, 1000):
            assert model.pop(number) == due_ms + cancels
            taken.append(number)
    assert sorted(taken) == list(range(offset))


def test_message_that_was_put_back_is_the_first_again() -> None:
    wheel = TimerWheel()
    add(wheel, (5, NOW_MS), (6, NOW_MS), (9, NOW_MS))
    taken = wheel.take_before(7, 100)
    wheel.add(taken.offsets, taken.due_ms)
    assert wheel.first_offset() == 5
    assert wheel.take_before(6, 100).offsets.tolist() == [5]
    assert wheel.first_offset() == 6


@pytest.mark.parametrize("seed", range(20))
def test_due_counts_are_those_of_the_times(seed: int) -> None:
    random, wheel = Random(seed), TimerWheel()
    dues_ms = [NOW_MS + random.randrange(0, 60_000, 100) for _ in range(200)]
    add(wheel, *enumerate(dues_ms))
    within_ms = [0, *sorted(random.sample(range(60_000), 8))]
    for now_ms in (NOW_MS - 1, NOW_MS + 3_000, NOW_MS + 40_000):
        taken = {offset for offset, _, _ in take(wheel, now_ms - random.randrange(3_000), 30)}
        dues_ms = [NOW_MS + (1 << 40) if n in taken else due for n, due in enumerate(dues_ms)]
        assert wheel.due_counts(now_ms, within_ms) == [
            sum(due <= now_ms + each_ms for due in dues_ms) for each_ms in within_ms
        ]
