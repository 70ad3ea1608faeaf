"""Projection of batches to the columns of a query."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute

from ternmq_model.properties import KEY_SEPARATOR
from ternmq_pipeline.options.source_options import View
from ternmq_pipeline.planning.partition_numbers import partition_number

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

LOG_APPEND_TIME: Final = 1
"""Value of Kafka's `timestampType` for times of the broker's clock."""

ArrowArray: TypeAlias = Any
"""A column: an Arrow array of some type."""

_arrow: Any = pa
_compute: Any = pyarrow.compute
"""Untyped views: pyarrow's stubs cover a part of its functions."""


class BatchProjection:
    """Projection from the columns of `View.TERNMQ` to the columns of a query.

    Args:
        names: Columns, in the order of the query.
        schema: Spark's schema of the columns. Batches have the equal Arrow schema.
    """

    def __init__(self, view: View, names: tuple[str, ...], schema: "StructType") -> None:
        self._view = view
        self._names = names
        self._schema = schema

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """Columns of `View.TERNMQ` that a projected batch needs, in their order."""
        if self._view is View.TERNMQ:
            return self._names
        needed = dict.fromkeys(source for name in self._names for source in _KAFKA_SOURCES[name])
        # A batch without columns has no number of rows.
        return tuple(needed) or ("queueOffset",)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """Schema of every batch."""
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(self._schema, timezone="UTC")

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the columns of the query.

        Args:
            batch: Rows of one broker with the columns `sources`, and perhaps others.
        """
        if batch.schema.equals(self.arrow_schema):
            return batch
        fields: Any = self.arrow_schema
        columns = [
            self._column(batch, name, field.type)
            for name, field in zip(self._names, fields, strict=True)
        ]
        made: pa.RecordBatch = _arrow.RecordBatch.from_arrays(columns, schema=self.arrow_schema)
        return made

    def _column(self, batch: Any, name: str, arrow_type: Any) -> ArrowArray:
        is_ours = self._view is View.TERNMQ
        made = batch.column(name) if is_ours else _KAFKA_COLUMNS[name](batch)
        return made if made.type.equals(arrow_type) else _retyped(made, arrow_type)


def _retyped(column: ArrowArray, arrow_type: Any) -> ArrowArray:
    """Return a column in a type with other nullability or other names of fields."""
    if _arrow.types.is_map(arrow_type):
        return _arrow.MapArray.from_arrays(column.offsets, column.keys, column.items, arrow_type)
    return column.cast(arrow_type)


def _key(batch: Any) -> ArrowArray:
    keys = batch.column("keys")
    text = _compute.binary_join(keys, KEY_SEPARATOR).cast(_arrow.binary())
    return _null_where_empty(keys, text)


def _partition(batch: Any) -> ArrowArray:
    queue_ids = batch.column("queueId")
    if not batch.num_rows:
        return queue_ids
    broker_name: str = batch.column("brokerName")[0].as_py()
    return _compute.add(queue_ids, _arrow.scalar(partition_number(broker_name, 0), _arrow.int32()))


def _headers(batch: Any) -> ArrowArray:
    properties = batch.column("properties")
    parts = [properties.keys, properties.items.cast(_arrow.binary())]
    pairs = _arrow.StructArray.from_arrays(parts, names=["key", "value"])
    headers = _arrow.ListArray.from_arrays(properties.offsets, pairs)
    return _null_where_empty(headers, headers)


def _null_where_empty(lists: ArrowArray, column: ArrowArray) -> ArrowArray:
    is_empty = _compute.equal(_compute.list_value_length(lists), 0)
    if not is_empty.true_count:
        return column
    return _compute.if_else(is_empty, _arrow.scalar(None, column.type), column)


def _timestamp_type(batch: Any) -> ArrowArray:
    return _arrow.array(np.full(batch.num_rows, LOG_APPEND_TIME, np.int32))


_KAFKA_SOURCES: Final[Mapping[str, tuple[str, ...]]] = {
    "key": ("keys",),
    "value": ("body",),
    "topic": ("topic",),
    "partition": ("queueId", "brokerName"),
    "offset": ("queueOffset",),
    "timestamp": ("storeTimestamp",),
    "timestampType": (),
    "headers": ("properties",),
}
_KAFKA_COLUMNS: Final[Mapping[str, Callable[[Any], ArrowArray]]] = {
    "key": _key,
    "value": methodcaller("column", "body"),
    "topic": methodcaller("column", "topic"),
    "partition": _partition,
    "offset": methodcaller("column", "queueOffset"),
    "timestamp": methodcaller("column", "storeTimestamp"),
    "timestampType": _timestamp_type,
    "headers": _headers,
}


def tuples_of(batches: Iterator[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of batches as Python tuples, a map as a dict."""
    for batch in batches:
        columns: list[list[Any]] = []
        for column in batch.columns:
            cells: list[Any] = column.to_pylist()
            is_map = _arrow.types.is_map(column.type)
            columns.append([dict(cell) for cell in cells] if is_map else cells)
        yield from zip(*columns, strict=True)
