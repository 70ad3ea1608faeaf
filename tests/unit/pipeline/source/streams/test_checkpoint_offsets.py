"""Offsets of checkpoints."""

import json
from collections.abc import Mapping

import pytest

from ternmq_model.errors import UsageError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.offsets import offsets_from_json, offsets_to_json
from ternmq_pipeline.source.streams.checkpoint_offsets import NEW, beginning, end_to_json

A0 = MessageQueue("TopicA", "broker-a", 0)
A1 = MessageQueue("TopicA", "broker-a", 1)


def at(first: int, second: int) -> dict[MessageQueue, QueueOffset]:
    return {A0: QueueOffset(first), A1: QueueOffset(second)}


def test_repeated_first_batch_begins_where_it_began() -> None:
    end = json.loads(json.dumps(end_to_json(at(10, 4), begin=at(3, 4))))
    assert end == {
        "v": 1,
        "from": {"TopicA": {"broker-a:0": 3, "broker-a:1": 4}},
        "t": {"TopicA": {"broker-a:0": 10, "broker-a:1": 4}},
    }
    assert beginning(json.loads(json.dumps(NEW)), end) == at(3, 4)
    assert offsets_from_json(end) == at(10, 4)


def test_later_batch_begins_where_the_previous_one_ended() -> None:
    end_of_first = end_to_json(at(5, 5), begin=at(0, 0))
    assert beginning(end_of_first, offsets_to_json(at(7, 7))) == at(5, 5)


def test_new_queue_in_a_later_batch_begins_where_that_batch_says() -> None:
    start = offsets_to_json({A0: QueueOffset(5)})
    end = json.loads(json.dumps(end_to_json(at(7, 9), begin={A1: QueueOffset(2)})))
    assert beginning(start, end) == at(5, 2)
    assert beginning(end, end) == at(7, 9)


def test_end_records_its_store_and_a_batch_may_start_over() -> None:
    stores = {"broker-b": "2", "broker-a": "1"}
    end = end_to_json(at(3, 9), begin={A0: QueueOffset(0)}, stores=stores)
    assert list(end["stores"]) == ["broker-a", "broker-b"]
    assert beginning(offsets_to_json(at(5, 5)), json.loads(json.dumps(end))) == at(0, 5)


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ({"v": 2, "t": {}}, {"v": 1, "t": {}}),
        (NEW, {"v": 2, "from": {}, "t": {}}),
        (NEW, {"v": 1, "t": {}}),
        ({"t": {}}, {"v": 1, "t": {}}),
        (NEW, {"v": 1, "from": [1], "t": {}}),
        ({"v": 1, "t": {}}, {"v": 1, "stores": {"broker-a": 1}, "t": {}}),
        ({"v": 1, "t": {}}, {"v": 1, "stores": "x", "t": {}}),
        ({"v": 1, "t": {}}, {"v": 1, "parked": {"TopicA": {"broker-a:0": -1}}, "t": {}}),
    ],
)
def test_offsets_of_another_version_or_form_are_refused(
    start: Mapping[str, object], end: Mapping[str, object]
) -> None:
    with pytest.raises(UsageError):
        beginning(start, end)
