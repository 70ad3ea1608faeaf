import json
from pathlib import Path
from typing import Any

import pytest

from ternmq_model.errors import TransportError, UsageError
from ternmq_pipeline.jobs.archive import archive, archived_files

NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("topics", "options", "named"),
    [
        ([], {}, "names, or a pattern"),
        (["a"], {"pattern": "b"}, "names, or a pattern"),
        (["a"], {"start": "soon"}, "start='soon'"),
        (["a"], {"batch_rows": 0}, "batch_rows=0"),
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
        archive(["a"], tmp_path / "lake", nameserver=NOBODY)


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
