import json

import pytest

from ternmq_model.errors import UsageError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.offsets import (
    OffsetRange,
    offsets_from_json,
    offsets_text,
    offsets_to_json,
    queue_from_text,
    read_numbers,
    topics_of,
)

A0 = MessageQueue("TopicA", "broker-a", 0)
A10 = MessageQueue("TopicA", "broker-a", 10)
B2 = MessageQueue("TopicB", "room@broker-b", 2)


def test_offsets_are_versioned_json_with_sorted_keys() -> None:
    offsets = {B2: 7, A10: 1, A0: 5}
    text = '{"t":{"TopicA":{"broker-a:0":5,"broker-a:10":1},"TopicB":{"room@broker-b:2":7}},"v":1}'
    assert offsets_text(offsets) == text
    assert json.dumps(offsets_to_json(offsets), separators=(",", ":")) == text
    assert offsets_from_json(text) == offsets_from_json(offsets_to_json(offsets)) == offsets


def test_start_of_a_first_batch_is_ignored() -> None:
    with_start = offsets_to_json({A0: 5}) | {"from": {"TopicA": {"broker-a:0": 2}}}
    assert offsets_from_json(with_start) == {A0: 5}
    with pytest.raises(UsageError):
        offsets_from_json(offsets_to_json({A0: 5}) | {"from": {"TopicA": {"broker-a:0": -2}}})


@pytest.mark.parametrize(
    "value",
    [
        {"TopicA": {"broker-a:0": 1}},
        {"v": 2, "t": {}},
        {"v": True, "t": {}},
        {"v": "1", "t": {}},
        {"v": 1},
        {"v": 1, "t": []},
        {"v": 1, "t": {}, "x": 1},
        {"v": 1, "t": {"TopicA": {"broker-a:0": -1}}},
        {"v": 1, "t": {"TopicA": {"broker-a:0": None}}},
        None,
        7,
        "",
        "[]",
        "{",
    ],
)
def test_foreign_checkpoint_is_refused(value: object) -> None:
    with pytest.raises(UsageError, match="checkpoint"):
        offsets_from_json(value)


def test_option_offsets_need_no_version_and_may_have_one() -> None:
    for text in ('{"TopicA":{"broker-a:0":-2}}', '{"v":1,"t":{"TopicA":{"broker-a:0":-2}}}'):
        assert read_numbers(text, option="startingOffsets", minimum=-2) == {A0: -2}


def test_topics_may_be_named_like_parts_of_the_versioned_form() -> None:
    found = read_numbers('{"v":{"b:0":1},"t":{"b:0":2}}', option="x", minimum=0)
    assert found == {MessageQueue("v", "b", 0): 1, MessageQueue("t", "b", 0): 2}


@pytest.mark.parametrize("text", ["0", ":0", "b:", "b:+1", "b:٣", "b:1e1", "b: 1", "b:123456"])
def test_text_without_a_queue_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        queue_from_text("TopicA", text)


def test_range_knows_its_length_and_name() -> None:
    offset_range = OffsetRange(A0, QueueOffset(3), QueueOffset(9))
    assert offset_range.messages == 6
    assert str(offset_range) == "TopicA@broker-a:0 [3, 9)"
    assert topics_of([B2, A0, A10]) == ["TopicA", "TopicB"]
