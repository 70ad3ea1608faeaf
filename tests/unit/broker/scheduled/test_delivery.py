"""Storing what has waited."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from ternmq_broker.scheduled.delivery import Deliverer, Undeliverable, restore_topic
from ternmq_broker.storage.ack_policy import AckPolicy
from ternmq_broker.storage.confirmations import Confirmations
from ternmq_broker.storage.internal_append import InternalWriter
from ternmq_broker.storage.internal_record import InternalRecord
from ternmq_broker.storage.system_topic_routing import delayed
from ternmq_model.errors import ClosedError, StoreFull
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.batch import RecordBatch
from ternmq_model.record.format import Record, decode_record
from ternmq_model.route import TopicConfig
from ternmq_store.message_store import AppendResult
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.records import BORN_HOST, STORE_HOST, record


@dataclass
class Log:
    """A log of bodies."""

    error: Exception | None = None
    bodies: list[bytes] = field(default_factory=list[bytes])

    def append(
        self, batch: RecordBatch, *, born_host: bytes | None, store_host: bytes
    ) -> AppendResult:
        if self.error is not None:
            raise self.error
        for start in batch.starts.tolist():
            found = decode_record(batch.data, start)
            assert found is not None
            self.bodies.append(found.body)
        return AppendResult(np.zeros(1, np.int64), np.zeros(1, np.int64), 5, PhysicalOffset(100))


def deliverer(log: Log) -> Deliverer:
    async def space_made() -> bool:
        return False

    confirmations = Confirmations()
    confirmations.advance(PhysicalOffset(100))
    writer = InternalWriter(
        log,
        store_host=lambda: STORE_HOST,
        on_appended=lambda: None,
        space_made=space_made,
        ack_policy=AckPolicy(
            confirmations=confirmations, topics_saved=lambda: None, sync_flush_timeout_ms=1
        ),
        is_checksummed=True,
    )
    topics = {"A": TopicConfig("A", 1, 1)}
    return Deliverer(writer, lambda topic, _queue_id, _at: topics.get(topic))


def waiting(body: bytes, topic: str = "A", **more: str) -> Record:
    data = record(
        "SCHEDULE_TOPIC_XXXX",
        body=body,
        properties={"REAL_TOPIC": topic, "REAL_QID": "0", **more},
    )
    found = decode_record(data)
    assert found is not None
    return found


def test_undeliverable_records_are_dropped_and_others_delivered_in_order(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = Log()
    records = [waiting(b"%d" % number) for number in range(7)]
    records[2] = waiting(b"2", "Gone")
    records[5] = waiting(b"5", long="x" * 32_720)
    writer = deliverer(log)
    done = run_in_virtual_time(writer.deliver(records))
    assert log.bodies == [b"0", b"1", b"3", b"4", b"6"]
    assert (done.end, done.stored_at_ms) == (100, 5)
    assert (writer.delivered, writer.dropped) == (5, 2)
    assert "topic 'Gone' was deleted" in caplog.text
    assert "at most 32767" in caplog.text


def test_delivery_of_no_storable_record_has_no_end() -> None:
    records = [waiting(b"", "Gone"), waiting(b"", long="x" * 32_720)]
    writer = deliverer(Log())
    assert run_in_virtual_time(writer.deliver(records)) == (0, 0)
    assert run_in_virtual_time(writer.deliver([])) == (0, 0)
    assert (writer.delivered, writer.dropped) == (0, 2)


@pytest.mark.parametrize("error", [StoreFull("full"), ClosedError("closed")])
def test_store_refusing_everything_loses_nothing(error: Exception) -> None:
    log = Log(error)
    with pytest.raises(type(error)):
        run_in_virtual_time(deliverer(log).deliver([waiting(b"x")]))


TOPICS = {"A": TopicConfig("A", 4, 2), "Empty": TopicConfig("Empty", 0, 0)}


def internal(**properties: str) -> InternalRecord:
    return InternalRecord(
        topic="SCHEDULE_TOPIC_XXXX",
        queue_id=2,
        body=b"",
        properties=properties,
        born_at_ms=1,
        born_host=BORN_HOST,
    )


def find_topic(topic: str, _queue_id: int, _at: PhysicalOffset) -> TopicConfig | None:
    return TOPICS.get(topic)


@pytest.mark.parametrize(("told", "queue_id"), [("0", 0), ("3", 3), ("4", 0), ("6", 2)])
def test_record_is_restored_to_its_queue_with_all_properties(told: str, queue_id: int) -> None:
    record = internal(DELAY="3", REAL_TOPIC="A", REAL_QID=told)
    placed = restore_topic(record, find_topic, PhysicalOffset(0))
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
    placed = restore_topic(delayed(record, 4), find_topic, PhysicalOffset(0))
    assert (placed.topic, placed.queue_id, placed.reconsume_times) == ("A", 1, 3)


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({}, "name no queue"),
        ({"REAL_TOPIC": "A"}, "name no queue"),
        ({"REAL_TOPIC": "A", "REAL_QID": "-1"}, "name no queue"),
        ({"REAL_TOPIC": "A", "REAL_QID": "³"}, "name no queue"),
        ({"REAL_TOPIC": "Gone", "REAL_QID": "0"}, "deleted"),
        ({"REAL_TOPIC": "Empty", "REAL_QID": "0"}, "deleted"),
        ({"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"}, "belongs to the broker"),
        ({"REAL_TOPIC": "SCHEDULE_TOPIC_XXXX", "REAL_QID": "0"}, "belongs to the broker"),
    ],
)
def test_record_without_a_real_place_says_why(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(Undeliverable, match=reason):
        restore_topic(internal(**properties), find_topic, PhysicalOffset(0))
