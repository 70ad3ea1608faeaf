"""The columns that a query asks for, out of Spark's schema. Pure."""

from typing import TYPE_CHECKING, Final

from ternmq_model.errors import UsageError
from ternmq_pipeline.options.source_options import ReadOptions, View
from ternmq_pipeline.source.schema import Column, columns_of, narrowed

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_MAY_BE_NULL: Final = {View.TERNMQ: {"tags"}, View.KAFKA: {"key", "headers"}}

NEVER_NULL: Final = {
    view: frozenset(column.name for column in columns_of(view)) - _MAY_BE_NULL[view]
    for view in View
}
"""Columns in which each row has something; Spark may be told so."""


def columns_offered(options: ReadOptions) -> tuple[Column, ...]:
    """Return every column that a read with these options can have, in their order."""
    return columns_of(options.view, include_headers=options.include_headers)


def columns_asked(options: ReadOptions, schema: "StructType") -> tuple[str, ...]:
    """Return the names of the columns that the user's schema asks for, in its order.

    Raises:
        UsageError: A column does not exist, is of another type, or may have nulls and is said to
            have none. It is named.
    """
    asked = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    found = narrowed(columns_offered(options), asked)
    for field in schema.fields:
        if not field.nullable and field.name not in NEVER_NULL[options.view]:
            raise UsageError(f"schema: column {field.name!r} may be null: it must be nullable")
    return tuple(column.name for column in found)
