"""The jobs of the pipeline with real Spark: through their functions, and as commands."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ternmq_model.errors import JobFailed, UsageError
from ternmq_model.message import Message
from ternmq_pipeline.jobs.archive import archive, archived_files
from ternmq_pipeline.jobs.cluster import ask
from ternmq_pipeline.jobs.progress import BatchProgress
from ternmq_pipeline.jobs.redrive import redrive
from ternmq_pipeline.jobs.replay import replay
from ternmq_pipeline.jobs.report import report
from tests.support.buried import bury
from tests.support.dev_process import DevProcess
from tests.support.spark_data import fill, make_topic, send
from tests.support.spark_session import setting

ENDS_WITHIN_S = 240


def bodies(rows: Any) -> Counter[bytes]:
    return Counter(bytes(row["body"]) for row in rows.select("body").collect())


def topic_rows(spark: SparkSession, dev: DevProcess, topic: str) -> Any:
    reader = spark.read.format("ternmq").option("nameserver", dev.nameserver)
    return reader.option("subscribe", topic).load()


@contextlib.contextmanager
def command(dev: DevProcess, folder: Path, *arguments: str) -> Generator["subprocess.Popen[str]"]:
    """Run `ternmq pipeline …` in a folder for itself, for its temporary files too."""
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    with subprocess.Popen(
        [*(sys.executable, "-m", "ternmq", "pipeline", *arguments), "--nameserver", dev.nameserver],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


SMALL = ("--master", "local[1]", "--conf", "spark.driver.memory=512m")


def summary(dev: DevProcess, folder: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """Run a command to its end and return its summary, and its progress."""
    with command(dev, folder, *arguments, *SMALL, "--json") as process:
        printed, told = process.communicate(timeout=ENDS_WITHIN_S)
    assert process.returncode == 0, told
    assert not list((folder / "scratch").iterdir())
    return json.loads(printed), told


def test_an_archive_gets_what_is_new_each_time_in_folders_by_topic_and_date(
    spark: SparkSession, dev: DevProcess, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    sent = Counter(fill(dev.nameserver, "kept", 60))
    sent.update(fill(dev.nameserver, "kept-too", 10, begin=60))
    told: list[BatchProgress] = []
    options: dict[str, Any] = {"nameserver": dev.nameserver, "spark": spark}
    with setting(spark, "spark.sql.session.timeZone", "Pacific/Kiritimati"):
        first = archive(["kept", "kept-too"], lake, batch_rows=50, observe=told.append, **options)
    assert (first.rows, first.topics, first.batches) == (70, ("kept", "kept-too"), 2)
    assert [one.rows_in for one in told] == [50, 20]
    assert [one.behind for one in told] == [20, 0]
    sent.update(fill(dev.nameserver, "kept", 30, begin=70))
    second = archive(["kept-too", "kept"], lake, **options)
    assert (second.rows, second.topics) == (30, ("kept",))
    assert archive(["kept", "kept-too"], lake, **options).rows == 0
    assert bodies(spark.read.parquet(str(lake))) == sent
    date = datetime.fromtimestamp(newest_ms(dev, "kept") / 1000, UTC).date().isoformat()
    found = {path.name for path in lake.glob(f"topic=kept/date={date}/*.parquet")}
    files = archived_files(lake)
    assert {Path(file.path).name for file in files if file.partition("topic") == "kept"} == found
    assert first.bytes + second.bytes == sum(file.bytes for file in files)
    for topics, folder, checkpoint, named in (
        (["kept"], lake, "", "topics kept, kept-too, this one has kept"),
        (["kept", "kept-too"], lake, tmp_path / "other", "whose checkpoint is not at"),
        (["kept", "kept-too"], tmp_path, "", "holds no archive"),
    ):
        with pytest.raises(UsageError, match=named):
            archive(topics, folder, checkpoint=checkpoint, **options)


def newest_ms(dev: DevProcess, topic: str) -> int:
    """Return when the newest message of a topic was stored."""
    description = ask(dev.nameserver, lambda admin: admin.describe_topic(topic))
    return max(one.last_stored_at_ms for one in description.queues)


def test_an_archive_that_was_interrupted_and_killed_has_every_row_once(
    spark: SparkSession, dev: DevProcess, tmp_path: Path
) -> None:
    sent = Counter(fill(dev.nameserver, "going-on", 100))
    lake = str(tmp_path / "lake")
    go_on = ("archive", "going-on", "--to", lake, "--interval", "0", "--batch-rows", "20", *SMALL)
    with command(dev, tmp_path, *go_on, "--json") as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("batch 0: 20 rows")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        printed, told = process.communicate(timeout=ENDS_WITHIN_S)
    assert process.returncode == 0, told
    done = json.loads(printed)
    assert done["stopped"]
    assert 20 <= done["rows"] <= 100
    assert "Traceback" not in told
    assert not list((tmp_path / "scratch").iterdir())
    sent.update(fill(dev.nameserver, "going-on", 100, begin=100))
    with command(dev, tmp_path, *go_on) as process:
        assert process.stderr is not None
        for _ in range(2):
            assert process.stderr.readline().startswith("batch ")
        process.kill()
    last = archive(["going-on"], lake, nameserver=dev.nameserver, spark=spark)
    assert last.rows < 200 - done["rows"]
    assert bodies(spark.read.parquet(lake)) == sent


def test_a_replay_sends_what_was_archived_once_and_as_it_was(
    spark: SparkSession, dev: DevProcess, tmp_path: Path
) -> None:
    make_topic(dev.nameserver, "played")
    send(
        dev.nameserver,
        [
            Message(
                "played",
                b"%d" % number,
                tags="even" if number % 2 == 0 else "",
                keys=(f"k{number}", "all"),
                properties={"n": str(number)},
                sharding_key=f"s{number % 3}",
            )
            for number in range(40)
        ],
    )
    options: dict[str, Any] = {"nameserver": dev.nameserver, "spark": spark}
    lake, kept = tmp_path / "lake", tmp_path / "replayed"
    archive(["played"], lake, **options)
    for topic in ("again", "evens", "in-order"):
        make_topic(dev.nameserver, topic)
    with pytest.raises(UsageError, match=r"where='tag = 1'.*tag"):
        replay("again", folder=lake, where="tag = 1", checkpoint=kept, **options)
    assert replay("again", folder=lake, dry_run=True, **options).topics == {"again": 40}
    assert replay("again", folder=lake, checkpoint=kept, **options).rows == 40
    assert replay("again", folder=lake, checkpoint=kept, **options).rows == 0
    known = ("body", "tags", "keys", "properties['n'] AS n", "properties['__SHARDINGKEY'] AS s")
    rows = [topic_rows(spark, dev, topic).selectExpr(*known) for topic in ("played", "again")]
    assert sorted(rows[0].collect()) == sorted(rows[1].collect())
    with pytest.raises(UsageError, match="to again, this one has evens"):
        replay("evens", folder=lake, checkpoint=kept, **options)
    where: dict[str, Any] = {
        "where": "tags = 'even'",
        "start_ms": 1,
        "end_ms": newest_ms(dev, "played") + 1,
    }
    where |= {"topic": "played", "checkpoint": tmp_path / "evens"}
    assert replay("evens", batch_rows=15, **where, **options).rows == 20
    assert replay("evens", dry_run=True, **where, **options).rows == 0
    assert bodies(topic_rows(spark, dev, "evens")) == Counter(b"%d" % n for n in range(0, 40, 2))
    told, _ = summary(dev, tmp_path, "replay", "in-order", "--parquet", str(lake), "--once")
    assert (told["rows"], told["batches"]) == (40, 1)
    placed = topic_rows(spark, dev, "in-order").orderBy("queueId", "queueOffset").collect()
    for shard in range(3):
        of_shard = [int(row["body"]) for row in placed if int(row["body"]) % 3 == shard]
        assert of_shard == sorted(of_shard)


def test_dead_letters_go_to_their_first_topic_once(
    spark: SparkSession, dev: DevProcess, tmp_path: Path
) -> None:
    sent = fill(dev.nameserver, "letters", 20)
    bury(dev.nameserver, "undertaker", "letters", 20)
    send(dev.nameserver, [Message("%DLQ%undertaker", b"from nowhere")])
    options: dict[str, Any] = {"nameserver": dev.nameserver, "spark": spark}
    kept = tmp_path / "redriven"
    would = redrive("undertaker", dry_run=True, **options)
    assert (would.topics, would.left) == ({"letters": 20}, 1)
    even: dict[str, Any] = {"where": "tags = 'even'", "checkpoint": kept}
    assert redrive("undertaker", batch_rows=12, **even, **options).rows == 10
    assert redrive("undertaker", **even, **options).rows == 0
    with pytest.raises(UsageError, match="where tags = 'even', this one has none"):
        redrive("undertaker", checkpoint=kept, **options)
    expected = Counter(sent)
    expected.update(sent[::2])
    again = topic_rows(spark, dev, "letters")
    assert bodies(again) == expected
    for row in again.where("queueOffset >= 10").collect():
        told = row["properties"]
        assert (row["tags"], told["n"], row["reconsumeTimes"]) == (
            "even",
            str(int(row["body"][-6:])),
            0,
        )
        assert not {"DLQ_ORIGIN_TOPIC", "RETRY_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"} & told.keys()
    rest = ("--where", "tags is null or tags = 'odd'", "--checkpoint", str(tmp_path / "rest"))
    told, progress = summary(dev, tmp_path, "redrive", "--group", "undertaker", *rest)
    assert (told["rows"], told["left"]) == (10, 1)
    assert progress.startswith("batch 0: ")


def test_a_job_that_fails_says_why_in_one_line(
    spark: SparkSession, dev: DevProcess, tmp_path: Path
) -> None:
    fill(dev.nameserver, "failing", 3)
    make_topic(dev.nameserver, "never-there")
    options: dict[str, Any] = {"nameserver": dev.nameserver, "spark": spark}
    options |= {"topic": "failing", "checkpoint": tmp_path / "c"}
    with pytest.raises(JobFailed, match=r"^replay: message-00000\d$"):
        replay("never-there", where="raise_error(body) = 1", **options)


def test_without_java_a_job_says_so_at_once(dev: DevProcess, tmp_path: Path) -> None:
    fill(dev.nameserver, "javaless", 1)
    archive_it = ("pipeline", "archive", "javaless", "--to", str(tmp_path / "lake"))
    done = subprocess.run(
        [*(sys.executable, "-m", "ternmq"), *archive_it, "--nameserver", dev.nameserver],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "ternmq: archive needs Java 17 or later, for Spark: install it, or set JAVA_HOME\n"
    )
    assert not list(tmp_path.iterdir())


def test_a_report_tells_what_is_known(dev: DevProcess, tmp_path: Path) -> None:
    fill(dev.nameserver, "told", 25)
    html, tables = tmp_path / "page.html", tmp_path / "tables"
    made = report(dev.nameserver, html=html, parquet=tables)
    (row,) = (row for row in made.topics if row.topic == "told")
    assert (row.messages, row.queues, row.in_24h) == (25, 2, 25)
    assert row.bytes is not None
    assert row.bytes > 25 * 100
    assert sum(each.messages for each in made.traffic if each.topic == "told") == 25
    text = html.read_text()
    assert "told" in text
    assert "<svg" in text
    arguments = ("--parquet", str(tables), "--html", str(html))
    with command(dev, tmp_path, "report", *arguments, "--json") as process:
        printed, _ = process.communicate(timeout=ENDS_WITHIN_S)
    assert process.returncode == 0
    assert next(r for r in json.loads(printed)["topics"] if r["topic"] == "told")["messages"] == 25
