"""Timed messages after a step of the clock."""

import pytest

from ternmq_broker.scheduled.rolling import moved_due_ms
from ternmq_model.record.format import decode_record
from tests.support.records import record

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("properties", "by_ms", "stored_at_ms", "moved_ms"),
    [
        ({"TIMER_DELIVER_MS": "1"}, 70_000, NOW_MS, NOW_MS + 5000),
        ({"TIMER_DELIVER_MS": "1"}, None, NOW_MS + 90_000, NOW_MS + 5000),
        ({"TIMER_DELAY_SEC": "5"}, -70_000, NOW_MS, NOW_MS - 65_000),
        ({"TIMER_DELAY_MS": "5"}, 70_001, NOW_MS, NOW_MS + 75_100),
        ({"TIMER_DELAY_MS": "5"}, None, NOW_MS - 7000, NOW_MS + 5000),
        ({"TIMER_DELAY_MS": "5"}, None, NOW_MS + 1050, NOW_MS + 4000),
    ],
)
def test_length_of_time_moves_with_the_clock_and_time_does_not(
    properties: dict[str, str], by_ms: int | None, stored_at_ms: int, moved_ms: int
) -> None:
    found = decode_record(record(properties=properties))
    assert found is not None
    found = found._replace(header=found.header._replace(stored_at_ms=stored_at_ms))
    assert moved_due_ms(found, NOW_MS + 5000, by_ms, now_ms=NOW_MS) == moved_ms
