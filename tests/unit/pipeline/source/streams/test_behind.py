"""What a source's progress says of its lag."""

import pytest

from ternmq_model.queue import MessageQueue
from ternmq_pipeline.source.streams.behind import Behind, offsets_behind, source_offsets

A0 = MessageQueue("TopicA", "broker-a", 0)
A1 = MessageQueue("TopicA", "broker-a", 1)
END = '{"v": 1, "t": {"TopicA": {"broker-a:0": 10, "broker-a:1": 4}}}'
LATEST = '{"v": 1, "t": {"TopicA": {"broker-a:0": 25, "broker-a:1": 4, "broker-a:2": 9}}}'


def test_each_queue_is_behind_by_what_it_has_and_the_batch_did_not_reach() -> None:
    behind = offsets_behind(END, LATEST)
    assert behind == Behind({A0: 15, A1: 0})
    assert Behind({A0: 15, A1: 4}).total == 19


def test_the_figures_are_called_as_kafkas_users_know_them() -> None:
    assert Behind({A0: 15, A1: 0}).metrics() == {
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 15,
        "avgOffsetsBehindLatest": 7.5,
    }
    assert set(Behind({}).metrics().values()) == {0}


def test_a_queue_that_shrank_or_went_is_not_behind() -> None:
    assert offsets_behind(END, '{"v":1,"t":{"TopicA":{"broker-a:0":3}}}') == Behind({A0: 0})


@pytest.mark.parametrize("latest", [None, "null", '{"v":2,"t":{}}', '{"sourceVersion":1}', "x"])
def test_progress_that_is_not_ours_or_tells_no_end_says_nothing(latest: str | None) -> None:
    assert source_offsets(latest) is None
    assert offsets_behind(END, latest) is None
    assert offsets_behind(latest, END) is None
