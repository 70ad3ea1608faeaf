"""Reads through Spark in tests: short to write, and to compare."""

from collections.abc import Sequence

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession


def read_with(spark: SparkSession, /, schema: str | None = None, **options: str) -> DataFrame:
    """Return a frame with these options and no others."""
    reader = spark.read.format("ternmq").options(**options)
    return (reader.schema(schema) if schema else reader).load()


def bodies(rows: Sequence[Row]) -> list[bytes]:
    """Return the bodies of rows, sorted."""
    return sorted(bytes(row["body"]) for row in rows)


def refusal_of(spark: SparkSession, /, schema: str | None = None, **options: str) -> str:
    """Return the text of the error with which a read is refused, at the latest when it is run."""
    with pytest.raises(PySparkException) as caught:
        read_with(spark, schema, **options).collect()
    return str(caught.value)
