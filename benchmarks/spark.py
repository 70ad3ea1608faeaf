"""Rate of Spark reads of topics: through a broker and from its store, into a count and Parquet.

    python benchmarks/spark.py                    # medians of three rounds, about three minutes
    python benchmarks/spark.py --rows 100000 --rounds 1

Bodies are random bytes of 1,024, every column is read, by two tasks at a time; the broker shares
their cores. Beside each figure stands the same with plain tuples instead of Arrow.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks import machine
from benchmarks.figures import markdown, number
from benchmarks.patterns import BODY_BYTES
from benchmarks.services import dev
from benchmarks.spark_sessions import session
from ternmq import BlockingProducer, Message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC: Final = "SparkReads"
CHUNK: Final = 20_000
ROUNDS: Final = 3

TARGETS: Final[Mapping[str, float]] = {
    "broker, count": 150_000,
    "broker, Parquet": 60_000,
    "store, count": 200_000,
}
"""Rows a second, with Arrow."""

FORMS: Final[Mapping[str, Mapping[str, str]]] = {
    "Arrow": {},
    "tuples": {"arrow": "false"},
    "records": {"scan": "never"},
}
"""*Records*: the broker sends them as they lie, and the tasks make the batches."""

IMPORTS: Final = """
import sys, time
import pyarrow.compute, pyspark.sql.worker.plan_data_source_read
begun_s = time.perf_counter()
import {modules}
print(time.perf_counter() - begun_s)
"""
IMPORTED: Final[Mapping[str, str]] = {
    "planning process": "pyspark_ternmq, ternmq_pipeline.source.batch_reader",
    "worker": "ternmq_pipeline.source.tasks.partition_reader, ternmq_pipeline.source.tasks.fetcher",
    "worker, offline": "ternmq_pipeline.source.offline.reader",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="print medians of so many")
    parser.add_argument("--data", type=Path, default=Path(), help="a folder on the disk to use")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=chosen.data) as name:
        folder = Path(name).resolve()
        print("$ .venv/bin/python benchmarks/spark.py", *(arguments or sys.argv[1:]))
        print(*machine.describe(folder), sep="\n", flush=True)
        spark = session(folder, driver_memory="2g")
        with dev(folder, "async") as running:
            fill(running.nameserver, chosen.rows)
            sources = {
                "broker": {"nameserver": running.nameserver, "subscribe": TOPIC},
                "store": {"store": str(running.data / "broker"), "subscribe": TOPIC},
            }
            found = measure(spark, sources, folder, chosen.rows, chosen.rounds)
        print(f"rows     {chosen.rows} of {BODY_BYTES} bytes, medians of {chosen.rounds}\n")
        print(table(found))
        print()
        print(markdown([["import of our packages", "s"], *import_rows(chosen.rounds)]))
    return 0


def fill(nameserver: str, rows: int) -> None:
    """Send `rows` messages."""
    with BlockingProducer("spark-bench", nameserver=nameserver) as producer:
        for begin in range(0, rows, CHUNK):
            numbers = range(begin, min(begin + CHUNK, rows))
            producer.send_many(
                [
                    Message(TOPIC, os.urandom(BODY_BYTES), tags="bench", keys=(f"k{one}",))
                    for one in numbers
                ]
            )


def measure(
    spark: "SparkSession",
    sources: Mapping[str, Mapping[str, str]],
    folder: Path,
    rows: int,
    rounds: int,
) -> Mapping[str, Mapping[str, float]]:
    """Return rows a second, by what is read into what, and by form."""
    parquet = folder / "parquet"

    def into_count(frame: "DataFrame") -> None:
        if frame.count() != rows:
            raise ValueError("that is not what was sent")

    def into_parquet(frame: "DataFrame") -> None:
        frame.write.mode("overwrite").parquet(str(parquet))
        shutil.rmtree(parquet)

    actions: Mapping[str, Callable[[DataFrame], None]] = {
        "count": into_count,
        "Parquet": into_parquet,
    }
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for round_number in range(-1, rounds):
        for source, options in sources.items():
            for form, more in FORMS.items():
                if source == "store" and "scan" in more:
                    continue
                for action, act in actions.items():
                    frame = spark.read.format("ternmq").options(**options, **more).load()
                    begun_s = time.perf_counter()
                    act(frame)
                    rate = rows / (time.perf_counter() - begun_s)
                    name = f"{source}, {action}"
                    print(f"round {round_number + 1}, {name}, {form}: {rate:,.0f}", file=sys.stderr)
                    # The first round starts workers and warms the JVM.
                    if round_number >= 0:
                        found[name][form].append(rate)
    return {
        name: {form: statistics.median(rates) for form, rates in forms.items()}
        for name, forms in found.items()
    }


def table(found: Mapping[str, Mapping[str, float]]) -> str:
    """Return the medians as a table; what missed its target is marked."""
    rows = [["rows/s", *FORMS, "target of Arrow"]]
    for name, rates in found.items():
        target = TARGETS.get(name)
        cells = [number(rates[form]) if form in rates else "" for form in FORMS]
        if target is not None and rates["Arrow"] < target:
            cells[0] += " ✗"
        rows.append([name, *cells, "" if target is None else f"≥ {target:,.0f}"])
    return markdown(rows)


def import_rows(rounds: int) -> Iterable[list[str]]:
    """Give how long our packages take to import beside what Spark's workers have anyway."""
    for name, modules in IMPORTED.items():
        program = IMPORTS.format(modules=modules)
        times = [
            float(subprocess.check_output([sys.executable, "-c", program])) for _ in range(rounds)
        ]
        yield [name, f"{statistics.median(times):.2f}"]


if __name__ == "__main__":
    sys.exit(main())
