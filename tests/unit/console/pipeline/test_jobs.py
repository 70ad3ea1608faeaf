import json
import re
from collections.abc import Callable
from typing import Any

import click
import pytest
from click.testing import CliRunner

from ternmq_console.main import ternmq
from ternmq_console.pipeline import jobs
from ternmq_console.pipeline.jobs import file_bytes, setting, show_progress, start
from ternmq_pipeline.jobs.archive import Archived
from ternmq_pipeline.jobs.driver.batch_progress import BatchProgress
from ternmq_pipeline.jobs.resend import ResendResult


def test_spark_setting_has_a_name_and_a_value() -> None:
    assert setting("spark.driver.memory=4g") == ("spark.driver.memory", "4g")
    assert setting("spark.x=a=b") == ("spark.x", "a=b")
    for wrong in ("spark.x", "driver.memory=4g", "=4g", ""):
        with pytest.raises(click.BadParameter, match="no setting"):
            setting(wrong)


def test_start_is_an_edge_or_a_time() -> None:
    assert [start(text) for text in ("earliest", "latest")] == ["earliest", "latest"]
    assert start("1970-01-01T00:00:01Z") == "1000"
    with pytest.raises(click.BadParameter):
        start("soon")


def test_file_bytes_are_a_number_with_or_without_a_binary_unit() -> None:
    told = ("1", "64KiB", "128MiB", "1GiB", "1TiB", "1099511627776")
    counts = [1, 64 << 10, 128 << 20, 1 << 30, 1 << 40, 1 << 40]
    assert [file_bytes(text) for text in told] == counts
    for wrong in ("0", "-1", "", "MiB", "1.5GiB", "128 MiB", "128MB", "2TiB", "1099511627777"):
        with pytest.raises(click.BadParameter, match="no size from 1 to 1TiB"):
            file_bytes(wrong)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["archive", "T"], "--to"),
        (["archive", "T", "--to", "d", "--available-now", "--interval", "5s"], "--interval"),
        (["archive", "T", "--to", "d", "--conf", "x"], "--conf"),
        (["replay", "T", "--topic", "U"], "--checkpoint DIR"),
        (["replay", "T", "--topic", "U", "--once", "--checkpoint", "d"], "--once"),
        (["redrive", "--group", "g"], "--checkpoint DIR"),
        (["redrive"], "--group"),
        (["report", "--hours", "0"], "--hours"),
        (["report", "--slow-after", "soon"], "soon"),
    ],
)
def test_impossible_command_is_refused(arguments: list[str], named: str) -> None:
    done = CliRunner().invoke(ternmq, ["pipeline", *arguments])
    assert done.exit_code == 2
    assert named in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["archive", "T", "--to", "d"],
        ["replay", "T", "--parquet", "d", "--once"],
        ["redrive", "--group", "g", "--dry-run"],
    ],
)
def test_silent_cluster_is_waited_for_visibly_and_exits_with_code_4(arguments: list[str]) -> None:
    silent = ("--nameserver", "127.0.0.1:1", "--retry-timeout", "1s")
    done = CliRunner().invoke(ternmq, ["pipeline", *arguments, *silent])
    assert done.exit_code == 4
    waits, line = done.stderr.splitlines()
    assert waits.startswith("waiting for the cluster left_s=1 option=retryTimeout reason=")
    assert "127.0.0.1:1" in waits
    assert line.startswith("ternmq: ")
    assert re.search(r"; for \d+ s \(retryTimeout\)$", line)


def test_report_tells_at_once_that_nobody_answers() -> None:
    done = CliRunner().invoke(ternmq, ["pipeline", "report", "--nameserver", "127.0.0.1:1"])
    assert done.exit_code == 4
    (line,) = done.stderr.splitlines()
    assert line.startswith("ternmq: ")


def job(
    given: dict[str, Any], done: Archived | ResendResult
) -> Callable[..., Archived | ResendResult]:
    """Return a job that notes what it is told, reports one micro-batch, and is done."""

    def run(*what: object, **options: Any) -> Archived | ResendResult:
        given.update(options, what=what)
        options["observe"](BatchProgress(0, 20, None, 1234.5, 80))
        return done

    return run


SPARK = ("--master", "local[1]", "--conf", "spark.a=1", "--conf", "spark.b=2=3")


def archived(*, is_stopped: bool) -> Archived:
    return Archived("/lake", 20, 1, 2, 999, ("T", "U"), 1.26, is_stopped)


def test_archive_passes_its_options_on(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(jobs, "archive_topics", job(given, archived(is_stopped=False)))
    arguments = (
        *("pipeline", "archive", "T", "U", "--to", "lake", "--from", "1970-01-01T00:00:01Z"),
        *("--interval", "2s", "--batch-rows", "20", "--checkpoint", "c", *SPARK),
        *("--file-bytes", "64MiB", "--nameserver", "n:1", "--json"),
    )
    done = CliRunner().invoke(ternmq, arguments)
    assert done.exit_code == 0
    assert given == {
        "what": (("T", "U"), "lake"),
        "nameserver": "n:1",
        "pattern": "",
        "start": "1000",
        "interval_s": 2.0,
        "batch_rows": 20,
        "file_bytes": 64 << 20,
        "checkpoint": "c",
        "retry_timeout_s": 120.0,
        "observe": show_progress,
        "master": "local[1]",
        "settings": {"spark.a": "1", "spark.b": "2=3"},
    }
    assert done.stderr == "batch 0: 20 rows, 1,234 rows/s, 80 behind\n"
    assert json.loads(done.stdout) == {
        "folder": "/lake",
        "rows": 20,
        "batches": 1,
        "files": 2,
        "bytes": 999,
        "topics": ["T", "U"],
        "seconds": 1.3,
        "stopped": False,
    }


def test_replay_passes_its_options_on(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    done_so = ResendResult(19, 1, 1, {}, 1.26, is_stopped=False)
    monkeypatch.setattr(jobs, "replay_messages", job(given, done_so))
    arguments = (
        *("pipeline", "replay", "T", "--topic", "U", "--from-nameserver", "m:1"),
        *("--from", "1970-01-01T00:00:01Z", "--to", "1970-01-01T00:00:02Z", "--where", "x = 1"),
        *("--checkpoint", "c", "--batch-rows", "20", *SPARK),
        *("--nameserver", "n:1", "--json"),
    )
    done = CliRunner().invoke(ternmq, arguments)
    assert done.exit_code == 0
    assert given == {
        "what": ("T",),
        "nameserver": "n:1",
        "folder": "",
        "topic": "U",
        "from_nameserver": "m:1",
        "start_ms": 1000,
        "end_ms": 2000,
        "where": "x = 1",
        "checkpoint": "c",
        "dry_run": False,
        "batch_rows": 20,
        "retry_timeout_s": 120.0,
        "observe": show_progress,
        "master": "local[1]",
        "settings": {"spark.a": "1", "spark.b": "2=3"},
    }
    told = json.loads(done.stdout)
    assert (told["rows"], told["left"], told["stopped"]) == (19, 1, False)


def test_redrive_passes_its_options_on(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    planned = ResendResult(19, 1, 0, {"T": 19}, 1.26, is_stopped=False)
    monkeypatch.setattr(jobs, "redrive_letters", job(given, planned))
    arguments = (
        *("pipeline", "redrive", "--group", "g", "--where", "x = 1", "--checkpoint", "c"),
        *("--dry-run", "--batch-rows", "20", *SPARK, "--nameserver", "n:1", "--json"),
    )
    done = CliRunner().invoke(ternmq, arguments)
    assert done.exit_code == 0
    assert given == {
        "what": ("g",),
        "nameserver": "n:1",
        "where": "x = 1",
        "checkpoint": "c",
        "dry_run": True,
        "batch_rows": 20,
        "retry_timeout_s": 120.0,
        "observe": show_progress,
        "master": "local[1]",
        "settings": {"spark.a": "1", "spark.b": "2=3"},
    }
    assert json.loads(done.stdout)["topics"] == {"T": 19}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["archive", "T", "--to", "d"], 130),
        (["archive", "T", "--to", "d", "--interval", "1m"], 0),
        (["replay", "T", "--parquet", "d", "--once"], 130),
        (["redrive", "--group", "g", "--checkpoint", "d"], 130),
    ],
)
def test_interrupted_job_reports_it_unless_interruption_is_its_only_end(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int
) -> None:
    stopped = ResendResult(19, 1, 1, {}, 1.26, is_stopped=True)
    monkeypatch.setattr(jobs, "archive_topics", job({}, archived(is_stopped=True)))
    monkeypatch.setattr(jobs, "replay_messages", job({}, stopped))
    monkeypatch.setattr(jobs, "redrive_letters", job({}, stopped))
    done = CliRunner().invoke(ternmq, ["pipeline", *arguments, "--json"])
    assert done.exit_code == code
    assert json.loads(done.stdout)["stopped"]


def test_killed_job_leaves_only_an_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object, **__: object) -> ResendResult:
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs, "replay_messages", interrupted)
    done = CliRunner().invoke(ternmq, ["pipeline", "replay", "T", "--parquet", "d", "--once"])
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "")
