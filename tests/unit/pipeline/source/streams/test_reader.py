"""The face that Spark calls, without Spark's engine."""

import inspect
import json
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StringType, StructField, StructType

from ternmq_model.errors import UsageError
from ternmq_pipeline.options.source_options import read_options
from ternmq_pipeline.source.streams.checkpoint_offsets import NEW
from ternmq_pipeline.source.streams.micro_batch_stream import BatchLimit
from ternmq_pipeline.source.streams.reader import (
    RefusedStreamReader,
    TernmqStreamReader,
    batch_limit,
)

TOPIC = StructType([StructField("topic", StringType())])


def reader(options: dict[str, str] | None = None, schema: StructType = TOPIC) -> TernmqStreamReader:
    given = {"nameserver": "127.0.0.1:9", "subscribe": "TopicA"} | (options or {})
    return TernmqStreamReader(read_options(given, streaming=True), schema)


def test_construction_and_first_offset_open_no_connection() -> None:
    made = reader()
    assert made.initialOffset() == json.loads(json.dumps(made.initialOffset())) == NEW
    assert isinstance(made, SupportsTriggerAvailableNow)
    made.stop()


def test_refused_reader_fails_at_every_question_that_may_be_spark_s_first() -> None:
    refused: Any = RefusedStreamReader(UsageError("no such option"))
    assert issubclass(RefusedStreamReader, SupportsTriggerAvailableNow)
    assert len(inspect.signature(refused.latestOffset).parameters) > 0  # Spark hands limits then
    for ask in (
        refused.initialOffset,
        refused.getDefaultReadLimit,
        refused.prepareForTriggerAvailableNow,
        lambda: refused.latestOffset({}, ReadAllAvailable()),
        lambda: refused.partitions({}, {}),
    ):
        with pytest.raises(UsageError, match="no such option"):
            ask()


def test_missing_column_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="colour"):
        reader(schema=StructType([StructField("colour", StringType())]))


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "7", "minOffsetsPerTrigger": "3"}, ReadMaxRows(7)),
        ({"maxBytesPerTrigger": "9000"}, ReadMaxBytes(9000)),
        ({"minOffsetsPerTrigger": "3"}, ReadMinRows(3)),
    ],
)
def test_default_read_limit_reflects_the_options(options: dict[str, str], limit: ReadLimit) -> None:
    assert reader(options).getDefaultReadLimit() == limit


@pytest.mark.parametrize(
    ("limit", "wanted"),
    [
        (ReadAllAvailable(), BatchLimit(all_available=True)),
        (ReadMaxRows(7), BatchLimit(offsets_max=7)),
        (ReadMaxBytes(9), BatchLimit(bytes_max=9)),
        (ReadMinRows(3), BatchLimit()),
        (ReadMaxFiles(3), BatchLimit()),
    ],
)
def test_read_limits_of_spark_are_converted(limit: ReadLimit, wanted: BatchLimit) -> None:
    assert batch_limit(limit) == wanted
