"""Spark session of a job: quiet, with this Python in its workers, removed at the end."""

import asyncio
import logging
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from ternmq_client import retry_timeout
from ternmq_client.blocking_client import shared_loop_thread
from ternmq_model.errors import JobFailed, UsageError
from ternmq_pipeline.jobs.driver.interruption import ended_by_signals, signals_put_off
from ternmq_pipeline.jobs.driver.requirements import need, need_java
from ternmq_pipeline.jobs.driver.spark_errors import failures_of, jvm_gone, reason_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
"""Spark's master on this machine, with a task for each core."""

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
_LOOK_S: Final = 0.5
_WAITS: Final = re.compile(
    rb"waiting for the cluster left_s=(?P<left_s>\d+) option=\w+ reason=(?P<reason>.*)"
)


@contextmanager
def spark_session(
    job: str,
    *,
    master: str = LOCAL,
    settings: Mapping[str, str] | None = None,
    spark: "SparkSession | None" = None,
) -> "Generator[SparkSession]":
    """Yield a session of Spark; the end of the block removes it, its JVM and its files.

    Spark prints to a file. If Spark does not start, the error has the last lines of the file. Waits
    of the Python workers for the cluster are logged here.
    Ctrl-C and SIGTERM end the block by KeyboardInterrupt, unless code inside handles them.

    Args:
        job: Name of the job, also for errors about missing packages.
        master: Spark's master.
        settings: Settings of Spark, in addition to the job's or in place of them.
        spark: Existing session to use; it is not stopped. None = a new one.

    Raises:
        MissingPackage: PySpark or Java is not installed.
        UsageError: Another session exists in this process and would end with the block.
        JobFailed: Spark does not start, or an error of Spark ends the block.
    """
    if spark is not None:
        with failures_of(job), _active(spark):
            yield spark
        return
    need(job, "pyspark", "pyarrow", "pandas")
    need_java(job, os.environ)
    from pyspark import SparkContext
    from pyspark.logger import PySparkLogger

    # These loggers print errors that are raised too.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    logging.getLogger("py4j").addHandler(logging.NullHandler())
    # Without this setting workers run the first python3 on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    known = cast("Any", SparkContext)
    if known._active_spark_context is not None:
        raise UsageError(
            f"{job}: this process has a session of Spark: give it as spark, or stop it"
        )
    with ExitStack() as stack:
        stack.enter_context(ended_by_signals())
        name = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="ternmq-", ignore_cleanup_errors=True)
        )
        all_settings, log = _settings(master, Path(name), settings or {}), Path(name, "log")
        try:
            if not has_jvm(known._gateway, os.environ):
                stack.callback(_end_jvm, known)
                _start_jvm(known, all_settings, log)
                stack.enter_context(waits_logged(log))
            made = _start(job, all_settings)
        except Exception as error:
            why = " / ".join((reason_of(str(error)), *_last_lines(log)))
            raise JobFailed(f"{job}: Spark does not start: {why}") from error
        # PySpark has replaced the handler of Ctrl-C by one that calls the JVM, which may be gone.
        stack.enter_context(ended_by_signals())
        stack.callback(_end_session, made)
        with failures_of(job):
            yield made


def set_active_session(spark: "SparkSession") -> None:
    """Make a session the active one of the calling thread.

    Spark looks up Python data sources in the session of the calling thread. In a thread without a
    session, `df.write.format("ternmq")` and `df.writeStream.format("ternmq")` fail with
    DATA_SOURCE_NOT_FOUND. Only the thread that created the session has it. A pool calls this
    function in each thread as `ThreadPoolExecutor(4, initializer=set_active_session,
    initargs=(spark,))`.

    The call has no effect with `PYSPARK_PIN_THREAD=false`, where Python threads share threads of
    the JVM, and with Spark Connect, where the server owns the sessions.

    Args:
        spark: Session for the rest of the thread or until the next call. A thread keeps a stopped
            session: call this function again with the next session.

    Raises:
        UsageError: The object is no session, or the session is stopped.
    """
    from pyspark.sql import SparkSession

    if type(spark).__module__.startswith("pyspark.sql.connect."):
        return
    if not isinstance(cast("object", spark), SparkSession):
        raise UsageError(f"spark must be a SparkSession, not {type(spark).__name__}")
    if _is_stopped(spark):
        raise UsageError("the SparkSession is stopped: give one that is running")
    _sessions_of(spark).setActiveSession(cast("Any", spark)._jsparkSession)


def _is_stopped(spark: "SparkSession") -> bool:
    with suppress(*jvm_gone()):
        context = cast("Any", spark.sparkContext)._jsc
        return context is None or bool(context.sc().isStopped())
    return True


@contextmanager
def _active(spark: "SparkSession") -> Generator[None]:
    """Make a session the active one of this thread inside the block."""
    known = _sessions_of(spark)
    before = known.getActiveSession()
    set_active_session(spark)
    try:
        yield
    finally:
        with suppress(*jvm_gone()):
            if before.isDefined():
                known.setActiveSession(before.get())
            else:
                known.clearActiveSession()


def _sessions_of(spark: "SparkSession") -> Any:
    """Return the JVM's class of a session."""
    return getattr(cast("Any", spark)._jvm, "org.apache.spark.sql.classic.SparkSession")


def has_jvm(gateway: object | None, environment: Mapping[str, str]) -> bool:
    """Return whether this process uses a JVM that it must not end.

    Args:
        gateway: PySpark's gateway to the JVM that it started; None = none.
        environment: Variables of the process. spark-submit sets the port of its JVM there.
    """
    return gateway is not None or "PYSPARK_GATEWAY_PORT" in environment


def _settings(master: str, folder: Path, others: Mapping[str, str]) -> dict[str, str]:
    found = {"spark.master": master, **_QUIET, **(_LOOPBACK if master.startswith("local") else {})}
    found["spark.local.dir"] = str(folder)
    found["spark.sql.warehouse.dir"] = str(folder / "warehouse")
    found["spark.driver.extraJavaOptions"] = f"-Djava.io.tmpdir={folder}"
    return {**found, **others}


def _start_jvm(context: Any, settings: Mapping[str, str], log: Path) -> None:
    """Start the JVM with `log` as its standard error.

    The JVM has a process session of its own, so that signals reach only this process, which ends
    the JVM. An interrupt before the JVM has reported its port would leave a JVM without an owner.
    """
    from pyspark import SparkConf, java_gateway

    launch = cast("Any", java_gateway).launch_gateway
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with log.open("wb") as file, signals_put_off():
        own = {"stderr": file, "start_new_session": True}
        context._ensure_initialized(gateway=launch(conf, own))


@contextmanager
def waits_logged(printed: Path) -> Generator[None]:
    """Log the workers' waits for the cluster inside the block, read from a file.

    Args:
        printed: File of Spark's output, with that of the Python workers of this machine.
    """
    rest = b""

    async def look() -> None:
        nonlocal rest
        *lines, rest = (rest + file.read()).split(b"\n")
        for line in lines:
            if waits := _WAITS.match(line):
                retry_timeout.tell(waits["reason"].decode(errors="replace"), float(waits["left_s"]))

    async def follow() -> None:
        while True:
            await look()
            await asyncio.sleep(_LOOK_S)

    with printed.open("rb") as file:
        following = shared_loop_thread().submit(follow())
        try:
            yield
        finally:
            following.cancel()
            shared_loop_thread().run(look())


def _start(job: str, settings: Mapping[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder().appName(f"ternmq {job}")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        return builder.getOrCreate()


def _last_lines(log: Path) -> list[str]:
    """Return the last lines of a JVM's output, without lines of stack traces."""
    printed = log.read_text(errors="replace").splitlines() if log.exists() else []
    return [line.strip() for line in printed if not line.startswith("\tat ")][-_LOG_LINES:]


def _end_session(session: "SparkSession") -> None:
    """Stop a session, unless its JVM has ended."""
    with warnings.catch_warnings(), suppress(*jvm_gone()):
        warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM")
        session.stop()


def _end_jvm(context: Any) -> None:
    """End the JVM. It would otherwise last as long as this process, with its files."""
    gateway = context._gateway
    if gateway is None:
        return
    context._gateway = context._jvm = context._active_spark_context = None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
