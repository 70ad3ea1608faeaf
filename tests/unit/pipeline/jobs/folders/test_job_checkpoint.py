from pathlib import Path

import pytest

from ternmq_model.errors import JobFailed, UsageError
from ternmq_pipeline.jobs.folders.hadoop_folder import HadoopFolder
from ternmq_pipeline.jobs.folders.job_checkpoint import claim, committed_offsets, exclusive_run


class LocalFolder(HadoopFolder):
    """A folder of this machine, without Spark."""

    def __init__(self, path: Path) -> None:
        self._local = path
        self.location = str(path)

    def on_disk(self) -> Path | None:
        return self._local

    def names(self, folder: str = "") -> list[str]:
        path = self._local / folder
        return sorted(each.name for each in path.iterdir()) if path.is_dir() else []

    def read(self, name: str) -> str:
        return (self._local / name).read_text()

    def write(self, name: str, text: str) -> None:
        self._local.mkdir(exist_ok=True)
        (self._local / name).write_text(text)


@pytest.fixture
def checkpoint(tmp_path: Path) -> LocalFolder:
    return LocalFolder(tmp_path / "checkpoint")


JOB: dict[str, object] = {"job": "archive", "topics": ["a", "b"], "folder": "/lake"}


def write(folder: LocalFolder, name: str, text: str = "") -> None:
    path = Path(folder.location, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_new_checkpoint_becomes_the_jobs_and_stays_so(checkpoint: LocalFolder) -> None:
    assert not claim(checkpoint, JOB)
    assert not claim(checkpoint, JOB)
    write(checkpoint, "commits/0")
    assert claim(checkpoint, dict(JOB))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"topics": ["a"]}, "topics a, b, this one has a:"),
        ({"folder": "/sea"}, "folder /lake"),
        ({"job": "replay"}, "job archive"),
        ({"where": "true"}, "where none, this one has true"),
    ],
)
def test_checkpoint_of_another_job_is_refused(
    checkpoint: LocalFolder, changes: dict[str, object], named: str
) -> None:
    claim(checkpoint, JOB)
    with pytest.raises(UsageError, match=named):
        claim(checkpoint, JOB | changes)


def test_folder_with_other_content_is_refused_and_not_touched(checkpoint: LocalFolder) -> None:
    write(checkpoint, "letter.txt")
    with pytest.raises(UsageError, match="something else"):
        claim(checkpoint, JOB)
    assert checkpoint.names() == ["letter.txt"]


def test_checkpoint_of_another_query_is_refused(checkpoint: LocalFolder) -> None:
    write(checkpoint, "metadata")
    with pytest.raises(UsageError, match="of another query"):
        claim(checkpoint, JOB)


@pytest.mark.parametrize("mark", ["{", "[]"])
def test_unreadable_mark_is_reported(checkpoint: LocalFolder, mark: str) -> None:
    write(checkpoint, "ternmq-job.json", mark)
    with pytest.raises(UsageError, match=r"ternmq-job\.json"):
        claim(checkpoint, JOB)


def test_offsets_of_the_last_commit_are_found(checkpoint: LocalFolder) -> None:
    assert committed_offsets(checkpoint) == ""
    for batch in ("0", "1", "2"):
        write(checkpoint, f"offsets/{batch}", f'v1\n{{}}\n{{"v":1,"t":{{"T":{{"a:0":{batch}}}}}}}')
    for batch in ("0", "1"):
        write(checkpoint, f"commits/{batch}")
    assert committed_offsets(checkpoint) == '{"v":1,"t":{"T":{"a:0":1}}}'
    write(checkpoint, "offsets/1", "v1")
    with pytest.raises(JobFailed, match="offsets/1"):
        committed_offsets(checkpoint)


def test_checkpoint_is_used_by_one_run_at_a_time(checkpoint: LocalFolder) -> None:
    claim(checkpoint, JOB)
    taken = pytest.raises(UsageError, match=f"{checkpoint}: another run")
    with exclusive_run(checkpoint), taken, exclusive_run(checkpoint):
        pass
    with exclusive_run(checkpoint):
        assert not claim(checkpoint, JOB)


def test_checkpoint_off_the_local_disk_is_not_locked(
    checkpoint: LocalFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "on_disk", lambda: None)
    with exclusive_run(checkpoint), exclusive_run(checkpoint):
        assert not checkpoint.names()
