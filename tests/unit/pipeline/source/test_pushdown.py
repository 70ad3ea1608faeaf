from datetime import UTC, datetime, timedelta, timezone

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.subscription import Expression
from ternmq_pipeline.offsets import OffsetRange
from ternmq_pipeline.options.source_options import View
from ternmq_pipeline.planning.partition_numbers import partition_number
from ternmq_pipeline.source.pushdown import PushedFilters, push_filters

A0, A1, B0 = (
    OffsetRange(MessageQueue("T", name, queue_id), QueueOffset(10), QueueOffset(20))
    for name, queue_id in (("broker-a", 0), ("broker-a", 1), ("broker-b", 0))
)
MOMENT = datetime(2026, 3, 4, 5, 6, 7, 123456, tzinfo=UTC)
MOMENT_MS = 1772600767123


def pushed(*filters: Filter, view: View = View.TERNMQ) -> PushedFilters:
    return push_filters(filters, view)[0]


def left(*filters: Filter, view: View = View.TERNMQ) -> list[Filter]:
    return push_filters(filters, view)[1]


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        (EqualTo(("queueId",), 1), [A1]),
        (EqualNullSafe(("queueId",), 0), [A0, B0]),
        (In(("queueId",), (1, None)), [A1]),
        (GreaterThan(("queueId",), 0), [A1]),
        (LessThanOrEqual(("queueId",), 0), [A0, B0]),
        (Not(EqualTo(("queueId",), 0)), [A1]),
        (Not(In(("brokerName",), ("broker-a", "x"))), [B0]),
        (EqualTo(("brokerName",), "broker-b"), [B0]),
        (EqualTo(("topic",), "t"), []),
        (IsNotNull(("queueId",)), [A0, A1, B0]),
    ],
)
def test_queue_conditions_choose_queues_and_are_done(
    condition: Filter, wanted: list[OffsetRange]
) -> None:
    assert pushed(condition).of([A0, A1, B0]) == wanted
    assert left(condition) == []


@pytest.mark.parametrize(
    ("condition", "begin", "end"),
    [
        (EqualTo(("queueOffset",), 12), 12, 13),
        (GreaterThan(("queueOffset",), 12), 13, 20),
        (GreaterThanOrEqual(("queueOffset",), 12), 12, 20),
        (LessThan(("queueOffset",), 12), 10, 12),
        (LessThanOrEqual(("queueOffset",), 12), 10, 13),
    ],
)
def test_offset_conditions_cut_ranges_and_are_done(condition: Filter, begin: int, end: int) -> None:
    (offset_range,) = pushed(condition).of([A0])
    assert (offset_range.begin, offset_range.end) == (begin, end)
    assert left(condition) == []


def test_several_offsets_are_cut_to_their_span_and_tested_again() -> None:
    condition = In(("queueOffset",), (12, 15, None))
    (offset_range,) = pushed(condition).of([A0])
    assert (offset_range.begin, offset_range.end) == (12, 16)
    assert left(condition) == [condition]


def test_conditions_intersect() -> None:
    found = pushed(
        GreaterThan(("queueOffset",), 11),
        LessThan(("queueOffset",), 15),
        GreaterThan(("queueOffset",), 3),
        EqualTo(("queueId",), 0),
    ).of([A0, A1])
    assert found == [A0._replace(begin=QueueOffset(12), end=QueueOffset(15))]
    assert pushed(GreaterThan(("queueOffset",), 20)).of([A0]) == []


@pytest.mark.parametrize(
    ("condition", "begin_ms", "before_ms"),
    [
        (GreaterThan(("storeTimestamp",), MOMENT), MOMENT_MS, 0),
        (LessThan(("storeTimestamp",), MOMENT), 0, MOMENT_MS + 1),
        (LessThan(("storeTimestamp",), MOMENT.replace(microsecond=123000)), 0, MOMENT_MS),
        (
            LessThanOrEqual(("storeTimestamp",), MOMENT.replace(microsecond=123000)),
            0,
            MOMENT_MS + 1,
        ),
        (EqualTo(("storeTimestamp",), MOMENT), MOMENT_MS, MOMENT_MS + 1),
        (LessThan(("storeTimestamp",), datetime(1960, 1, 1, tzinfo=UTC)), 0, 1),
    ],
)
def test_store_times_are_narrowed_to_milliseconds_and_tested_again(
    condition: Filter, begin_ms: int, before_ms: int
) -> None:
    rows = pushed(condition).rows
    assert (rows.stored_from_ms, rows.stored_before_ms) == (begin_ms, before_ms)
    assert left(condition) == [condition]


def test_times_of_other_zones_are_the_same_moments() -> None:
    there = MOMENT.astimezone(timezone(timedelta(hours=9)))
    assert pushed(GreaterThan(("storeTimestamp",), there)).rows.stored_from_ms == MOMENT_MS


def test_tags_become_a_subscription_and_are_tested_again() -> None:
    condition = In(("tags",), ("a", "b", None))
    assert pushed(condition).rows.tags_of("T") == Expression("a || b")
    assert left(condition) == [condition]


def test_tags_of_system_topics_are_left_alone() -> None:
    assert pushed(EqualTo(("tags",), "a")).rows.tags_of("SCHEDULE_TOPIC_XXXX") is None


def test_tags_are_left_alone_when_the_option_filter_selects() -> None:
    found, _ = push_filters([EqualTo(("tags",), "a")], View.TERNMQ, has_own_filter=True)
    assert found.rows.tags_of("T") is None


def test_keys_are_pushed_and_tested_again() -> None:
    condition = EqualTo(("keys",), ["k1", "k2"])
    assert pushed(condition).rows.keys == ("k1",)
    assert left(condition) == [condition]


@pytest.mark.parametrize(
    "condition",
    [
        EqualTo(("tags",), "*"),
        EqualTo(("tags",), "a||b"),
        EqualTo(("tags",), " a"),
        EqualTo(("tags",), ""),
        EqualTo(("tags",), None),
        In(("tags",), tuple(f"tag-{n}" for n in range(1000))),
        Not(EqualTo(("tags",), "a")),
        IsNull(("tags",)),
        IsNotNull(("tags",)),
        IsNull(("queueId",)),
        EqualTo(("queueId",), None),
        Not(In(("queueId",), (1, None))),
        Not(EqualTo(("queueOffset",), 12)),
        StringStartsWith(("topic",), "T"),
        GreaterThan(("topic",), "S"),
        EqualTo(("keys",), []),
        EqualTo(("keys",), ["a b"]),
        EqualTo(("keys",), [""]),
        EqualTo(("body",), b"x"),
        EqualTo(("properties", "a"), "x"),
        EqualTo(("offset",), 1),
    ],
)
def test_other_conditions_are_left_to_spark(condition: Filter) -> None:
    assert push_filters([condition], View.TERNMQ) == (PushedFilters(), [condition])


def test_kafka_view_pushes_its_own_column_names() -> None:
    number = partition_number("broker-b", 0)
    assert pushed(EqualTo(("partition",), number), view=View.KAFKA).of([A0, A1, B0]) == [B0]
    (offset_range,) = pushed(LessThan(("offset",), 12), view=View.KAFKA).of([A0])
    assert offset_range.end == 12
    assert pushed(GreaterThan(("timestamp",), MOMENT), view=View.KAFKA).rows.stored_from_ms
    tags = EqualTo(("tags",), "a")
    assert left(tags, view=View.KAFKA) == [tags]
