"""Tables of a report as Parquet files. The classes of their rows decide the schemas."""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, cast, get_args, get_type_hints

from ternmq_pipeline.jobs.cluster_report.report_tables import TABLES, ClusterReport, Row, rows_of

if TYPE_CHECKING:
    import pyarrow as pa

_TIME: Final = "_at_ms"


def arrow_schema(row: type[Row]) -> "pa.Schema":
    """Return the schema of a table: the fields of its rows, and the time of the report."""
    import pyarrow as pa

    kinds: Mapping[Any, Any] = {
        str: pa.string(),
        int: pa.int64(),
        float: pa.float64(),
        bool: pa.bool_(),
    }
    hints = get_type_hints(row)
    time: Any = pa.timestamp("ms", "UTC")
    found: list[Any] = [pa.field("reported_at", time, nullable=False)]
    for field in fields(row):
        hint = hints[field.name]
        nullable = isinstance(hint, UnionType)
        kind = get_args(hint)[0] if nullable else hint
        if field.name.endswith(_TIME):
            name, arrow = field.name.removesuffix("_ms"), time
        else:
            name, arrow = field.name, kinds[kind]
        found.append(pa.field(name, arrow, nullable=nullable))
    return pa.schema(found)


def arrow_table(report: ClusterReport, table: str) -> "pa.Table":
    """Return a table of the report."""
    import pyarrow as pa

    schema = arrow_schema(TABLES[table])
    rows = rows_of(report, table)
    columns: list[list[Any]] = [[report.made_at_ms] * len(rows)]
    columns += [[getattr(row, field.name) for row in rows] for field in fields(TABLES[table])]
    types: list[Any] = cast("Any", schema).types
    arrays: list[Any] = [
        pa.array(column, type=kind) for column, kind in zip(columns, types, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def write_tables(report: ClusterReport, folder: Path) -> list[Path]:
    """Write each table to `folder/TABLE.parquet` and return the files. Old files are replaced."""
    import pyarrow.parquet as pq

    write: Any = cast("Any", pq).write_table
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name in TABLES:
        path = folder / f"{name}.parquet"
        with _replaced(path) as beside:
            write(arrow_table(report, name), beside)
        written.append(path)
    return written


def write_text(path: Path, text: str) -> None:
    """Replace a text file atomically: readers get the old text or the new one."""
    with _replaced(path) as beside:
        beside.write_text(text, encoding="utf-8")


@contextmanager
def _replaced(path: Path) -> Generator[Path]:
    """Yield a temporary file that replaces `path` after a block without an error."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield beside
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
