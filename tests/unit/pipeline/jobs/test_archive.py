import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ternmq.spark
from ternmq_model.errors import TransportError, UsageError
from ternmq_pipeline.jobs.archive import archive, archived_files
from ternmq_pipeline.source.streams.metrics import StreamListener

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


WITHOUT_EXTRA = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "pyarrow", "pandas", "matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from ternmq.spark import archived_files
print(*(file.path for file in archived_files(sys.argv[1])))
"""


def test_files_of_an_archive_are_listed_without_the_extra(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    told = {"path": "file:///x/topic=T/0", "size": 1, "action": "add"}
    (log / "0").write_text("v1\n" + json.dumps(told))
    command = [sys.executable, "-c", WITHOUT_EXTRA, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("file:///x/topic=T/0\n", "")


def test_listener_is_found_where_users_look() -> None:
    assert ternmq.spark.StreamListener is StreamListener
    with pytest.raises(AttributeError, match="no_such"):
        ternmq.spark.no_such  # noqa: B018
