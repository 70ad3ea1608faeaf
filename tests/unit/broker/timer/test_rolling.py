"""Laying timed messages anew at the log's end."""

from ternmq_broker.timer.rolling import rolled
from ternmq_model.record import decode_record
from tests.support.records import record


def test_rolled_message_keeps_its_due_time_and_counts_its_rolls() -> None:
    found = decode_record(record("rmq_sys_wheel_timer", properties={"TIMER_OUT_MS": "1300"}))
    assert found is not None
    place = {"TERNMQ_SOURCE": "0"}
    assert rolled(found).properties == {"TIMER_OUT_MS": "1300", "TIMER_ROLL_TIMES": "1"} | place
    assert rolled(found, 2500).properties["TIMER_OUT_MS"] == "2500"
    found = decode_record(record(properties={"TIMER_ROLL_TIMES": "7", "TAGS": "x"}))
    assert found is not None
    assert rolled(found).properties == {"TIMER_ROLL_TIMES": "8", "TAGS": "x"} | place
    found = decode_record(record(properties={"TIMER_ROLL_TIMES": "often"}))
    assert found is not None
    assert rolled(found).properties == {"TIMER_ROLL_TIMES": "1"} | place
