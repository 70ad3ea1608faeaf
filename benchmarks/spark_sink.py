"""Measure how fast Spark writes rows as messages, staged and committed.

    python benchmarks/spark_sink.py                 # 200,000 rows of 1 KiB
    python benchmarks/spark_sink.py --rows 50000

One broker and Spark's `local[2]` share the machine. The clock runs over the whole write, from the
start of its tasks to the end of the commit, after a smaller one that does not count.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks import machine
from benchmarks.services import dev

BODY_BYTES: Final = 1024
ROWS: Final = 200_000
MODES: Final = ("async", "sync")


def write(spark: SparkSession, nameserver: str, rows: int) -> float:
    """Write so many rows in two partitions; return the seconds that took."""
    body = F.expr(f"lpad(cast(id as string), {BODY_BYTES}, 'x')").alias("body")
    frame = spark.range(0, rows, 1, 2).select(body, F.lit("bench").alias("tags"))
    writer = frame.write.format("ternmq").option("nameserver", nameserver)
    begun_s = time.perf_counter()
    writer.option("topic", "bench-sink").mode("append").save()
    return time.perf_counter() - begun_s


def main() -> None:
    """Print rows a second in both modes of flushing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.Builder().master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.log.level", "ERROR").config("spark.driver.memory", "1g")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    print(f"rows of {BODY_BYTES} bytes, staged and committed")
    for mode in MODES:
        with (
            tempfile.TemporaryDirectory(prefix="bench-spark-") as folder,
            dev(Path(folder), mode) as service,
        ):
            write(spark, service.nameserver, asked.rows // 5)
            taken_s = [write(spark, service.nameserver, asked.rows) for _ in range(asked.rounds)]
            print(
                f"{mode} flush: {asked.rows / statistics.median(taken_s):,.0f} rows/s", flush=True
            )
    spark.stop()
    print(*machine.describe(Path(tempfile.gettempdir())), sep="\n")


if __name__ == "__main__":
    main()
