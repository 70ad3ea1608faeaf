from ternmq_client.admin.descriptions import GroupDescription, QueueProgress
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.jobs.cluster_report.report_queries import (
    CounterRate,
    counters,
    group_rows,
    member_row,
)
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1.groups_pb2 import QueueState, RunningState

NOW_MS = 1_000_000


def counter(key: str, rate: float, day: int) -> admin.StatisticsItem:
    spans = [
        admin.StatisticsSpan(seconds=60, sum=1, rate=rate),
        admin.StatisticsSpan(seconds=3600, sum=2, rate=rate),
        admin.StatisticsSpan(seconds=86_400, sum=day, rate=rate),
    ]
    return admin.StatisticsItem(name="TOPIC_PUT_NUMS", key=key, total=9, spans=spans)


def progress(topic: str, queue_id: int, waiting: int, lag_ms: int) -> QueueProgress:
    queue = MessageQueue(topic, "a", queue_id)
    return QueueProgress(queue, 10, 0, 10 + waiting, lag_ms=lag_ms)


def test_counters_of_several_brokers_are_added() -> None:
    found = counters([("a", counter("T", 1.5, 10)), ("b", counter("T", 0.5, 7))])
    assert found == {"TOPIC_PUT_NUMS": {"T": CounterRate(2.0, 17)}}


def test_gauge_is_no_rate() -> None:
    assert counters([("a", admin.StatisticsItem(name="GROUP_GET_FALL_TIME", key="T@G"))]) == {}


def test_group_has_a_row_for_each_topic_including_its_retries() -> None:
    found = GroupDescription(
        "G",
        (),
        (progress("T", 0, 5, 700), progress("T", 1, 0, 0), progress("%RETRY%G", 0, 1, 90)),
    )
    retries, topic = group_rows(found, {"GROUP_GET_NUMS": {"T@G": CounterRate(2.0, 30)}}, 700)
    assert (retries.topic, retries.is_retry, retries.lag, retries.is_slow) == (
        "%RETRY%G",
        True,
        1,
        False,
    )
    assert (topic.lag, topic.lag_s, topic.out_24h, topic.is_slow) == (5, 0.7, 30, True)


def state(*, messages: int, pulled_ms: int, consumed_ms: int) -> RunningState:
    queue = QueueState(messages=messages, pulled_at_ms=pulled_ms, consumed_at_ms=consumed_ms)
    return RunningState(queues=[queue], facts={"messages_per_s": "2.5", "failures": "3"})


def test_consumer_is_slow_when_it_holds_messages_and_nothing_moves() -> None:
    cases = (
        (state(messages=2, pulled_ms=NOW_MS - 900, consumed_ms=0), True),
        (state(messages=2, pulled_ms=NOW_MS - 900, consumed_ms=NOW_MS - 10), False),
        (state(messages=2, pulled_ms=NOW_MS - 10, consumed_ms=0), False),
        (state(messages=0, pulled_ms=NOW_MS - 900, consumed_ms=NOW_MS - 900), False),
    )
    for told, is_slow in cases:
        row = member_row("G", "c", "h:1", told, now_ms=NOW_MS, slow_after_ms=500)
        assert row.is_slow is is_slow
        assert (row.messages_per_s, row.failures, row.sent_back) == (2.5, 3, None)


def test_silent_consumer_still_has_a_row() -> None:
    row = member_row("G", "c", "h:1", None, now_ms=NOW_MS, slow_after_ms=500)
    assert (row.queues, row.in_hand, row.is_slow) == (None, None, False)
