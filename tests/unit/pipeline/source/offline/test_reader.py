"""Reading a real directory by the reader alone, without Spark."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ternmq_model.errors import MessageDamaged
from ternmq_pipeline.options.source_options import read_options
from ternmq_pipeline.source.batch_reader import batch_reader
from ternmq_store.disk.filesystem import RealFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import SMALL, HandClock, append, open_store, settle

SCHEMA = StructType([StructField("topic", StringType()), StructField("queueOffset", LongType())])
STORED_FROM_MS = 1_700_000_000_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a store with ten messages of topic A, one each second, then two of a system topic."""
    clock = HandClock(STORED_FROM_MS)
    config = replace(SMALL, record_checksum=True)
    store = open_store(RealFileSystem(), root=tmp_path, config=config, clock=clock)
    for number in range(10):
        tag = "even" if number % 2 == 0 else "odd"
        append(store, batch_of(record("A", 0, b"x" * 300, {"TAGS": tag, "KEYS": f"k{number}"})))
        settle(store)
        clock.now_ms += 1000
    append(store, batch_of(record("SCHEDULE_TOPIC_XXXX", 0), record("SCHEDULE_TOPIC_XXXX", 0)))
    settle(store)
    store.close()
    return tmp_path


def rows(
    root: Path, filters: Sequence[Filter] = (), **options: str
) -> tuple[list[tuple[str, int]], list[Filter]]:
    """Return topic and offset of what is read, and the conditions left to Spark."""
    told = {"store": str(root), "pushdown": "true", "arrow": "false"} | options
    reader: Any = batch_reader(read_options(told), SCHEMA)
    left = list(reader.pushFilters(list(filters)))
    return [row for part in reader.partitions() for row in reader.read(part)], left


def offsets(root: Path, filters: Sequence[Filter] = (), **options: str) -> list[int]:
    return [offset for topic, offset in rows(root, filters, **options)[0] if topic == "A"]


def test_offline_reader_gives_ordinary_topics_in_the_order_of_the_log(root: Path) -> None:
    assert rows(root) == ([("A", number) for number in range(10)], [])
    found, _ = rows(root, includeSystemTopics="true")
    assert found[10:] == [("SCHEDULE_TOPIC_XXXX", 0), ("SCHEDULE_TOPIC_XXXX", 1)]


def test_offline_reader_gives_batches_where_arrow_is_wanted(root: Path) -> None:
    reader: Any = batch_reader(read_options({"store": str(root), "subscribe": "A"}), SCHEMA)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert [row for batch in batches for row in batch.column("queueOffset").to_pylist()] == [
        *range(10)
    ]


def test_offline_reader_applies_filters_times_and_pushed_conditions(root: Path) -> None:
    assert offsets(root, filter="odd") == [1, 3, 5, 7, 9]
    assert offsets(root, startingTimestamp=str(STORED_FROM_MS + 7000)) == [7, 8, 9]
    assert offsets(root, endingTimestamp=str(STORED_FROM_MS + 2000)) == [0, 1]
    assert offsets(root, [EqualTo(("tags",), "even")]) == [0, 2, 4, 6, 8]
    assert offsets(root, [GreaterThanOrEqual(("queueOffset",), 8)]) == [8, 9]


def test_offline_reader_gives_every_record_of_the_log_where_raw_is_wanted(root: Path) -> None:
    told: list[Filter] = [EqualTo(("topic",), "A")]
    found, left = rows(root, told, raw="true")
    assert len(found) == 12
    assert left == told


@pytest.mark.parametrize("raw", ["false", "true"])
def test_offline_reader_passes_damage_over_only_where_that_is_allowed(
    root: Path, raw: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = min((root / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    data[data.index(b"x" * 300) + 5] ^= 1
    log.write_bytes(data)
    with pytest.raises(MessageDamaged):
        rows(root, raw=raw)
    assert offsets(root, raw=raw, failOnDataLoss="false") == [*range(1, 10)]
    assert "damaged messages are skipped" in caplog.text
