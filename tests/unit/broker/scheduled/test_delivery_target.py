"""Where a record goes that has waited."""

import pytest

from ternmq_broker.scheduled.delivery import Undeliverable, restore_topic
from ternmq_broker.storage.internal_record import InternalRecord
from ternmq_broker.storage.system_topic_routing import delayed
from ternmq_model.route import TopicConfig
from tests.support.records import BORN_HOST

TOPICS = {"A": TopicConfig("A", 4, 2), "Empty": TopicConfig("Empty", 0, 0)}


def waiting(**properties: str) -> InternalRecord:
    return InternalRecord(
        topic="SCHEDULE_TOPIC_XXXX",
        queue_id=2,
        body=b"",
        properties=properties,
        born_at_ms=1,
        born_host=BORN_HOST,
    )


def find(topic: str, _queue_id: int) -> TopicConfig | None:
    return TOPICS.get(topic)


@pytest.mark.parametrize(("told", "queue_id"), [("0", 0), ("3", 3), ("4", 0), ("6", 2)])
def test_record_is_restored_to_its_queue_with_all_properties(told: str, queue_id: int) -> None:
    record = waiting(DELAY="3", REAL_TOPIC="A", REAL_QID=told)
    placed = restore_topic(record, find)
    assert (placed.topic, placed.queue_id) == ("A", queue_id)
    assert placed.properties == record.properties


def test_delayed_record_gets_its_real_place_back() -> None:
    record = InternalRecord(
        topic="A",
        queue_id=1,
        body=b"x",
        properties={},
        born_at_ms=1,
        born_host=BORN_HOST,
        reconsume_times=3,
    )
    placed = restore_topic(delayed(record, 4), find)
    assert (placed.topic, placed.queue_id, placed.reconsume_times) == ("A", 1, 3)


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({}, "names no queue"),
        ({"REAL_TOPIC": "A"}, "names no queue"),
        ({"REAL_TOPIC": "A", "REAL_QID": "-1"}, "names no queue"),
        ({"REAL_TOPIC": "A", "REAL_QID": "³"}, "names no queue"),
        ({"REAL_TOPIC": "Gone", "REAL_QID": "0"}, "deleted"),
        ({"REAL_TOPIC": "Empty", "REAL_QID": "0"}, "deleted"),
        ({"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"}, "belongs to the broker"),
        ({"REAL_TOPIC": "SCHEDULE_TOPIC_XXXX", "REAL_QID": "0"}, "belongs to the broker"),
    ],
)
def test_record_without_a_real_place_says_why(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(Undeliverable, match=reason):
        restore_topic(waiting(**properties), find)
