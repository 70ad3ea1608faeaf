"""What a source's progress says of its lag."""

import pytest

from ternmq_model.queue import MessageQueue
from ternmq_pipeline.source.streams.stream_lag import StreamLag, offsets_behind, source_offsets

A0 = MessageQueue("TopicA", "broker-a", 0)
A1 = MessageQueue("TopicA", "broker-a", 1)
END = '{"v": 1, "t": {"TopicA": {"broker-a:0": 10, "broker-a:1": 4}}}'
LATEST = '{"v": 1, "t": {"TopicA": {"broker-a:0": 25, "broker-a:1": 4, "broker-a:2": 9}}}'


def test_queue_lag_is_its_end_minus_the_batchs_end() -> None:
    behind = offsets_behind(END, LATEST)
    assert behind == StreamLag({A0: 15, A1: 0})
    assert StreamLag({A0: 15, A1: 4}).total == 19


def test_metrics_have_the_names_kafka_users_know() -> None:
    assert StreamLag({A0: 15, A1: 0}).metrics() == {
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 15,
        "avgOffsetsBehindLatest": 7.5,
    }
    assert set(StreamLag({}).metrics().values()) == {0}


def test_shrunken_or_missing_queue_has_no_lag() -> None:
    assert offsets_behind(END, '{"v":1,"t":{"TopicA":{"broker-a:0":3}}}') == StreamLag({A0: 0})


@pytest.mark.parametrize("latest", [None, "null", '{"v":2,"t":{}}', '{"sourceVersion":1}', "x"])
def test_progress_of_other_sources_or_without_end_reports_no_lag(latest: str | None) -> None:
    assert source_offsets(latest) is None
    assert offsets_behind(END, latest) is None
    assert offsets_behind(latest, END) is None
