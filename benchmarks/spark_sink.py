"""Measure how fast Spark writes rows as messages, staged and committed.

    python benchmarks/spark_sink.py                 # 200,000 rows of 1 KiB
    python benchmarks/spark_sink.py --rows 50000

One broker and Spark's `local[2]` share the machine. The clock runs over the whole write, from the
start of its tasks to the end of the commit, after a smaller one that does not count.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks import machine
from benchmarks.patterns import BODY_BYTES
from benchmarks.services import dev
from benchmarks.spark_sessions import session

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
    print(f"rows of {BODY_BYTES} bytes, staged and committed")
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as name:
        folder = Path(name)
        spark = session(folder)
        for mode in MODES:
            with dev(folder, mode) as ran:
                write(spark, ran.nameserver, asked.rows // 5)
                taken_s = [write(spark, ran.nameserver, asked.rows) for _ in range(asked.rounds)]
            rate = asked.rows / statistics.median(taken_s)
            print(f"{mode} flush: {rate:,.0f} rows/s", flush=True)
        spark.stop()
    print(*machine.describe(Path(tempfile.gettempdir())), sep="\n")


if __name__ == "__main__":
    main()
