from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from ternmq_pipeline.jobs.cluster_report.files import arrow_schema, write_tables, write_text
from ternmq_pipeline.jobs.cluster_report.report_tables import TABLES, HourRow, TopicRow
from tests.support.reports import MADE_AT_MS, empty_report, some_report, topic_row

pq: Any = pytest.importorskip("pyarrow.parquet")


def test_every_table_becomes_a_file_with_its_rows(tmp_path: Path) -> None:
    written = write_tables(some_report(topics=[topic_row(bytes=None)]), tmp_path / "new" / "folder")
    assert {path.stem for path in written} == set(TABLES)
    (row,) = pq.read_table(tmp_path / "new" / "folder" / "topics.parquet").to_pylist()
    assert row["topic"] == "orders"
    assert row["bytes"] is None
    assert row["reported_at"] == datetime.fromtimestamp(MADE_AT_MS / 1000, UTC)
    assert row["last_stored_at"] == datetime.fromtimestamp((MADE_AT_MS - 50) / 1000, UTC)


def test_table_without_rows_has_the_same_schema(tmp_path: Path) -> None:
    write_tables(some_report(), tmp_path)
    schemas = {name: pq.read_schema(tmp_path / f"{name}.parquet") for name in TABLES}
    write_tables(empty_report(), tmp_path)
    for name, schema in schemas.items():
        assert pq.read_schema(tmp_path / f"{name}.parquet").equals(schema)
        assert not pq.read_table(tmp_path / f"{name}.parquet").num_rows


def test_schema_follows_from_the_class_of_the_rows() -> None:
    told = cast("Any", arrow_schema(HourRow))
    assert [(field.name, str(field.type), field.nullable) for field in told] == [
        ("reported_at", "timestamp[ms, tz=UTC]", False),
        ("topic", "string", False),
        ("hour_at", "timestamp[ms, tz=UTC]", False),
        ("messages", "int64", False),
    ]
    assert cast("Any", arrow_schema(TopicRow)).field("bytes").nullable


def test_written_text_replaces_the_previous_one_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_text(path, "one")
    write_text(path, "two é")
    assert path.read_text(encoding="utf-8") == "two é"
    assert list(tmp_path.iterdir()) == [path]
