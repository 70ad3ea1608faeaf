"""What is known of a timed message before it waits."""

import numpy as np
import pytest

from ternmq_broker.scheduled.timer_wheel import (
    asked_for_ms,
    codes_of_records,
    is_time,
    not_delivered,
)
from ternmq_broker.state.timer_checkpoint import TimerCheckpoint
from ternmq_model.delay import EARLIEST_CODE
from ternmq_model.properties import tag_code
from ternmq_model.record.format import Record, decode_record
from tests.support.records import record

DUE_MS = 1_800_000_000_000


def timed(**properties: str) -> Record:
    found = decode_record(record("rmq_sys_wheel_timer", properties=properties))
    assert found is not None
    return found


def test_delivery_times_are_distinguished_from_tag_codes() -> None:
    codes = np.array([DUE_MS, DUE_MS + 1, tag_code("late"), -(1 << 31), (1 << 31) - 1, 0, 1 << 62])
    assert is_time(codes).tolist() == [True, True, False, False, False, False, False]


def test_record_without_a_time_is_due_at_once_and_a_missing_one_never() -> None:
    records = [timed(TIMER_OUT_MS=str(DUE_MS)), timed(TAGS="x"), None]
    codes = codes_of_records(records)
    assert codes.tolist() == [DUE_MS, EARLIEST_CODE, 0]
    known = TimerCheckpoint(read_ms=DUE_MS - 100, first_offset=0, next_offset=2)
    assert not_delivered(np.arange(3), codes, known).tolist() == [True, False, False]


def test_messages_due_before_the_checkpoint_count_as_delivered() -> None:
    known = TimerCheckpoint(read_ms=DUE_MS, first_offset=3, next_offset=6)
    codes = np.array([DUE_MS, DUE_MS + 1, DUE_MS + 100, DUE_MS, DUE_MS - 500])
    waits = not_delivered(np.array([3, 4, 5, 6, 7]), codes, known)
    assert waits.tolist() == [False, False, True, True, True]


@pytest.mark.parametrize(
    ("properties", "asked_ms"),
    [
        ({"TIMER_DELIVER_MS": "1234", "TIMER_OUT_MS": "1300"}, 1234),
        ({"TIMER_DELAY_MS": "5", "TIMER_OUT_MS": "1300"}, 1300),
        ({"TIMER_DELAY_SEC": "5", "TIMER_DELIVER_MS": "9", "TIMER_OUT_MS": "1300"}, 1300),
        ({"TAGS": "x"}, 0),
    ],
)
def test_requested_time_is_reported(properties: dict[str, str], asked_ms: int) -> None:
    assert asked_for_ms(timed(**properties)) == asked_ms
