"""Rate of making Arrow batches of a store's records on one core. Prints a table.

    python benchmarks/scan_alone.py [--rounds N] [--messages N] [--data DIR]

Records of 1 KiB bodies with a tag, a unique key and two keys, over 8 queues of one store, which
lies in memory. The full schema is read, and every checksum verified. By processor time, so that
what else the machine does counts less. Beside it the same as tuples of Python objects.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks import machine
from benchmarks.figures import markdown, number
from benchmarks.store_alone import (
    BATCH,
    HOST,
    QUEUES,
    TOPIC,
    Background,
    checked,
    opened,
    records_of,
)
from ternmq_model.columns.batches import build_rows
from ternmq_model.columns.column_names import COLUMNS
from ternmq_model.message_batch import decode_records
from ternmq_model.queue import MessageQueue
from ternmq_model.subscription import parse_subscription
from ternmq_store.config import FlushMode
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.scan.directory import StoreDirectory
from ternmq_store.scan.partition_scan import plan_directory, scan_partition
from ternmq_store.scan.queue_scan import scan_queue
from ternmq_store.scan.raw_scan import plan_raw, scan_raw
from ternmq_store.scan.scan_spec import ScanSpec, ScanStep

IN_A_BATCH: Final = 6_000
TARGETS: Final[Mapping[str, float | None]] = {
    "records in memory to batches": 500_000,
    "records in memory to batches of queueOffset, tags": None,
    "records in memory to tuples": None,
    "queue by queue": 400_000,
    "queue by queue, by a tag that all have": None,
    "by file of the log": 400_000,
    "every record (raw)": 400_000,
}


def timed(run: Callable[[], int]) -> float:
    """Return rows a second of processor time."""
    begun_s = time.process_time()
    rows = run()
    return rows / (time.process_time() - begun_s)


def fill(root: Path, messages: int) -> int:
    """Make a store; return how many messages it has."""
    with ThreadPoolExecutor(3) as pool:
        store = opened(root, FlushMode.ASYNC)
        background = Background(store, pool)
        for first in range(0, messages, BATCH):
            store.append(checked(*records_of(first, BATCH)), born_host=HOST, store_host=HOST)
            store.dispatch()
            background.tick()
        while store.dispatched_offset < store.max_physical:
            store.dispatch()
        background.drain()
        store.close()
    return -(-messages // BATCH) * BATCH


def measure_kernel() -> Iterator[tuple[str, float]]:
    """Yield what records that lie back to back in memory become, and how fast."""
    records, sizes = records_of(0, IN_A_BATCH)
    lengths = sizes.astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    queue = MessageQueue(TOPIC, "b", 0)

    def batches(*columns: str) -> int:
        chosen = columns or COLUMNS
        made = [
            build_rows(records, starts, lengths, broker_name="b", columns=chosen) for _ in range(10)
        ]
        return sum(built.batch.num_rows for built in made)

    def tuples() -> int:
        rows = [
            (
                *(message.topic, message.queue.broker_name, message.queue.queue_id),
                *(message.queue_offset, message.message_id, list(message.keys), message.tags),
                *(message.body, dict(message.properties), message.born_at_ms),
                *(message.stored_at_ms, message.born_host, message.reconsume_times),
                message.sys_flag,
            )
            for message in decode_records(records, sizes, queue)
        ]
        return len(rows)

    yield "records in memory to batches", timed(batches)
    yield (
        "records in memory to batches of queueOffset, tags",
        timed(lambda: batches("queueOffset", "tags")),
    )
    yield "records in memory to tuples", timed(tuples)


def measure_directory(root: Path, count: int) -> Iterator[tuple[str, float]]:
    """Yield how fast a directory is read, in each way."""
    directory, wanted = StoreDirectory(RealFileSystem(), root), ScanSpec()
    tagged = ScanSpec(subscription=parse_subscription(TOPIC, "TagA"))

    def rows(steps: Iterable[ScanStep]) -> int:
        return sum(step.batch.num_rows for step in steps if step.batch is not None)

    def queues(which: ScanSpec) -> int:
        found = directory.queues()
        assert len(found) == QUEUES
        return sum(rows(scan_queue(directory, each, which)) for each in found)

    def parts() -> int:
        planned = plan_directory(directory)
        return sum(rows(scan_partition(directory, part, wanted)) for part in planned)

    def raw() -> int:
        planned = plan_raw(directory)
        return sum(rows(scan_raw(directory, part, wanted)) for part in planned)

    assert queues(wanted) == parts() == raw() == count
    yield "queue by queue", timed(lambda: queues(wanted))
    yield "queue by queue, by a tag that all have", timed(lambda: queues(tagged))
    yield "by file of the log", timed(parts)
    yield "every record (raw)", timed(raw)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure what a scan costs by itself.")
    parser.add_argument("--rounds", type=int, default=3, help="print medians of so many")
    parser.add_argument("--messages", type=int, default=200_000, help="of the store")
    parser.add_argument("--data", type=Path, default=Path(), help="a folder on the disk to use")
    chosen = parser.parse_args()
    values: dict[str, list[float]] = defaultdict(list)
    print(*machine.describe(chosen.data), sep="\n", flush=True)
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=chosen.data) as folder:
        count = fill(Path(folder), chosen.messages)
        for round_number in range(chosen.rounds):
            print(f"round {round_number + 1} of {chosen.rounds} …", file=sys.stderr, flush=True)
            for name, value in (*measure_kernel(), *measure_directory(Path(folder), count)):
                values[name].append(value)
    table = [["1 KiB messages, rows/s on one core", "median", "target"]]
    for name, target in TARGETS.items():
        median = statistics.median(values[name])
        sign = "" if target is None else f"≥ {number(target)}"
        is_missed = target is not None and median < target
        table.append([name, number(median) + (" ✗" if is_missed else ""), sign])
    print(f"rounds   {chosen.rounds}, medians\n\n{markdown(table)}")


if __name__ == "__main__":
    main()
