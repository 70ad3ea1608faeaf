"""Writes from other threads than the one that made the session."""

import runpy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from ternmq.spark import replay, set_active_session
from ternmq_model.errors import UsageError
from tests.support.pages import example
from tests.support.processes import ServiceProcess
from tests.support.spark_data import fill, make_topic
from tests.support.spark_session import Sessions
from tests.support.spark_sink import bodies, numbers, read_topic


def in_thread(
    work: Callable[[], object], kind: type[threading.Thread] = threading.Thread
) -> Exception | None:
    """Return what `work` fails with in a thread of its own."""
    found: list[Exception] = []

    def run() -> None:
        try:
            work()
        except Exception as error:
            found.append(error)

    thread = kind(target=run)
    thread.start()
    thread.join()
    return found[0] if found else None


def test_example_of_the_page_writes_from_a_pool(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    make_topic(dev.nameserver, "threads-page")
    program = example("howto/spark.md", "Write from a thread", "python")
    program = program.replace("127.0.0.1:9876", dev.nameserver)
    program = program.replace('"topic", "flights"', '"topic", "threads-page"')
    (tmp_path / "program.py").write_text(program)
    runpy.run_path(str(tmp_path / "program.py"), {"spark": spark})
    sent = read_topic(dev.nameserver, "threads-page")
    assert sorted(message.tags for message in sent) == ["AA", "DL", "UA"]


def test_thread_writes_batch_and_stream_once_its_session_is_set(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    fill(dev.nameserver, "threads-from", 3)
    make_topic(dev.nameserver, "threads-to")

    def batch() -> None:
        writer = numbers(spark, 2).write.format("ternmq").option("nameserver", dev.nameserver)
        writer.option("topic", "threads-to").mode("append").save()

    def stream() -> None:
        read = spark.readStream.format("ternmq").option("nameserver", dev.nameserver)
        rows = read.option("subscribe", "threads-from").option("startingOffsets", "earliest").load()
        writer = rows.select("body").writeStream.format("ternmq").option("topic", "threads-to")
        writer = writer.option("nameserver", dev.nameserver).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination()

    for work in (batch, stream):
        # What the page says of Spark; when this fails, Spark has mended it.
        assert "DATA_SOURCE_NOT_FOUND" in str(in_thread(work, InheritableThread))
        with ThreadPoolExecutor(1, initializer=set_active_session, initargs=(spark,)) as pool:
            pool.submit(work).result()
    sent = [f"message-00000{n}" for n in range(3)]
    assert bodies(dev.nameserver, "threads-to") == ["0", "1", *sent]


def test_job_in_a_thread_finds_the_source_and_leaves_the_thread_as_it_was(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    fill(dev.nameserver, "threads-archive", 3)
    make_topic(dev.nameserver, "threads-again")
    after: list[SparkSession | None] = []

    def job() -> None:
        for kept in (tmp_path / "kept", ""):
            replay(
                "threads-again",
                topic="threads-archive",
                checkpoint=kept,
                nameserver=dev.nameserver,
                spark=spark,
            )
        after.append(SparkSession.getActiveSession())

    assert in_thread(job) is None
    assert after == [None]
    assert SparkSession.getActiveSession() is not None
    assert len(bodies(dev.nameserver, "threads-again")) == 6


def test_session_that_is_none_or_stopped_is_refused(sessions: Sessions) -> None:
    stopped = sessions.local()
    for one in (None, "x", 5, object()):
        with pytest.raises(UsageError, match="must be a SparkSession, not "):
            set_active_session(cast("Any", one))
    sessions.end()
    with pytest.raises(UsageError, match="is stopped"):
        set_active_session(stopped)
