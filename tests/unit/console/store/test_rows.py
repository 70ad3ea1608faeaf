import json
from pathlib import Path

import numpy as np
import pytest

from ternmq_console.store.rows import (
    INDEX_HEADING,
    RECORD_HEADING,
    UNIT_HEADING,
    Row,
    entry_rows,
    json_line,
    record_row,
    text_line,
    unit_rows,
)
from ternmq_model.offsets import QueueOffset
from ternmq_store.disk.mapped_file_queue import FoundFile
from ternmq_store.index.index_format import ENTRY
from ternmq_store.inspection.index_inspection import FoundEntries
from ternmq_store.inspection.log_inspection import FoundRecord, find_log_files, walk_log
from ternmq_store.inspection.queue_inspection import QueueFiles
from ternmq_store.queues.unit_files import FileUnits
from ternmq_store.queues.units import UNIT
from ternmq_testing.memory.memory_files import MemoryFileSystem
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, append, open_store, settle


def row_of(properties: dict[str, str]) -> Row:
    """Return the row of the second message of a queue."""
    files = MemoryFileSystem()
    store = open_store(files)
    append(store, batch_of(record("A", 3, b"one"), record("A", 3, b"other", properties)))
    settle(store)
    store.close()
    pieces = walk_log(files, find_log_files(files, ROOT))
    _, second = (record_row(piece) for piece in pieces if isinstance(piece, FoundRecord))
    return second


def test_record_row_has_everything_but_the_body() -> None:
    row = row_of({"TAGS": "t", "KEYS": "k l"})
    assert (row["kind"], row["file"], row["topic"]) == ("record", f"{0:020d}", "A")
    assert (row["queueId"], row["queueOffset"], row["bodyLength"]) == (3, 1, 5)
    assert row["bodyCrc"] == row["bodyCrcOfStored"]
    assert row["properties"] == {"KEYS": "k l", "TAGS": "t"}
    assert "other" not in json_line(row)


def test_record_line_ends_with_tag_and_keys_and_moves_no_cursor() -> None:
    line = text_line(row_of({"TAGS": "t\x1b[2J", "KEYS": "k l"}))
    assert line.endswith(r"  t\x1b[2J k l")
    assert line.index(" A ") == RECORD_HEADING.index("topic") - 1


UNITS = np.array([(0, 100, 7), (0, 0, 0), (100, 200, -8)], dtype=UNIT)


@pytest.mark.parametrize(("without", "places"), [((), [5, 7]), ((2,), [5])])
def test_unit_rows_are_those_of_written_units(without: tuple[int, ...], places: list[int]) -> None:
    queue = QueueFiles("A", 1, Path("/q"), ())
    found = FileUnits(FoundFile(0, Path("/q/0"), 60), QueueOffset(5), UNITS)
    rows = list(unit_rows(queue, found, without=without))
    assert [row["queueOffset"] for row in rows] == places
    assert rows[-1] == {
        "kind": "unit",
        "topic": "A",
        "queueId": 1,
        "queueOffset": places[-1],
        "physicalOffset": 0 if without else 100,
        "size": 100 if without else 200,
        "tagsCode": 7 if without else -8,
    }
    assert text_line(rows[0]).split() == ["A", "1", "5", "0", "100", "7"]
    assert len(text_line(rows[0])) == len(UNIT_HEADING)


def test_entry_rows_count_from_the_first_entry_of_a_file() -> None:
    entries = np.array([(12, 500, 3, 0), (23, 900, 4, 1)], dtype=ENTRY)
    rows = list(entry_rows(Path("/index/20260101000000000"), 10, FoundEntries(8, entries)))
    assert [(row["entry"], row["keyHash"], row["slot"]) for row in rows] == [(8, 12, 2), (9, 23, 3)]
    assert json.loads(json_line(rows[1])) == rows[1]
    assert text_line(rows[1]).split() == ["20260101000000000", "9", "23", "900", "4", "1", "3"]
    assert len(text_line(rows[1])) == len(INDEX_HEADING)
