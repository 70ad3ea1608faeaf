"""Filter pushdown: the conditions of a query that a read applies itself. Pure.

Conditions on whole queues and on offsets are applied exactly, so Spark does not test them again.
For store times, tags and keys the broker skips rows that cannot match, and Spark tests the others.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from ternmq_model.errors import IllegalMessage
from ternmq_model.expression_text import EXPRESSION_CHARACTERS_MAX
from ternmq_model.names import is_system_topic
from ternmq_model.offsets import QueueOffset
from ternmq_model.properties import KEY_SEPARATOR, check_tag
from ternmq_model.queue import MessageQueue
from ternmq_model.subscription import ALL_TAGS, Expression
from ternmq_pipeline.offsets import OFFSET_MAX, OffsetRange
from ternmq_pipeline.options.source_options import ReadOptions, View
from ternmq_pipeline.planning.partition_numbers import partition_number
from ternmq_pipeline.short_errors import short_errors
from ternmq_pipeline.source.schema import NEVER_NULL

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VALUES_MAX: Final = 100
"""Most keys or tags of a pushed condition. Spark tests longer ones."""


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Conditions on rows that a broker or store applies. Other rows may be skipped."""

    stored_from_ms: int = 0
    stored_before_ms: int = 0
    tags: tuple[str, ...] = ()
    """Tags of matching rows. Empty = any."""

    keys: tuple[str, ...] = ()
    """Keys, at least one of which a matching row has. Empty = any."""

    def tags_of(self, topic: str) -> Expression | None:
        """Return the tags as the expression of a subscription to `topic`; None = not possible.

        In system topics the tags code may hold another value.
        """
        if not self.tags or is_system_topic(topic):
            return None
        return Expression(" || ".join(self.tags))


ALL_ROWS: Final = RowFilter()


@dataclass(frozen=True, slots=True)
class QueuePredicate:
    """Condition on a column with one value for all rows of a queue."""

    view: View
    column: str
    holds: Callable[[Any, Any], bool]
    """Predicate over the column's value and `operand`, in this order."""

    operand: Any

    def passes(self, queue: MessageQueue) -> bool:
        """Return whether the condition holds for the rows of `queue`."""
        _, value_of = _QUEUE_COLUMNS[self.view][self.column]
        return self.holds(value_of(queue), self.operand)


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """Conditions of a query that a read applies to its offset ranges."""

    predicates: tuple[QueuePredicate, ...] = ()
    """Predicates that must hold for a queue of the read."""

    first: int = 0
    """Lowest offset of the query, in all queues."""

    end: int = OFFSET_MAX
    """Offset behind the highest one of the query, in all queues."""

    rows: RowFilter = ALL_ROWS

    def of(self, offset_ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Return the parts of `offset_ranges` that the conditions select."""
        found: list[OffsetRange] = []
        for offset_range in offset_ranges:
            first, last = max(offset_range.begin, self.first), min(offset_range.end, self.end)
            if first < last and all(
                predicate.passes(offset_range.queue) for predicate in self.predicates
            ):
                found.append(offset_range._replace(begin=QueueOffset(first), end=QueueOffset(last)))
        return found


@short_errors
class FilterPushdown:
    """`pushFilters` of a batch reader, for sessions with filter pushdown."""

    _options: ReadOptions
    _pushed: PushedFilters

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Apply the conditions that the read supports and return those that Spark must test."""
        if self._options.raw:
            # Raw records have no queue, and the tags code of their topic may be a time.
            return filters
        has_own = self._options.filter is not None
        self._pushed, left = push_filters(filters, self._options.view, has_own_filter=has_own)
        return left


def push_filters(
    filters: Sequence[Filter], view: View, *, has_own_filter: bool = False
) -> tuple[PushedFilters, list[Filter]]:
    """Divide the conditions of a query between the read and Spark. All conditions must hold.

    Args:
        filters: Conditions from Spark.
        view: View of the columns in the conditions.
        has_own_filter: True = the option `filter` selects the messages at the broker already.

    Returns:
        Conditions that the read applies, and conditions that Spark must test.
    """
    pushed = PushedFilters()
    left: list[Filter] = []
    for condition in filters:
        narrowed, is_exact = _pushed(pushed, condition, view)
        pushed = pushed if narrowed is None else narrowed
        if narrowed is None or not is_exact:
            left.append(condition)
    if has_own_filter:
        pushed = replace(pushed, rows=replace(pushed.rows, tags=()))
    return pushed, left


def _pushed(
    pushed: PushedFilters, condition: Filter, view: View
) -> tuple[PushedFilters | None, bool]:
    """Return `pushed` with one more condition, and whether Spark need not test it.

    None = the read cannot apply the condition.
    """
    path = _column_of(condition)
    if path is None or len(path) != 1:
        return None, False
    (name,) = path
    if isinstance(condition, IsNotNull):
        return (pushed, True) if name in NEVER_NULL[view] else (None, False)
    if name in _QUEUE_COLUMNS[view]:
        predicate = _queue_predicate(condition, view, name)
        if predicate is None:
            return None, False
        return replace(pushed, predicates=(*pushed.predicates, predicate)), True
    if name == _OFFSET[view]:
        return _with_offsets(pushed, condition)
    rows: RowFilter | None = None
    if name == _STORED[view]:
        rows = _with_times(pushed.rows, condition)
    elif view is View.TERNMQ and name == "tags":
        rows = _with_tags(pushed.rows, condition)
    elif view is View.TERNMQ and name == "keys":
        rows = _with_keys(pushed.rows, condition)
    return (None, False) if rows is None else (replace(pushed, rows=rows), False)


def _column_of(condition: Filter) -> tuple[str, ...] | None:
    inner = condition.child if isinstance(condition, Not) else condition
    return getattr(inner, "attribute", None)


def _values_of(condition: Filter, kind: type) -> list[Any] | None:
    """Return the values of an equality or `IN`; None for any other condition."""
    if isinstance(condition, EqualTo | EqualNullSafe):
        values: list[Any] = [condition.value]
    elif isinstance(condition, In):
        # A null in the list makes the condition unknown for other values: no such row matches.
        values = [value for value in condition.value if value is not None]
    else:
        return None
    return values if all(type(value) is kind for value in values) else None


def _queue_predicate(condition: Filter, view: View, column: str) -> QueuePredicate | None:
    """Return the predicate over queues that equals the condition on their rows."""
    kind, _ = _QUEUE_COLUMNS[view][column]
    if isinstance(condition, Not):
        inner = condition.child
        refused = _values_of(inner, kind)
        if refused is None or (isinstance(inner, In) and None in inner.value):
            return None
        return QueuePredicate(view, column, _is_none_of, tuple(refused))
    values = _values_of(condition, kind)
    if values is not None:
        return QueuePredicate(view, column, _is_one_of, tuple(values))
    compared = _COMPARED.get(type(condition))
    bound: Any = getattr(condition, "value", None)
    if compared is None or type(bound) is not int or kind is not int:
        return None
    return QueuePredicate(view, column, compared, bound)


def _is_one_of(value: Any, values: Sequence[Any]) -> bool:
    return value in values


def _is_none_of(value: Any, values: Sequence[Any]) -> bool:
    return value not in values


def _with_offsets(pushed: PushedFilters, condition: Filter) -> tuple[PushedFilters | None, bool]:
    values = _values_of(condition, int)
    if values is not None:
        first, end = min(values, default=0), max(values, default=-1) + 1
        is_exact = len(values) == 1
    else:
        bounds = _bounds(condition, int)
        if bounds is None:
            return None, False
        low, is_low_in, high, is_high_in = bounds
        first = 0 if low is None else low + (not is_low_in)
        end = OFFSET_MAX if high is None else high + is_high_in
        is_exact = True
    narrowed = replace(pushed, first=max(pushed.first, first), end=min(pushed.end, end))
    return narrowed, is_exact


def _with_times(rows: RowFilter, condition: Filter) -> RowFilter | None:
    values = _values_of(condition, datetime)
    if values is not None:
        low, high = min(values, default=_EPOCH), max(values, default=_EPOCH)
        bounds: _Bounds | None = (low, True, high, True)
    else:
        bounds = _bounds(condition, datetime)
    if bounds is None:
        return None
    low, _, high, is_high_in = bounds
    if low is not None:
        rows = replace(rows, stored_from_ms=max(rows.stored_from_ms, _us(low) // 1_000))
    if high is not None:
        # 0 means any time.
        before_ms = max(1, (_us(high) + is_high_in + 999) // 1_000)
        rows = replace(rows, stored_before_ms=min(rows.stored_before_ms or before_ms, before_ms))
    return rows


def _with_tags(rows: RowFilter, condition: Filter) -> RowFilter | None:
    tags = _values_of(condition, str)
    if not tags or rows.tags or not all(map(_can_be_selected, tags)):
        return None
    text_length = sum(map(len, tags)) + 4 * len(tags)
    if len(tags) > _VALUES_MAX or text_length > EXPRESSION_CHARACTERS_MAX:
        return None
    return replace(rows, tags=tuple(dict.fromkeys(tags)))


def _can_be_selected(tag: str) -> bool:
    if not tag or tag == ALL_TAGS:
        return False
    try:
        check_tag(tag)
    except IllegalMessage:
        return False
    return True


def _with_keys(rows: RowFilter, condition: Filter) -> RowFilter | None:
    """Narrow by `keys = array('a', …)`: Spark pushes no other condition on the keys."""
    if not isinstance(condition, EqualTo | EqualNullSafe) or rows.keys:
        return None
    # All keys must match, so a search for the first one finds every row.
    first = _first_of(condition.value)
    if not isinstance(first, str) or not first or KEY_SEPARATOR in first:
        return None
    return replace(rows, keys=(first,))


def _first_of(values: Any) -> Any:
    members: list[Any] = [*values] if isinstance(values, list) else []
    return members[0] if members else None


_Bounds: TypeAlias = tuple[Any, bool, Any, bool]
"""Low bound and whether it is inclusive, high bound and whether it is inclusive; None = none."""


def _bounds(condition: Filter, kind: type) -> _Bounds | None:
    value: Any = getattr(condition, "value", None)
    if type(value) is not kind:
        return None
    if isinstance(condition, GreaterThan | GreaterThanOrEqual):
        return value, isinstance(condition, GreaterThanOrEqual), None, False
    if isinstance(condition, LessThan | LessThanOrEqual):
        return None, False, value, isinstance(condition, LessThanOrEqual)
    return None


def _us(moment: datetime) -> int:
    """Return a time as Unix microseconds."""
    aware = moment if moment.tzinfo is not None else moment.astimezone()
    return (aware - _EPOCH) // timedelta(microseconds=1)


_COMPARED: Final[Mapping[type, Callable[[Any, Any], bool]]] = {
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}

_QUEUE_COLUMNS: Final[Mapping[View, Mapping[str, tuple[type, Callable[[MessageQueue], Any]]]]] = {
    View.TERNMQ: {
        "topic": (str, lambda queue: queue.topic),
        "brokerName": (str, lambda queue: queue.broker_name),
        "queueId": (int, lambda queue: queue.queue_id),
    },
    View.KAFKA: {
        "topic": (str, lambda queue: queue.topic),
        "partition": (int, lambda queue: partition_number(queue.broker_name, queue.queue_id)),
    },
}
"""Columns with one value for all rows of a queue: their type and the function of the queue."""

_OFFSET: Final = {View.TERNMQ: "queueOffset", View.KAFKA: "offset"}
_STORED: Final = {View.TERNMQ: "storeTimestamp", View.KAFKA: "timestamp"}
