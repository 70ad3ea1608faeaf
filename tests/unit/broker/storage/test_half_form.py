import pytest

from ternmq_broker.storage.half_form import (
    StagedProperties,
    encode_real_queue,
    find_half_properties,
    find_real_topic,
    join_half_properties,
    parse_real_queue,
    parse_staged_properties,
    shared_part,
)
from ternmq_model.properties import decode_properties, encode_properties
from ternmq_model.record.format import BODY_AT, encode_record

LEAD = {"UNIQ_KEY": "K1", "a": "b"}
SHARED = {
    "TRAN_MSG": "true",
    "PGROUP": "sink",
    "TERNMQ_STAGED_FOR": "q/1",
    "CHECK_IMMUNITY_TIME_IN_SECONDS": "60",
}
SENT = encode_properties(LEAD | SHARED)


def stored() -> bytes:
    shared = shared_part(SENT)
    assert shared is not None
    lead = SENT.removesuffix(shared)
    (properties,) = join_half_properties([lead], shared, [encode_real_queue("flights", 3)])
    return properties


def test_half_message_has_the_properties_that_were_sent_then_those_of_the_broker() -> None:
    added = {"__transactionId__": "K1", "REAL_TOPIC": "flights", "REAL_QID": "3"}
    assert list(decode_properties(stored()).items()) == list((LEAD | SHARED | added).items())
    assert stored().endswith(b"\x02")


def test_readers_find_the_properties_that_the_writer_wrote() -> None:
    assert parse_staged_properties(stored()) == StagedProperties("sink", 60_000, "q/1")
    assert parse_real_queue(stored()) == ("K1", "flights", 3)


@pytest.mark.parametrize("topic", ["RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIX"])
def test_properties_are_found_behind_the_half_topic_alone(topic: str) -> None:
    data = encode_record(
        topic=topic.encode(),
        queue_id=0,
        body=b"body",
        properties=stored(),
        born_at_ms=1,
        born_host=bytes(8),
        store_host=bytes(8),
    )
    found = find_half_properties(data, BODY_AT + 4, len(data))
    assert found == (stored() if topic.endswith("TOPIC") else None)
    assert find_half_properties(data, BODY_AT + 4, len(data) - 1) is None


def test_properties_as_sent_are_those_of_no_stored_half_message() -> None:
    assert parse_staged_properties(SENT) is None
    assert parse_real_queue(SENT) is None
    assert shared_part(encode_properties(LEAD)) is None


def test_copy_of_a_half_message_is_not_plain() -> None:
    assert parse_staged_properties(stored() + b"TRAN_PREPARED_QUEUE_OFFSET\x010\x02") is None
    assert parse_staged_properties(stored() + b"TRANSACTION_CHECK_TIMES\x012\x02") is None


def test_real_topic_is_found_in_stored_properties_alone() -> None:
    assert find_real_topic(stored()) == "flights"
    assert find_real_topic(SENT) == ""
