"""Options of tables, as Spark hands them to CREATE TABLE and as the columns keep them."""

import copy
from collections.abc import Mapping

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from ternmq_model.errors import ConfigError, UsageError
from ternmq_pipeline.source.schema import KAFKA_COLUMNS, TERNMQ_COLUMNS
from ternmq_pipeline.source.sql_tables import (
    created_table,
    reading_options,
    table_schema,
    writing_options,
)

READ = {"nameserver": "a:1", "subscribe": "flights"}
PLAIN = StructType().add("body", "binary")


def at_create(**options: str) -> dict[str, str]:
    """Return what Spark 4.3 hands over at CREATE TABLE."""
    prefixed = {f"option.{name}": text for name, text in options.items()}
    return options | prefixed | {"provider": "ternmq", "owner": "root", "comment": "c", "a": "b"}


def fields(schema: StructType) -> list[tuple[str, str]]:
    """Return names and types."""
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


def kept(schema: StructType) -> StructType:
    """Return columns as Spark hands them back, which it keeps as JSON."""
    return StructType.fromJson(copy.deepcopy(schema.jsonValue()))


def test_options_of_a_table_are_told_from_what_spark_adds() -> None:
    assert created_table(at_create(**READ)) == READ
    assert created_table(at_create()) == {}
    assert created_table(READ) is None
    assert created_table(READ | {"provider": "a"}) is None
    with pytest.raises(ConfigError, match=r"location='file:/x': .* leave LOCATION out"):
        created_table(at_create(**READ) | {"location": "file:/x", "path": "file:/x"})


@pytest.mark.parametrize(
    ("options", "columns"),
    [(READ, TERNMQ_COLUMNS), (READ | {"view": "kafka"}, KAFKA_COLUMNS)],
)
def test_table_that_is_read_has_the_columns_and_keeps_the_options(
    options: dict[str, str], columns: tuple[tuple[str, str], ...]
) -> None:
    schema = kept(table_schema(options))
    assert fields(schema) == list(columns)
    assert reading_options({}, schema) == options


def test_header_column_has_the_type_that_a_read_checks() -> None:
    schema = table_schema(READ | {"view": "kafka", "includeheaders": "true"})
    assert fields(schema)[-1] == ("headers", "array<struct<key:string,value:binary>>")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"topic": "a"}, r"topic='a': .* INSERT INTO t WITH \(nameserver '…', topic '…'\)"),
        (READ | {"topic": "a"}, "topic='a': a table with options is for reading"),
        ({"nameserver": "a:1"}, "one of the options subscribe, .* must be given"),
        ({"nameserver": "a:1", "subscripe": "x"}, "'subscripe': .* did you mean 'subscribe'"),
    ],
)
def test_impossible_table_is_refused_when_it_is_created(options: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        table_schema(options)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"View": "kafka"}, READ | {"view": "kafka", "startingtimestamp": "7"}),
        ({"nameserver": "b:2"}, READ | {"nameserver": "b:2", "startingtimestamp": "7"}),
        ({"assign": "{}"}, {"nameserver": "a:1", "assign": "{}", "startingtimestamp": "7"}),
        ({"store": "/x"}, {"nameserver": "a:1", "store": "/x", "startingtimestamp": "7"}),
        ({"startingOffsets": "earliest"}, READ | {"startingoffsets": "earliest"}),
    ],
)
def test_given_options_replace_those_of_the_table(
    given: Mapping[str, str], found: Mapping[str, str]
) -> None:
    schema = table_schema(READ | {"startingtimestamp": "7"})
    assert reading_options(given, schema) == found


def test_statement_without_options_is_refused_and_says_what_to_write() -> None:
    for options in ({}, {"checkpointLocation": "/x"}):
        with pytest.raises(UsageError, match=r"\.option\(.*FROM t WITH \(nameserver"):
            reading_options(options, PLAIN)
        with pytest.raises(UsageError, match=r"\.option\(.*INSERT INTO t WITH \(nameserver"):
            writing_options(options)
    assert writing_options({"Topic": "a", "queryName": "q"}) == {"topic": "a"}
