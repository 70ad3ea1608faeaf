"""Columns of both views and of queries, by Spark's short types. Pure."""

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ternmq_model.errors import UsageError
from ternmq_pipeline.options.source_options import ReadOptions, View
from ternmq_pipeline.strict_json import shown

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class Column(NamedTuple):
    """Column of a read."""

    name: str
    type_text: str
    """Type as in DDL and in `DataType.simpleString()`: `array<string>`."""


TERNMQ_COLUMNS: Final = (
    Column("topic", "string"),
    Column("brokerName", "string"),
    Column("queueId", "int"),
    Column("queueOffset", "bigint"),
    Column("msgId", "string"),
    Column("keys", "array<string>"),
    Column("tags", "string"),
    Column("body", "binary"),
    Column("properties", "map<string,string>"),
    Column("bornTimestamp", "timestamp"),
    Column("storeTimestamp", "timestamp"),
    Column("bornHost", "string"),
    Column("reconsumeTimes", "int"),
    Column("sysFlag", "int"),
)

KAFKA_COLUMNS: Final = (
    Column("key", "binary"),
    Column("value", "binary"),
    Column("topic", "string"),
    Column("partition", "int"),
    Column("offset", "bigint"),
    Column("timestamp", "timestamp"),
    Column("timestampType", "int"),
)
"""Columns of Spark's Kafka source."""

HEADERS: Final = Column("headers", "array<struct<key:string,value:binary>>")


def columns_of(view: View, *, include_headers: bool = False) -> tuple[Column, ...]:
    """Return the columns of a read without a schema from the user, in their order.

    Args:
        view: View of the read.
        include_headers: True = the Kafka view has the column `headers`.
    """
    if view is View.TERNMQ:
        return TERNMQ_COLUMNS
    return (*KAFKA_COLUMNS, HEADERS) if include_headers else KAFKA_COLUMNS


_MAY_BE_NULL: Final = {View.TERNMQ: {"tags"}, View.KAFKA: {"key", "headers"}}

NEVER_NULL: Final = {
    view: frozenset(column.name for column in columns_of(view)) - _MAY_BE_NULL[view]
    for view in View
}
"""Columns without nulls. Their fields may be non-nullable."""


def ddl_of(columns: Sequence[Column]) -> str:
    """Return columns as DDL, from which Spark reads a schema."""
    return ", ".join(f"`{column.name}` {column.type_text}" for column in columns)


def selected_columns(
    columns: Sequence[Column], required: Sequence[tuple[str, str]]
) -> tuple[Column, ...]:
    """Return the columns of the user's schema, in its order.

    Args:
        columns: Existing columns.
        required: Name and `simpleString()` of the type of each column of the schema.

    Raises:
        UsageError: A column does not exist, stands twice or has another type. The error names it.
    """
    there = {column.name: column for column in columns}
    found: list[Column] = []
    for name, type_text in required:
        column = there.get(name)
        if column is None:
            raise UsageError(_unknown(name, list(there)))
        if column in found:
            raise UsageError(f"schema: column {name!r} is there twice")
        if column.type_text != type_text:
            raise UsageError(
                f"schema: column {name!r} is of type {column.type_text}, not {shown(type_text)}: "
                "cast it after reading"
            )
        found.append(column)
    if not found:
        raise UsageError("schema: names no column")
    return tuple(found)


def available_columns(options: ReadOptions) -> tuple[Column, ...]:
    """Return all columns of a read with these options, in their order."""
    return columns_of(options.view, include_headers=options.include_headers)


def required_columns(options: ReadOptions, schema: "StructType") -> tuple[str, ...]:
    """Return the names of the columns of the user's schema, in its order.

    Raises:
        UsageError: A column does not exist, has another type, or may be null and is declared
            non-nullable. The error names it.
    """
    required = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    found = selected_columns(available_columns(options), required)
    for field in schema.fields:
        if not field.nullable and field.name not in NEVER_NULL[options.view]:
            raise UsageError(f"schema: column {field.name!r} may be null: it must be nullable")
    return tuple(column.name for column in found)


def _unknown(name: str, names: Sequence[str]) -> str:
    lower = {other.lower(): other for other in names}
    nearest = difflib.get_close_matches(name.lower()[:100], lower, n=1)
    hint = f"did you mean {lower[nearest[0]]!r}?" if nearest else f"there are {', '.join(names)}"
    return f"schema: there is no column {shown(name)!r}; {hint}"
