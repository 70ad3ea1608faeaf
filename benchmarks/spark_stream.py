"""Cost of a micro-batch beyond its rows: streams of the source `ternmq` into Parquet.

    python benchmarks/spark_stream.py                 # 12 batches of each kind
    python benchmarks/spark_stream.py --batches 5

Each batch is made by sending and waited for. *Nothing to give*: 100 messages that the filter passes
over, so that a batch runs and has no row. *Small*: 100 messages of 1 KiB. *From send to file*: from
the first send until Spark says that the batch is done. The first batch of each kind is told by
itself; that of a session also starts Python workers. *Tuples*: the same without Arrow.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.machine import describe
from benchmarks.services import dev
from benchmarks.spark_sessions import session
from ternmq import BlockingProducer, Message

TOPIC: Final = "stream-overhead"
MESSAGES: Final = 100
TARGET_S: Final = 3.0


class Kind(NamedTuple):
    """Content of batches, and the form in which the tasks pass it on."""

    name: str
    tag: str
    arrow: bool = True


KINDS: Final = (
    Kind("nothing to give", "other"),
    Kind("small", "wanted"),
    Kind("nothing to give, tuples", "other", arrow=False),
    Kind("small, tuples", "wanted", arrow=False),
)
"""The first one also starts the session's Python workers."""


def measure(
    spark: SparkSession, nameserver: str, folder: Path, kind: Kind, batches: int
) -> tuple[list[float], list[float]]:
    """Return the seconds of each batch as Spark tells them, and from send to file."""
    spark_s: list[float] = []
    total_s: list[float] = []
    frame = (
        spark.readStream.format("ternmq")
        .options(nameserver=nameserver, subscribe=TOPIC, filter="wanted", arrow=kind.arrow)
        .load()
    )
    here = folder / kind.name
    writer = frame.writeStream.format("parquet").option("path", str(here / "rows"))
    writer = writer.option("checkpointLocation", str(here / "checkpoint"))
    query = writer.trigger(processingTime="0 seconds").start()
    with BlockingProducer("benchmark-stream", nameserver=nameserver) as producer:
        query.processAllAvailable()
        for _ in range(batches):
            before = last_batch(query)
            begun_s = time.perf_counter()
            producer.send_many([Message(TOPIC, os.urandom(1024), tags=kind.tag)] * MESSAGES)
            while last_batch(query) == before:
                query.processAllAvailable()
            total_s.append(time.perf_counter() - begun_s)
            done = query.lastProgress
            assert done is not None
            spark_s.append(done.durationMs["triggerExecution"] / 1_000)
    query.stop()
    return spark_s, total_s


def last_batch(query: StreamingQuery) -> int:
    """Return the number of the last batch that is done."""
    done = query.lastProgress
    return -1 if done is None else done.batchId


def main(options: argparse.Namespace) -> None:
    """Measure all kinds and print a table."""
    print(*describe(options.folder), sep="\n")
    with tempfile.TemporaryDirectory(dir=options.folder) as name, dev(Path(name), "async") as ran:
        spark = session(Path(name))
        with BlockingProducer("benchmark-stream", nameserver=ran.nameserver) as producer:
            producer.send_many([Message(TOPIC, b"first", tags="wanted")])
        print("| micro-batch into Parquet, s | median | slowest | first | target |")
        print("|---|---:|---:|---:|---:|")
        for kind in KINDS:
            spark_s, total_s = measure(spark, ran.nameserver, Path(name), kind, options.batches + 1)
            for part, took in (("", spark_s), (", from send to file", total_s)):
                median, slowest = statistics.median(took[1:]), max(took[1:])
                met = "" if median <= TARGET_S else " ✗"
                print(
                    f"| {kind.name}{part} | {median:.2f}{met} | {slowest:.2f} | {took[0]:.2f} "
                    f"| ≤ {TARGET_S:g} |"
                )
        spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    main(parser.parse_args())
