import numpy as np
import pytest

from ternmq_client.admin.explain.facts import due_ms, record_facts
from ternmq_model.message_batch import decode_records
from ternmq_model.names import CHECK_MAX_TOPIC, SCHEDULE_TOPIC, WHEEL_TOPIC
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import encode_properties
from ternmq_model.queue import MessageQueue
from ternmq_model.record.format import FLAG_COMMIT, encode_record
from tests.support.messages_told import NOW_MS, letter, record, retry
from tests.support.records import BORN_HOST, STORE_HOST


@pytest.mark.parametrize(("sys_flag", "transaction"), [(FLAG_COMMIT, 77), (0, None)])
def test_facts_of_a_record_are_those_of_its_message(sys_flag: int, transaction: int | None) -> None:
    data = encode_record(
        topic=b"orders",
        queue_id=1,
        queue_offset=QueueOffset(4),
        physical_offset=PhysicalOffset(100),
        body=b"body",
        properties=encode_properties({"UNIQ_KEY": "KEY"}),
        born_at_ms=7,
        born_host=BORN_HOST,
        store_host=STORE_HOST,
        stored_at_ms=9,
        reconsume_times=2,
        prepared_offset=PhysicalOffset(77),
        sys_flag=sys_flag,
    )
    queue = MessageQueue("orders", "a", 1)
    (message,) = decode_records(data, np.array([len(data)], dtype=np.int32), queue)
    found = record_facts(message)
    assert (found.queue, found.queue_offset) == (queue, 4)
    assert (found.begin, found.end) == (100, 100 + len(data))
    assert (found.born_at_ms, found.stored_at_ms, found.reconsume_times) == (7, 9, 2)
    assert found.offset_message_id == message.offset_message_id
    assert found.transaction == transaction


def test_records_are_told_apart_by_their_topics() -> None:
    assert record().is_delivery
    assert record().target == record().origin_topic == "orders"
    for topic in (SCHEDULE_TOPIC, WHEEL_TOPIC):
        copy = record(topic, properties={"REAL_TOPIC": "orders"})
        assert (copy.is_waiting, copy.is_delivery) == (True, False)
        assert copy.target == copy.origin_topic == "orders"
    again = retry(1, is_waiting=True, begin=0)
    assert (again.target, again.origin_topic) == ("%RETRY%G", "orders")
    assert not retry(1, is_waiting=False, begin=0).is_delivery
    assert (letter().is_delivery, letter().origin_topic) == (False, "orders")
    assert not record(CHECK_MAX_TOPIC).is_delivery
    assert [one.group for one in (record(), again, letter())] == ["", "G", "G"]


def test_timed_message_has_the_time_of_its_timer() -> None:
    timer = record(WHEEL_TOPIC, properties={"REAL_TOPIC": "orders", "TIMER_OUT_MS": str(NOW_MS)})
    assert due_ms(timer) == NOW_MS
    assert due_ms(record(WHEEL_TOPIC, properties={"REAL_TOPIC": "orders"})) is None
