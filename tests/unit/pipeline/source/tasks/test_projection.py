from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ternmq_pipeline.options.source_options import View
from ternmq_pipeline.planning.partition_numbers import partition_number
from ternmq_pipeline.source.tasks.projection import BatchProjection, tuples_of

STORED = datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC)
BATCH = pa.RecordBatch.from_pydict(
    {
        "keys": pa.array([["a", "b"], []], pa.list_(pa.string())),
        "body": pa.array([b"x", b""], pa.binary()),
        "topic": pa.array(["T", "T"]),
        "queueId": pa.array([3, 3], pa.int32()),
        "brokerName": pa.array(["broker-a", "broker-a"]),
        "queueOffset": pa.array([7, 8], pa.int64()),
        "storeTimestamp": pa.array([STORED, STORED], pa.timestamp("us", "UTC")),
        "properties": pa.array([[("n", "1")], []], pa.map_(pa.string(), pa.string())),
    }
)
HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
KAFKA = (
    StructType()
    .add("key", BinaryType())
    .add("value", BinaryType())
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
    .add("timestampType", IntegerType())
    .add("headers", HEADERS)
)


def projection(schema: StructType, view: View = View.TERNMQ) -> BatchProjection:
    return BatchProjection(view, tuple(schema.fieldNames()), schema)


def of(batch: pa.RecordBatch, projection: BatchProjection) -> pa.RecordBatch:
    return projection.of(batch.select(list(projection.sources)))


def test_kafka_view_holds_the_same_data_under_kafkas_names() -> None:
    made = of(BATCH, projection(KAFKA, View.KAFKA))
    assert made.to_pylist()[0] == {
        "key": b"a b",
        "value": b"x",
        "topic": "T",
        "partition": partition_number("broker-a", 3),
        "offset": 7,
        "timestamp": STORED,
        "timestampType": 1,
        "headers": [{"key": "n", "value": b"1"}],
    }
    assert made.to_pylist()[1]["key"] is None
    assert made.to_pylist()[1]["headers"] is None


def test_slice_of_a_batch_has_its_own_headers() -> None:
    made = of(BATCH.slice(1), projection(KAFKA, View.KAFKA))
    assert made.column("headers").to_pylist() == [None]
    joined = pa.Table.from_batches([BATCH, BATCH]).combine_chunks().to_batches()[0]
    made = of(joined.slice(2, 1), projection(KAFKA, View.KAFKA))
    assert made.column("headers").to_pylist() == [[{"key": "n", "value": b"1"}]]


@pytest.mark.parametrize(
    ("names", "sources"),
    [
        (["value"], ("body",)),
        (["offset", "key"], ("queueOffset", "keys")),
        (["partition"], ("queueId", "brokerName")),
        (["timestampType"], ("queueOffset",)),
    ],
)
def test_requested_columns_read_only_their_sources(
    names: list[str], sources: tuple[str, ...]
) -> None:
    asked = projection(StructType([KAFKA[name] for name in names]), View.KAFKA)
    assert asked.sources == sources
    assert of(BATCH, asked).schema.names == names
    assert of(BATCH, asked).num_rows == 2


def test_matching_batch_is_passed_on_as_it_is() -> None:
    schema = StructType().add("queueOffset", LongType()).add("body", BinaryType())
    batch = BATCH.select(["queueOffset", "body"])
    assert projection(schema).of(batch) is batch


def test_columns_that_cannot_be_null_get_a_type_saying_so() -> None:
    schema = StructType(
        [
            StructField("queueId", IntegerType(), nullable=False),
            StructField("keys", ArrayType(StringType(), containsNull=False)),
            StructField("properties", MapType(StringType(), StringType(), False)),
        ]
    )
    made = of(BATCH, projection(schema))
    assert made.schema.equals(projection(schema).arrow_schema)
    assert made.to_pylist()[0] == {"queueId": 3, "keys": ["a", "b"], "properties": [("n", "1")]}


def test_rows_become_tuples_with_maps_as_dicts() -> None:
    rows: list[tuple[Any, ...]] = list(tuples_of(iter([BATCH.select(["topic", "properties"])])))
    assert rows == [("T", {"n": "1"}), ("T", {})]
