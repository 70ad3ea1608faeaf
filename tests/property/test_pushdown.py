"""Conditions that a read applies change no result: what is passed over does not match anyway."""

import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st
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
)

from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.subscription import parse_subscription
from ternmq_pipeline.offsets import OffsetRange
from ternmq_pipeline.options.source_options import View
from ternmq_pipeline.source.pushdown import push_filters

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
COMPARED: dict[type, Callable[[Any, Any], bool]] = {
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


class Row(NamedTuple):
    topic: str
    brokerName: str
    queueId: int
    queueOffset: int
    tags: str | None
    keys: list[str]
    storeTimestamp: datetime

    @property
    def offset_range(self) -> OffsetRange:
        queue = MessageQueue(self.topic, self.brokerName, self.queueId)
        return OffsetRange(queue, QueueOffset(self.queueOffset), QueueOffset(self.queueOffset + 1))

    @property
    def stored_at_ms(self) -> int:
        return (self.storeTimestamp - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def holds(condition: Filter, row: Row) -> bool | None:
    """Tell what SQL says; None is unknown."""
    if isinstance(condition, Not):
        inner = holds(condition.child, row)
        return None if inner is None else not inner
    (name,) = getattr(condition, "attribute")  # noqa: B009
    value = getattr(row, name)
    if isinstance(condition, IsNull | IsNotNull):
        return (value is None) == isinstance(condition, IsNull)
    operand = getattr(condition, "value")  # noqa: B009
    if isinstance(condition, EqualNullSafe):
        return bool(value == operand)
    if value is None or operand is None:
        return None
    if isinstance(condition, In):
        return True if value in operand else (None if None in operand else False)
    return (
        operator.eq(value, operand) if isinstance(condition, EqualTo) else _compare(condition, row)
    )


def _compare(condition: Filter, row: Row) -> bool:
    (name,) = getattr(condition, "attribute")  # noqa: B009
    return COMPARED[type(condition)](getattr(row, name), getattr(condition, "value"))  # noqa: B009


names = st.sampled_from(["a", "b", "c"])
numbers = st.integers(0, 6)
tags = st.sampled_from(["x", "y", "*", "x||y", " x", ""])
# Rows have whole milliseconds; conditions need not.
stored = st.integers(0, 5).map(lambda ms: BEGIN + timedelta(milliseconds=ms))
moments = st.integers(-500, 5_500).map(lambda us: BEGIN + timedelta(microseconds=us))
rows = st.builds(
    Row,
    names, names, numbers, numbers, st.none() | tags, st.lists(names, max_size=2), stored,
)  # fmt: skip
COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "topic": names,
    "brokerName": names,
    "queueId": numbers,
    "queueOffset": numbers,
    "tags": tags,
    "keys": st.lists(names, max_size=2),
    "storeTimestamp": moments,
}


@st.composite
def conditions(draw: st.DrawFn) -> Filter:
    name = draw(st.sampled_from(sorted(COLUMNS)))
    values = COLUMNS[name]
    kind = draw(st.sampled_from([*COMPARED, EqualTo, EqualNullSafe, In, IsNull, IsNotNull]))
    if kind is In:
        condition: Filter = In((name,), tuple(draw(st.lists(st.none() | values, max_size=3))))
    elif kind in (IsNull, IsNotNull):
        condition = kind((name,))
    else:
        # Spark has no such comparison with null but the null-safe one.
        operand = draw(st.none() | values if kind is EqualNullSafe else values)
        compared: Any = kind
        condition = compared((name,), operand)
    return Not(condition) if draw(st.booleans()) else condition


@given(st.lists(conditions(), max_size=4), st.lists(rows, max_size=20))
def test_pushed_and_remaining_filters_together_equal_the_query(
    filters: list[Filter], rows: list[Row]
) -> None:
    pushed, left = push_filters(filters, View.TERNMQ)
    wanted = pushed.rows

    def is_given(row: Row) -> bool:
        expression = wanted.tags_of(row.topic)
        subscription = expression and parse_subscription(row.topic, *expression)
        return (
            bool(pushed.of([row.offset_range]))
            and row.stored_at_ms >= wanted.stored_from_ms
            and (not wanted.stored_before_ms or row.stored_at_ms < wanted.stored_before_ms)
            and (not wanted.keys or bool(set(wanted.keys) & set(row.keys)))
            and (not subscription or row.tags in subscription.tags)
        )

    asked = [row for row in rows if all(holds(condition, row) is True for condition in filters)]
    found = [
        row
        for row in rows
        if is_given(row) and all(holds(condition, row) is True for condition in left)
    ]
    assert found == asked
