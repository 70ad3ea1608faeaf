import json

import pytest

from ternmq_model.errors import JobFailed
from ternmq_pipeline.jobs.folders.file_sink_log import (
    CommittedFile,
    files_of,
    last_batch,
    log_files,
)


def test_log_is_read_from_its_last_compact_file_on() -> None:
    names = ["0", "1", "9.compact", "8", "9", "10", "19.compact", "20", "21", ".20.crc", "x"]
    assert log_files(names) == ["19.compact", "20", "21"]
    assert log_files(["2", "0", "10", "1"]) == ["0", "1", "2", "10"]
    assert log_files([]) == []


def test_last_batch_is_the_highest_number() -> None:
    assert last_batch(["0", "9.compact", "10", ".11.crc"]) == 10
    assert last_batch(["_x"]) == -1


def line(path: str, size: int = 7, action: str = "add") -> str:
    return json.dumps({"path": path, "size": size, "action": action})


def test_log_file_lists_its_additions() -> None:
    text = "\n".join(
        ["v1", line("file:///a/topic=T/date=2026-01-02/x"), line("y", action="delete")]
    )
    (file,) = files_of(text, name="0")
    assert (file.bytes, file.partition("topic"), file.partition("date")) == (7, "T", "2026-01-02")
    assert file.partition("hour") is None


def test_names_of_topics_are_read_back_from_paths() -> None:
    file = CommittedFile("file:///a/topic=%2525RETRY%2525g/date=2026-01-02/x", 1)
    assert file.partition("topic") == "%RETRY%g"


@pytest.mark.parametrize("text", ["", "v2\n", "v1\n{", "v1\n[]", 'v1\n{"action": "add"}'])
def test_malformed_file_log_is_refused_by_name(text: str) -> None:
    with pytest.raises(JobFailed, match="folder/7"):
        files_of(text, name="folder/7")
