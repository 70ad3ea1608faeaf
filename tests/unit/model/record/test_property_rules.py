"""Rules for the properties of sent records."""

from ternmq_model.properties import encode_properties
from ternmq_model.record.property_rules import property_reason, reserved_reason, routed_rows


def test_property_of_the_broker_is_refused_by_its_name() -> None:
    assert reserved_reason({"TIMER_OF_MINE": "UTC", "DELAYED": "1"}) == ""
    assert "reserved" in reserved_reason({"a": "1", "REAL_TOPIC": "T"})
    assert "reserved" in property_reason(encode_properties({"a": "1", "REAL_TOPIC": "T"}))
    assert "0x02" in property_reason(b"a\x01b")


def test_rows_with_a_delay_or_of_a_transaction_are_routed() -> None:
    parts = [{"a": "DELAY"}, {"DELAY": "3"}, {"TRAN_MSG": "true"}, {"DELAYED": "1"}]
    assert routed_rows([encode_properties(each) for each in parts]) == (1, 2)
