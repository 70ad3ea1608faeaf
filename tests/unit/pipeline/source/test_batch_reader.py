"""Which reader a batch gets, and what it takes over from the query."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import EqualTo, Filter, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ternmq_model.errors import UsageError
from ternmq_pipeline.options.source_options import read_options
from ternmq_pipeline.source.batch_reader import (
    PUSHDOWN_WORKER,
    BatchReader,
    PushdownBatchReader,
    batch_reader,
)
from ternmq_pipeline.source.offline.reader import OfflineReader, PushdownOfflineReader

SCHEMA = StructType([StructField("topic", StringType()), StructField("queueOffset", LongType())])
BROKERS = {"subscribe": "T"}
STORE = {"store": "/no/such/store"}
OF_TOPIC: Filter = EqualTo(("topic",), "T")
OF_TAGS: Filter = EqualTo(("tags",), "a")


@pytest.mark.parametrize(
    ("source", "plain", "pushing"),
    [
        (BROKERS, BatchReader, PushdownBatchReader),
        (STORE, OfflineReader, PushdownOfflineReader),
    ],
)
def test_conditions_are_pushed_when_option_or_spark_setting_says_so(
    monkeypatch: pytest.MonkeyPatch, source: dict[str, str], plain: type, pushing: type
) -> None:
    def chosen(**more: str) -> type:
        return type(batch_reader(read_options(source | more), SCHEMA))

    assert chosen() is chosen(pushdown="false") is chosen(pushdown="auto") is plain
    assert chosen(pushdown="true") is pushing
    # So a process looks in which Spark plans while its setting is on.
    monkeypatch.setitem(sys.modules, PUSHDOWN_WORKER, ModuleType(PUSHDOWN_WORKER))
    assert chosen(pushdown="auto") is pushing
    assert chosen(pushdown="false") is plain


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (BROKERS, [OF_TAGS]),
        (STORE, [OF_TAGS]),
        (STORE | {"raw": "true"}, [OF_TOPIC, OF_TAGS]),
    ],
)
def test_spark_tests_conditions_a_read_does_not_apply_exactly(
    options: dict[str, str], left: list[Filter]
) -> None:
    reader = batch_reader(read_options(options | {"pushdown": "true"}), SCHEMA)
    assert list(reader.pushFilters([OF_TOPIC, OF_TAGS])) == left


@pytest.mark.parametrize("source", [BROKERS, STORE])
def test_empty_partition_made_by_spark_has_no_rows(source: dict[str, str]) -> None:
    reader: Any = batch_reader(read_options(source), SCHEMA)
    assert list(reader.read(InputPartition(None))) == []


def test_directory_without_a_store_is_refused_by_name(tmp_path: Path) -> None:
    folder = str(tmp_path / "nothing")
    reader = batch_reader(read_options({"store": folder}), SCHEMA)
    with pytest.raises(UsageError, match=f"store: '{folder}' cannot be read as a store: "):
        reader.partitions()
