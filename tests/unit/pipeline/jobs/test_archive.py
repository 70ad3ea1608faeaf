import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ternmq.spark
from ternmq_model.errors import TransportError, UsageError
from ternmq_pipeline.jobs.archive import BATCH_ROWS, archive, archived_files, piece_rows
from ternmq_pipeline.planning.offset_ranges import PARTITIONS_MAX
from ternmq_pipeline.source.streams.stream_listener import StreamListener

NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("topics", "options", "named"),
    [
        ([], {}, "names or a pattern"),
        (["a"], {"pattern": "b"}, "names or a pattern"),
        (["a"], {"start": "soon"}, "start='soon'"),
        (["a"], {"batch_rows": 0}, "batch_rows=0"),
        (["a"], {"file_bytes": 0}, "file_bytes=0: must be 1 to 1099511627776"),
        (["a"], {"file_bytes": (1 << 40) + 1}, "file_bytes=1099511627777"),
        (["a b"], {}, "topic 'a b'"),
    ],
)
def test_illegal_options_are_refused_before_any_request(
    tmp_path: Path, topics: list[str], options: dict[str, Any], named: str
) -> None:
    with pytest.raises(UsageError, match=named):
        archive(topics, tmp_path / "lake", nameserver=NOBODY, **options)
    assert not list(tmp_path.iterdir())


def test_silent_cluster_is_reported_before_spark_starts(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match=NOBODY):
        archive(["a"], tmp_path / "lake", nameserver=NOBODY, retry_timeout_s=1)


@pytest.mark.parametrize(
    ("file_bytes", "message_bytes", "batch_rows", "rows"),
    [
        (128 << 20, 0, BATCH_ROWS, 50_000),
        (128 << 20, 300, BATCH_ROWS, 50_000),
        (16 << 20, 20_000, BATCH_ROWS, 419),
        (16 << 20, 16 << 20, 1, 1),
        (1, 20_000, BATCH_ROWS, 209),
    ],
)
def test_task_reads_half_a_file_of_large_messages(
    file_bytes: int, message_bytes: int, batch_rows: int, rows: int
) -> None:
    assert piece_rows(file_bytes, message_bytes, batch_rows) == rows


@pytest.mark.parametrize("batch_rows", [1, BATCH_ROWS, 99_999_999, 10**11])
def test_batch_of_the_largest_messages_has_no_more_tasks_than_may_be(batch_rows: int) -> None:
    queues = 1000
    pieces = -(-batch_rows // piece_rows(1, 4 << 20, batch_rows)) + queues
    assert pieces <= PARTITIONS_MAX


def test_archive_consists_of_the_files_its_log_names(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no archive"):
        archived_files(tmp_path)
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    for batch in range(2):
        told = {"path": f"file:///x/topic=T/{batch}", "size": batch, "action": "add"}
        (log / str(batch)).write_text("v1\n" + json.dumps(told))
    (tmp_path / "left-over.parquet").touch()
    assert [file.path for file in archived_files(tmp_path)] == [
        "file:///x/topic=T/0",
        "file:///x/topic=T/1",
    ]


WITHOUT_EXTRA = """
import sys
sys.modules.update(dict.fromkeys(("pyspark", "pyarrow", "pandas", "matplotlib", "jinja2")))
"""
LISTING = """
from ternmq.spark import archived_files
print(*(file.path for file in archived_files(sys.argv[1])))
"""
LISTENING = """
import ternmq.spark
from ternmq.spark import *
print(archive.__name__, "StreamListener" in dir(ternmq.spark))
try:
    from ternmq.spark import StreamListener
except ImportError as error:
    print(type(error).__name__, error)
"""
OFFERING = """
import pydoc
import sys
import ternmq.spark
print("pyspark" in sys.modules, {"StreamListener", "StreamReport"} <= set(dir(ternmq.spark)))
from ternmq.spark import *
text = pydoc.plain(pydoc.render_doc(ternmq.spark))
print(StreamListener.__name__, "class StreamListener(" in text, "class StreamReport(" in text)
"""


def printed(program: str, *words: object) -> list[str]:
    command = [sys.executable, "-c", program, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_files_of_an_archive_are_listed_without_the_extra(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    told = {"path": "file:///x/topic=T/0", "size": 1, "action": "add"}
    (log / "0").write_text("v1\n" + json.dumps(told))
    assert printed(WITHOUT_EXTRA + LISTING, tmp_path) == ["file:///x/topic=T/0"]


def test_listener_without_the_extra_is_an_import_error_that_says_how_to_get_it() -> None:
    names, told = printed(WITHOUT_EXTRA + LISTENING)
    assert names == "archive False"
    assert told.startswith("MissingPackage ternmq.spark.StreamListener needs pyspark: pip install")


def test_listener_is_offered_with_the_extra_and_imported_when_asked_for() -> None:
    assert printed(OFFERING) == ["False True", "StreamListener True True"]


def test_listener_is_found_where_users_look() -> None:
    assert ternmq.spark.StreamListener is StreamListener
    with pytest.raises(AttributeError, match="no_such"):
        ternmq.spark.no_such  # noqa: B018
