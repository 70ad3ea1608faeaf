"""Laying timed messages anew at the log's end."""

from ternmq_broker.scheduled.rolling import rolled
from ternmq_model.record.format import decode_record
from tests.support.records import record


def test_rolled_message_is_due_when_it_was_and_counts_its_rolls() -> None:
    place = {"TERNMQ_SOURCE": "0"}
    for before, after in (
        ({"TIMER_OUT_MS": "1300"}, {"TIMER_ROLL_TIMES": "1"}),
        ({"TIMER_ROLL_TIMES": "7", "TAGS": "x"}, {"TIMER_ROLL_TIMES": "8", "TAGS": "x"}),
        ({"TIMER_ROLL_TIMES": "often"}, {"TIMER_ROLL_TIMES": "1"}),
        ({"TIMER_ENQUEUE_MS": "1200"}, {"TIMER_ROLL_TIMES": "1"}),
    ):
        found = decode_record(record("rmq_sys_wheel_timer", properties=before))
        assert found is not None
        assert rolled(found, 2500).properties == {"TIMER_OUT_MS": "2500"} | after | place
