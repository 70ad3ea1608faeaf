"""The jobs of the pipeline with real Spark: through their functions, and one as a command."""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier
from typing import Any, cast

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ternmq_console.main import ternmq
from ternmq_model.errors import JobFailed, UsageError
from ternmq_model.message import Message
from ternmq_pipeline.jobs.archive import (
    _few_files,  # pyright: ignore[reportPrivateUsage]
    archive,
    archived_files,
)
from ternmq_pipeline.jobs.cluster_queries import ask
from ternmq_pipeline.jobs.driver.batch_progress import BatchProgress
from ternmq_pipeline.jobs.driver.spark_session import spark_session
from ternmq_pipeline.jobs.driver.streaming_query import RunTotals, run
from ternmq_pipeline.jobs.redrive import redrive
from ternmq_pipeline.jobs.replay import replay
from ternmq_runtime.directory_lock import DirectoryLock
from tests.support.buried import bury
from tests.support.processes import ServiceProcess
from tests.support.spark_data import fill, make_topic, send
from tests.support.spark_session import LOCAL, Sessions, setting

pq: Any = importlib.import_module("pyarrow.parquet")

ENDS_WITHIN_S = 240


def bodies(rows: Any) -> Counter[bytes]:
    return Counter(bytes(row["body"]) for row in rows.select("body").collect())


def topic_rows(spark: SparkSession, dev: ServiceProcess, topic: str) -> Any:
    reader = spark.read.format("ternmq").option("nameserver", dev.nameserver)
    return reader.option("subscribe", topic).load()


def interrupt_first(done: BatchProgress) -> None:
    """Press Ctrl-C after the first micro-batch, and once: a second time ends a job at once."""
    if done.batch == 0:
        os.kill(os.getpid(), signal.SIGINT)


def test_archive_receives_new_messages_in_folders_by_topic_and_date(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
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
    with setting(spark, "spark.sql.streaming.fileSink.log.compactInterval", "3"):
        second = archive(["kept-too", "kept"], lake, **options)
    assert (lake / "_spark_metadata" / "2.compact").exists()
    assert (second.rows, second.topics) == (30, ("kept",))
    assert bodies(spark.read.parquet(str(lake))) == sent
    date = datetime.fromtimestamp(newest_ms(dev, "kept") / 1000, UTC).date().isoformat()
    found = {path.name for path in lake.glob(f"topic=kept/date={date}/*.parquet")}
    files = archived_files(lake)
    assert {Path(file.path).name for file in files if file.partition("topic") == "kept"} == found
    assert first.bytes + second.bytes == sum(file.bytes for file in files)
    for topics, folder, checkpoint, named in (
        (["kept"], lake, "", "topics kept, kept-too, this one has kept"),
        (["kept", "kept-too"], lake, tmp_path / "other", "whose checkpoint is not "),
        (["kept", "kept-too"], tmp_path, "", "has no archive"),
    ):
        with pytest.raises(UsageError, match=named):
            archive(topics, folder, checkpoint=checkpoint, **options)


def test_archive_puts_queues_of_a_topic_into_files_of_the_wanted_size(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    options: dict[str, Any] = {"nameserver": dev.nameserver, "spark": spark}
    topics = ["many-queues", "one-queue"]
    sent: Counter[bytes] = Counter()

    def unhinted(frame: Any, *_: str) -> Any:
        return frame

    def send_more(begin: int) -> None:
        for topic, queues in zip(topics, (8, 1), strict=True):
            sent.update(fill(dev.nameserver, topic, 4_000, queues=queues, begin=begin))

    send_more(0)
    with monkeypatch.context() as patch:
        # As before there was a size: a file for each queue. Its checkpoint goes on.
        patch.setattr(type(spark.range(1)), "hint", unhinted)
        assert archive(topics, lake, **options).files >= 8 + 1
    send_more(4_000)
    together = archive(topics, lake, **options)
    new = archived_files(lake)[-together.files :]
    assert together.rows == 8_000
    assert len({(file.partition("topic"), file.partition("date")) for file in new}) == len(new)
    send_more(8_000)
    # Some 500 messages, as long as brokers say that they are.
    monkeypatch.setattr("ternmq_pipeline.jobs.archive.PIECE_BYTES_MIN", 100_000)
    apart = archive(topics, lake, file_bytes=together.bytes // 8, **options)
    assert apart.rows == 8_000
    new = archived_files(lake)[-apart.files :]
    for topic in topics:
        assert len([file for file in new if file.partition("topic") == topic]) >= 3
    assert bodies(spark.read.parquet(str(lake))) == sent


class Started(StreamingQueryListener):
    """Counts the queries that begin."""

    count = 0

    def onQueryStarted(self, event: object) -> None:
        self.count += 1

    def onQueryProgress(self, event: object) -> None:
        pass

    def onQueryTerminated(self, event: object) -> None:
        pass


def test_archives_in_threads_of_one_session_have_each_its_size_and_leave_its_settings(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(dev.nameserver, "shared", 4_000, queues=4)
    monkeypatch.setattr("ternmq_pipeline.jobs.archive.PIECE_ROWS", 500)
    begin, both = DataStreamWriter.start, Barrier(2)

    def start_together(writer: Any) -> Any:
        both.wait(ENDS_WITHIN_S)
        return begin(writer)

    def archived(file_bytes: int) -> int:
        lake = tmp_path / str(file_bytes)
        options: dict[str, Any] = {"nameserver": dev.nameserver, "spark": spark}
        return archive(["shared"], lake, file_bytes=file_bytes, **options).files

    monkeypatch.setattr(DataStreamWriter, "start", start_together)
    listener = Started()
    spark.streams.addListener(listener)
    # While it is off, Spark drops hints.
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    before = spark.conf.getAll
    try:
        with ThreadPoolExecutor(2) as pool:
            large, small = pool.map(archived, (1 << 30, 20_000))
        assert spark.conf.getAll == before
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
        spark.streams.removeListener(listener)
    assert large == 1
    assert small >= 3
    assert listener.count == 2


def test_copy_of_a_session_has_its_listeners_once_and_those_of_its_settings_too(
    sessions: Sessions,
) -> None:
    def listeners(of: SparkSession) -> list[str]:
        inner = cast("Any", of)._jsparkSession
        return [one.toString() for one in inner.streams().listListeners()]

    with_page = sessions.session(LOCAL, spark__ui__enabled="true")
    assert listeners(with_page)
    assert listeners(_few_files(with_page, 1)) == listeners(with_page)


def newest_ms(dev: ServiceProcess, topic: str) -> int:
    """Return when the newest message of a topic was stored."""
    description = ask(dev.nameserver, lambda admin: admin.describe_topic(topic))
    return max(one.last_stored_at_ms for one in description.queues)


def test_interrupted_and_killed_archive_has_every_row_once(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    sent = Counter(fill(dev.nameserver, "going-on", 100))
    lake, scratch = tmp_path / "lake", tmp_path / "scratch"
    scratch.mkdir()
    go_on = ("archive", "going-on", "--to", str(lake), "--interval", "0", "--batch-rows", "20")
    small = ("--master", "local[1]", "--conf", "spark.driver.memory=512m")
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "ternmq", "pipeline", *go_on, *small, "--json"),
            *("--nameserver", dev.nameserver),
        ],
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("batch 0: 20 rows")
            os.killpg(process.pid, signal.SIGTERM)  # as `timeout` does: to all that it started
            printed, told = process.communicate(timeout=ENDS_WITHIN_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, told
    done = json.loads(printed)
    assert done["stopped"]
    assert 20 <= done["rows"] <= 100
    assert "Traceback" not in told
    assert not list(scratch.iterdir())
    sent.update(fill(dev.nameserver, "going-on", 50, begin=100))
    options: dict[str, Any] = {"nameserver": dev.nameserver, "spark": spark}
    assert archive(["going-on"], lake, **options).rows == 150 - done["rows"]
    for is_in_archive in (True, False):
        forget_last_batch(lake, is_in_archive=is_in_archive)
        archive(["going-on"], lake, **options)
        assert bodies(spark.read.parquet(str(lake))) == sent
    assert len(archived_files(lake)) < len(list(lake.glob("topic=*/date=*/*.parquet")))


def test_stopped_archive_counts_rows_of_batch_that_spark_told_nothing_of(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*words: Any) -> RunTotals:
        run(*words)
        return RunTotals(is_stopped=True)

    fill(dev.nameserver, "archive-stopped", 30)
    monkeypatch.setattr("ternmq_pipeline.jobs.archive.run", stopped)
    done = archive(["archive-stopped"], tmp_path / "lake", nameserver=dev.nameserver, spark=spark)
    assert (done.rows, done.batches, done.is_stopped) == (30, 1, True)


def forget_last_batch(lake: Path, *, is_in_archive: bool) -> None:
    """Leave an archive as a kill in its last batch does: before its commit, or before its log."""
    commits = lake / "_checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    for folder in (commits,) if is_in_archive else (commits, lake / "_spark_metadata"):
        for name in (str(last), f".{last}.crc"):
            (folder / name).unlink()


def test_replay_sends_archived_messages_once_and_unchanged(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    monkeypatch.setattr("ternmq_pipeline.jobs.archive.FILE_ROWS", 25)
    assert archive(["played"], lake, **options).files == 2
    for topic in ("again", "evens", "in-order"):
        make_topic(dev.nameserver, topic)
    with pytest.raises(UsageError, match=r"where='tag = 1'.*tag"):
        replay("again", folder=lake, where="tag = 1", checkpoint=kept, **options)
    assert replay("again", folder=lake, dry_run=True, **options).topics == {"again": 40}
    by_file = replay("again", folder=lake, batch_rows=30, checkpoint=kept, **options)
    assert (by_file.rows, by_file.batches) == (40, 2)
    assert replay("again", folder=lake, checkpoint=kept, **options).rows == 0
    known = ("body", "tags", "keys", "properties['n'] AS n", "properties['__SHARDINGKEY'] AS s")
    rows = [topic_rows(spark, dev, topic).selectExpr(*known) for topic in ("played", "again")]
    assert sorted(rows[0].collect()) == sorted(rows[1].collect())
    with pytest.raises(UsageError, match="to again, this one has evens"):
        replay("evens", folder=lake, checkpoint=kept, **options)
    lock = DirectoryLock(kept)
    with pytest.raises(UsageError, match="another run uses it now"):
        replay("again", folder=lake, checkpoint=kept, **options)
    lock.release()
    where: dict[str, Any] = {
        "where": "tags = 'even'",
        "start_ms": 1,
        "end_ms": newest_ms(dev, "played") + 1,
    }
    where |= {"topic": "played", "checkpoint": tmp_path / "evens"}
    begun = replay("evens", batch_rows=10, observe=interrupt_first, **where, **options)
    assert begun.is_stopped
    make_topic(dev.nameserver, "played", queues=3)
    would = replay("evens", dry_run=True, **where, **options)
    ended = replay("evens", batch_rows=30, **where, **options)
    assert begun.rows + would.rows == begun.rows + ended.rows == 20
    assert not ended.is_stopped
    assert bodies(topic_rows(spark, dev, "evens")) == Counter(b"%d" % n for n in range(0, 40, 2))
    in_order = replay("in-order", folder=lake, **options)
    assert (in_order.rows, in_order.batches) == (40, 1)
    placed = topic_rows(spark, dev, "in-order").orderBy("queueId", "queueOffset").collect()
    for shard in range(3):
        of_shard = [int(row["body"]) for row in placed if int(row["body"]) % 3 == shard]
        assert of_shard == sorted(of_shard)


def test_replay_continues_with_files_older_than_known_ones(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    make_topic(dev.nameserver, "copied")
    files = tmp_path / "files"
    files.mkdir()
    options: dict[str, Any] = {"nameserver": dev.nameserver, "spark": spark, "folder": files}
    for number, days in enumerate((0, 30)):
        file = files / f"{number}.parquet"
        pq.write_table(pa.table({"body": [f"{number}"]}), file)
        modified = file.stat().st_mtime - days * 86_400
        os.utime(file, (modified, modified))
        assert replay("copied", checkpoint=tmp_path / "c", **options).rows == 1
    assert bodies(topic_rows(spark, dev, "copied")) == Counter([b"0", b"1"])


def test_dead_letters_go_to_their_first_topic_once(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
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
    rest: dict[str, Any] = {"where": "tags is null or tags = 'odd'", "checkpoint": tmp_path / "c"}
    begun = redrive("undertaker", batch_rows=5, observe=interrupt_first, **rest, **options)
    assert begun.is_stopped
    ended = redrive("undertaker", **rest, **options)
    assert (begun.rows + ended.rows, begun.left + ended.left) == (10, 1)
    assert bodies(topic_rows(spark, dev, "letters")) == Counter(sent + sent)


def test_existing_session_is_not_taken_unasked(spark: SparkSession, dev: ServiceProcess) -> None:
    fill(dev.nameserver, "mine", 1)
    with pytest.raises(UsageError, match="give it as spark"):
        archive(["mine"], "/nowhere", nameserver=dev.nameserver)
    assert spark.range(1).count() == 1


def test_failing_job_says_why_in_one_line(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    fill(dev.nameserver, "failing", 3)
    make_topic(dev.nameserver, "never-there")
    options: dict[str, Any] = {"nameserver": dev.nameserver, "spark": spark}
    options |= {"topic": "failing", "checkpoint": tmp_path / "c"}
    with pytest.raises(JobFailed, match=r"^replay: message-00000\d$"):
        replay("never-there", where="raise_error(body) = 1", **options)


def test_jobs_own_session_ends_with_the_job_and_leaves_nothing(sessions: Sessions) -> None:
    sessions.end()
    folders: list[Path] = []

    def job() -> None:
        with spark_session("test", master="local[1]") as session:
            folders.append(Path(session.sparkContext.getConf().get("spark.local.dir") or ""))
            assert folders[0].exists()
            os.kill(os.getpid(), signal.SIGTERM)

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(KeyboardInterrupt):
        job()
    assert not folders[0].exists()
    assert SparkSession.getActiveSession() is None
    assert before == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


def test_job_without_java_says_so_at_once(dev: ServiceProcess, tmp_path: Path) -> None:
    fill(dev.nameserver, "javaless", 1)
    archive_it = ("archive", "javaless", "--to", str(tmp_path / "lake"))
    nowhere = {"PATH": str(tmp_path), "JAVA_HOME": None}
    done = run_command(dev, *archive_it, environment=nowhere)
    assert done.exit_code == 2
    assert done.stderr == (
        "ternmq: archive needs Java 17 or later, for Spark: install it, or set JAVA_HOME\n"
    )
    assert not list(tmp_path.iterdir())


def test_report_contains_all_known_figures(dev: ServiceProcess, tmp_path: Path) -> None:
    fill(dev.nameserver, "told", 25)
    html, tables = tmp_path / "page.html", tmp_path / "tables"
    done = run_command(dev, "report", "--parquet", str(tables), "--html", str(html), "--json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    (row,) = (row for row in told["topics"] if row["topic"] == "told")
    assert (row["messages"], row["queues"], row["in_24h"]) == (25, 2, 25)
    assert row["bytes"] > 25 * 100
    assert sum(row["messages"] for row in told["traffic"] if row["topic"] == "told") == 25
    assert pq.read_metadata(tables / "topics.parquet").num_rows == len(told["topics"])
    text = html.read_text()
    assert "told" in text
    assert "<svg" in text


def run_command(
    dev: ServiceProcess, *arguments: str, environment: Mapping[str, str | None] | None = None
) -> Result:
    """Run `ternmq pipeline …` in this process."""
    command = ["pipeline", *arguments, "--nameserver", dev.nameserver]
    return CliRunner().invoke(ternmq, command, env=environment)
