"""Options of tables, as Spark hands them to CREATE TABLE and as the columns keep them."""

import copy
from collections.abc import Mapping

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from ternmq_model.errors import ConfigError, UsageError
from ternmq_pipeline.schema import KAFKA_COLUMNS, TERNMQ_COLUMNS
from ternmq_pipeline.sink.columns import lay_out
from ternmq_pipeline.source.tables import (
    OPTIONS,
    created_table,
    reading_options,
    table_schema,
    writing_options,
)

READ = {"nameserver": "a:1", "subscribe": "flights"}
WRITTEN = {"nameserver": "a:1", "topic": "flights"}
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


def test_table_that_is_inserted_into_has_the_columns_of_the_sink() -> None:
    schema = kept(table_schema(WRITTEN))
    lay_out(fields(schema), topic="flights")
    assert [name for name, _ in fields(schema)] == [
        *("body", "tags", "keys", "properties", "shardingKey", "delay")
    ]
    assert writing_options({}, schema) == WRITTEN
    assert writing_options({"SendTimeout": "5s", "queryName": "q"}, schema) == WRITTEN | {
        "sendtimeout": "5s"
    }


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (READ | WRITTEN, "options topic and subscribe: .* create one for each"),
        ({"nameserver": "a:1"}, "needs one of the options subscribe, .* or topic"),
        (READ | {"foo": "x"}, "option 'foo'"),
        (WRITTEN | {"foo": "x"}, "option 'foo'"),
    ],
)
def test_impossible_table_is_refused_when_it_is_created(options: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        table_schema(options)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"startingTimestamp": "7"}, READ | {"startingtimestamp": "7"}),
        ({"nameserver": "b:2"}, READ | {"nameserver": "b:2"}),
        ({"assign": "{}"}, {"assign": "{}"}),
        ({"store": "/x"}, {"store": "/x"}),
    ],
)
def test_given_options_precede_those_of_the_table(
    given: Mapping[str, str], found: Mapping[str, str]
) -> None:
    assert reading_options(given, table_schema(READ)) == found


def test_statement_without_options_is_refused_and_says_what_to_write() -> None:
    for options in ({}, {"checkpointLocation": "/x"}):
        with pytest.raises(UsageError, match=r"FROM t WITH \(nameserver"):
            reading_options(options, PLAIN)
        with pytest.raises(UsageError, match=r"INSERT INTO t WITH \(nameserver"):
            writing_options(options, PLAIN)


def test_rows_of_a_table_that_is_read_do_not_bring_its_options_to_a_write() -> None:
    schema = table_schema(READ)
    assert OPTIONS in schema.fields[0].metadata
    assert writing_options({"topic": "other"}, schema) == {"topic": "other"}
    with pytest.raises(UsageError, match="rows are of a table that is read"):
        writing_options({}, schema)
