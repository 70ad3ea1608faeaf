import asyncio
import json
from collections.abc import Sequence
from typing import cast

from ternmq_broker.pull.offset_moved import OffsetMovedEvent, OffsetMovedPublisher
from ternmq_broker.state.topics import TopicTable
from ternmq_broker.storage.internal_append import InternalWriter
from ternmq_broker.storage.internal_record import InternalRecord
from ternmq_model.data_version import DataVersion
from ternmq_model.errors import StoreFailed, TernError, refusal
from ternmq_model.names import OFFSET_MOVED_TOPIC
from ternmq_model.response_code import ResponseCode

EVENT = OffsetMovedEvent("G", "T", 3, 99, 7)
HOST = bytes((10, 0, 0, 1)) + (10_911).to_bytes(4, "big")


class Place:
    """Where events are kept, without a store. Is a clock and a writer."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.records: list[InternalRecord] = []
        self.error: TernError | None = None
        self.created = 0
        self.topics = TopicTable(DataVersion(0))
        self.events = OffsetMovedPublisher(
            cast(InternalWriter, self),
            self.topics,
            self,
            "broker-a",
            self._created,
        )

    def store_host(self) -> bytes:
        return HOST

    def _created(self) -> None:
        self.created += 1

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now_ms

    def append(self, records: Sequence[InternalRecord]) -> None:
        if self.error is not None:
            raise self.error
        self.records += records

    def step(self) -> bool:
        return asyncio.run(self.events.step())


def test_offset_moved_event_has_rocketmqs_format() -> None:
    place = Place()
    place.events.add(EVENT)
    assert place.step() is False
    (record,) = place.records
    assert (record.topic, record.queue_id) == (OFFSET_MOVED_TOPIC, 0)
    assert record.properties == {"TAGS": "G", "KEYS": "G"}
    assert record.born_host == HOST
    assert json.loads(record.body) == {
        "consumerGroup": "G",
        "messageQueue": {"brokerName": "broker-a", "queueId": 3, "topic": "T"},
        "offsetNew": 7,
        "offsetRequest": 99,
    }
    config = place.topics.get(OFFSET_MOVED_TOPIC)
    assert config is not None
    assert (config.read_queues, config.write_queues, place.created) == (1, 1, 1)


def test_repeated_corrections_are_recorded_once_a_minute() -> None:
    place = Place()
    for _ in range(1_000):
        place.events.add(EVENT)
    place.events.add(EVENT._replace(queue_id=4))
    place.step()
    assert len(place.records) == 2
    place.now_ms += 59_999
    place.events.add(EVENT)
    assert place.step() is False
    assert len(place.records) == 2
    place.now_ms += 1
    place.events.add(EVENT)
    place.step()
    assert len(place.records) == 3
    assert place.created == 1


def test_events_that_cannot_be_stored_wait_in_order() -> None:
    place = Place()
    place.error = refusal(ResponseCode.SYSTEM_BUSY, "no room")
    for number in range(5):
        place.events.add(EVENT._replace(queue_id=number))
    assert place.step() is False
    place.error = None
    place.step()
    queues = [json.loads(record.body)["messageQueue"]["queueId"] for record in place.records]
    assert queues == [0, 1, 2, 3, 4]


def test_refusing_store_loses_events_and_nothing_else() -> None:
    place = Place()
    place.error = StoreFailed("the store failed")
    place.events.add(EVENT)
    assert place.step() is False
    place.error = None
    assert place.step() is False
    assert place.records == []


def test_flood_of_different_events_is_bounded() -> None:
    place = Place()
    for number in range(5_000):
        place.events.add(EVENT._replace(requested=number))
    steps = 0
    while place.step():
        steps += 1
    assert steps < 20
    assert len(place.records) == 1_000
