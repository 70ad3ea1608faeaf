"""A Spark session for a job: quiet, with this Python in its workers, gone without a trace."""

import logging
import os
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, cast

from ternmq_model.errors import JobFailed
from ternmq_pipeline.jobs.progress import reason_of
from ternmq_pipeline.jobs.requirements import need, need_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
"""Spark in this process's machine alone, a task for each core."""

_QUIET: Final = {
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.stopTimeout": "60s",
}
_LOOPBACK: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
_LOG_LINES: Final = 3


@contextmanager
def spark_session(
    job: str,
    *,
    master: str = LOCAL,
    settings: Mapping[str, str] | None = None,
    spark: "SparkSession | None" = None,
) -> "Generator[SparkSession]":
    """Give a session, which ends with the block, with its JVM and all its files.

    What Spark prints goes to a file that is shown, its last lines, when Spark does not start.

    Args:
        job: What it is for: its name, and who misses what is not installed.
        master: Spark's master.
        settings: Settings of Spark beside ours, or instead of them.
        spark: Take this one; it is left as it is.

    Raises:
        MissingPackage: PySpark or Java is not installed.
        JobFailed: Spark does not start.
    """
    if spark is not None:
        yield spark
        return
    need(job, "pyspark", "pyarrow", "pandas")
    need_java(job, os.environ)
    from pyspark import SparkContext
    from pyspark.logger import PySparkLogger

    # It repeats errors, on standard error, that are raised all the same.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    known = cast("Any", SparkContext)
    has_jvm = known._gateway is not None
    with ExitStack() as stack:
        name = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="ternmq-", ignore_cleanup_errors=True)
        )
        if not has_jvm:
            stack.callback(_end_jvm, known)
        made = _start(job, _settings(master, Path(name), settings or {}), Path(name, "log"))
        stack.callback(made.stop)
        yield made


def _settings(master: str, folder: Path, others: Mapping[str, str]) -> dict[str, str]:
    found = {"spark.master": master, **_QUIET, **(_LOOPBACK if _is_local(master) else {})}
    found["spark.local.dir"] = str(folder)
    found["spark.sql.warehouse.dir"] = str(folder / "warehouse")
    found["spark.driver.extraJavaOptions"] = f"-Djava.io.tmpdir={folder}"
    return {**found, **others}


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _start(job: str, settings: Mapping[str, str], log: Path) -> "SparkSession":
    """Start Spark, whose JVM keeps `log` as its standard error."""
    from pyspark.sql import SparkSession

    # Workers would run any other Python that is called python3.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.Builder().appName(f"ternmq {job}")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with log.open("w+b") as file:
        try:
            with _standard_error(file):
                return builder.getOrCreate()
        except Exception as error:
            printed = log.read_text(errors="replace").splitlines()
            told = [line.strip() for line in printed if not line.startswith("\tat ")]
            why = " / ".join((reason_of(str(error)), *told[-_LOG_LINES:]))
            raise JobFailed(f"{job}: Spark does not start: {why}") from error


@contextmanager
def _standard_error(file: IO[bytes]) -> Generator[None]:
    """Let processes that are started inside the block print their errors into `file`."""
    kept = os.dup(2)
    try:
        os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _end_jvm(context: Any) -> None:
    """End the JVM, which would else live as long as this process, and its files with it."""
    gateway = context._gateway
    if gateway is None:
        return
    context._gateway = context._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
