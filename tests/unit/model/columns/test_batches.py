"""Records as batches: their schema, their limits and what is refused."""

import zlib
from collections.abc import Sequence

import numpy as np
import pytest

from ternmq_model.arrays import Ints
from ternmq_model.errors import CorruptBody, CorruptRecord, UsageError
from ternmq_model.stored_message import decode_single
from tests.support.records import record
from tests.support.rows import row_of

pytest.importorskip("pyarrow")

import pyarrow as pa

from ternmq_model.columns.batches import BATCH_BYTES_MAX, arrow_schema, build_rows
from ternmq_model.columns.column_names import COLUMNS
from ternmq_model.columns.record_validation import ExpectedRecords

BOMB = record(body=zlib.compress(bytes(4 << 20)), sys_flag=1)
BROKEN = record(body=b"no zlib", sys_flag=1)


def laid_out(*records: bytes) -> tuple[bytes, Ints, Ints]:
    """Return records back to back, and where they are."""
    sizes = np.array([len(each) for each in records], dtype=np.int64)
    return b"".join(records), np.cumsum(sizes) - sizes, sizes


def build_batch(
    view: bytes, starts: Ints, sizes: Ints, *, columns: Sequence[str] = COLUMNS
) -> pa.RecordBatch:
    """Return records as one batch, however long their bodies become; raise the first damage."""
    built = build_rows(view, starts, sizes, broker_name="a", columns=columns, bytes_max=1 << 62)
    for _, error in built.damaged:
        raise error
    return built.batch


def test_schema_equals_the_one_spark_asks_for() -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        DataType,
        IntegerType,
        LongType,
        MapType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    kinds: dict[str, DataType] = {
        "queueId": IntegerType(),
        "queueOffset": LongType(),
        "keys": ArrayType(StringType()),
        "body": BinaryType(),
        "properties": MapType(StringType(), StringType()),
        "bornTimestamp": TimestampType(),
        "storeTimestamp": TimestampType(),
        "reconsumeTimes": IntegerType(),
        "sysFlag": IntegerType(),
    }
    asked = StructType([StructField(name, kinds.get(name, StringType())) for name in COLUMNS])
    assert to_arrow_schema(asked, timezone="UTC").equals(arrow_schema(), check_metadata=True)


def test_columns_come_in_the_order_they_are_named() -> None:
    view, starts, sizes = laid_out(record())
    batch = build_batch(view, starts, sizes, columns=["tags", "queueId"])
    assert batch.to_pylist() == [{"tags": None, "queueId": 0}]
    assert batch.schema.names == ["tags", "queueId"]
    with pytest.raises(UsageError, match="nobody"):
        build_batch(view, starts, sizes, columns=["nobody"])


def test_empty_input_is_a_batch_without_rows() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    batch = build_batch(b"", nothing, nothing)
    assert (batch.num_rows, batch.schema) == (0, arrow_schema())


def test_batch_ends_before_its_unpacked_bodies_become_too_much() -> None:
    records = [record(body=b"small"), *[BOMB] * 5, record(body=b"last")]
    view, starts, sizes = laid_out(*records)
    batches: list[pa.RecordBatch] = []
    done = 0
    while done < len(records):
        built = build_rows(view, starts[done:], sizes[done:], broker_name="a")
        batches.append(built.batch)
        done += built.inspected
    assert [batch.num_rows for batch in batches] == [2, 1, 1, 1, 2]
    assert max(batch.nbytes for batch in batches) <= BATCH_BYTES_MAX
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert rows == [row_of(decode_single(each, "a")) for each in records]
    assert build_batch(view, starts, sizes).num_rows == len(records)


def test_broken_packed_body_damages_only_its_row() -> None:
    view, starts, sizes = laid_out(record(body=b"1"), BROKEN, record(body=b"3"))
    built = build_rows(view, starts, sizes, broker_name="a", columns=["body"])
    assert built.batch.to_pylist() == [{"body": b"1"}, {"body": b"3"}]
    ((row, error),) = built.damaged
    assert (row, type(error), built.rows.tolist()) == (1, CorruptBody, [0, 2])
    with pytest.raises(CorruptBody, match="zlib"):
        build_batch(view, starts, sizes)
    assert build_batch(view, starts, sizes, columns=["tags"]).num_rows == 3


def test_record_at_another_place_than_it_claims_is_damaged() -> None:
    view, starts, sizes = laid_out(record(), record())
    built = build_rows(view, starts, sizes, broker_name="a", expected=ExpectedRecords(starts))
    ((row, error),) = built.damaged
    assert (row, error.offset) == (1, starts[1])
    assert built.rows.tolist() == [0]


def test_changed_body_is_damaged_whatever_columns_are_read() -> None:
    view, starts, sizes = laid_out(record(body=b"first"), record(body=b"second"))
    changed = view.replace(b"second", b"secood")
    for columns in (["body"], ["tags"]):
        with pytest.raises(CorruptRecord, match="checksum"):
            build_batch(changed, starts, sizes, columns=columns)
