"""Streaming query into a topic, run as a module in a process that tests kill.

It reads text files, one a batch, in two partitions, and stops when all are written. A row `wait`
stops at the gate.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.sink_doubles import PID_VARIABLE, HalfwaySource, stops_at
from tests.support.spark_session import LOCAL, ROOT, make_session

WAIT: Final = "wait"


@dataclass(frozen=True, kw_only=True)
class Task:
    """What the driver is to do."""

    nameserver: str
    topic: str
    folder: str
    """Holds `input`, `checkpoint` and the gate."""

    staging_timeout: str = "3600"
    halfway: bool = False
    """Be killed in the middle of the commit."""

    @property
    def gate(self) -> Path:
        """Where it waits."""
        return Path(self.folder, "gate")


@contextlib.contextmanager
def sink_driver(task: Task) -> Generator[subprocess.Popen[bytes]]:
    """Run a driver until it ends; kill it, with all that it started, if it still runs."""
    command = [sys.executable, "-m", "tests.support.sink_driver", json.dumps(asdict(task))]
    with Path(task.folder, "driver.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            kill_driver(process)


def kill_driver(process: "subprocess.Popen[bytes]") -> None:
    """End a driver and its JVM as `kill -9` does."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)


def write_files(spark: SparkSession, task: Task) -> None:
    """Write every file that is there, behind what the checkpoint has."""
    lines = spark.readStream.option("maxFilesPerTrigger", "1").text(f"{task.folder}/input")
    rows = lines.repartition(2, "value")
    writer = (
        rows.select(stops_at(F.col("value"), WAIT, task.gate).alias("body"))
        .writeStream.format("halfway" if task.halfway else "ternmq")
        .option("nameserver", task.nameserver)
        .option("topic", task.topic)
        .option("stagingTimeout", task.staging_timeout)
        .option("checkpointLocation", f"{task.folder}/checkpoint")
        .trigger(availableNow=True)
    )
    if task.halfway:
        writer = writer.option("gate", str(task.gate)).option("kills", "true")
    writer.start().awaitTermination()


def main(task: Task) -> None:
    """Write every file in a session of this process."""
    os.environ[PID_VARIABLE] = str(os.getpid())
    spark = make_session(LOCAL, Path(task.folder, "spark"), {})
    spark.dataSource.register(HalfwaySource)
    write_files(spark, task)
    spark.stop()


if __name__ == "__main__":
    main(Task(**json.loads(sys.argv[1])))
