"""Cost of one record in the store: check, append, dispatch, read. Prints times, machine and commit.

    .venv/bin/python benchmarks/store_append.py [--folder DIR] [--no-checksum]

Flushing is left out: it runs in another thread, and `bench.py` measures it end to end.
"""

import argparse
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ternmq_model.index_keys import find_keys
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.record.batch import RecordBatch, check_records
from ternmq_model.record.checksum import RESERVED_CHECKSUM
from ternmq_model.record.format import encode_record
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.index.index_files import IndexFiles
from ternmq_store.message_store import MessageStore

HOST = bytes((127, 0, 0, 1)) + (10_911).to_bytes(4, "big")
ROUNDS = 5


class SystemClock:
    """The system's clocks."""

    def monotonic_ms(self) -> int:
        """Return the time since some moment."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Return the time."""
        return time.time_ns() // 1_000_000


def batch_of(
    count: int,
    body_bytes: int,
    *,
    queues: int,
    is_checksummed: bool,
    pairs: Sequence[bytes] | None = None,
) -> RecordBatch:
    """Return a checked batch over `queues` queues; each record has a tag and a unique key.

    Or what `pairs` say: the properties of each.
    """
    if pairs is None:
        pairs = [b"UNIQ_KEY\x01%032x\x02TAGS\x01TagA\x02" % row for row in range(count)]
    body = os.urandom(body_bytes)
    suffix = RESERVED_CHECKSUM if is_checksummed else b""
    records = [
        encode_record(
            topic=b"benchmark",
            queue_id=row % queues,
            body=body,
            properties=pairs[row] + suffix,
            born_at_ms=1_700_000_000_000,
            born_host=HOST,
            store_host=HOST,
        )
        for row in range(count)
    ]
    sizes = np.fromiter(map(len, records), dtype="<i4", count=count)
    batch = check_records(
        b"".join(records),
        sizes,
        born_host_bytes=8,
        store_host_bytes=8,
        is_checksummed=is_checksummed,
    ).batch
    assert batch is not None
    return batch


def best_us(step: Callable[[], object], *, repeats: int, records: int) -> float:
    """Return the microseconds a record costs in the best of some rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(repeats):
            step()
        best = min(best, time.perf_counter() - begin)
    return best / repeats / records * 1e6


def measure(folder: Path, *, is_checksummed: bool) -> Sequence[tuple[str, float, float]]:
    """Return what each step costs a record, and what it should cost at most."""
    found: list[tuple[str, float, float]] = []
    shapes = (
        ("1 KiB x 230, 8 queues", 230, 1024, 8, 30, 2.0, 2.0, 0.1),
        ("1 KiB x 230, 1 queue", 230, 1024, 1, 30, 2.0, 2.0, 0.1),
        ("128 B x 4,000, 8 queues", 4000, 128, 8, 6, 1.5, 1.0, 0.1),
        ("128 B x 4,000, 1 queue", 4000, 128, 1, 6, 1.5, 1.0, 0.1),
        ("128 B x 1", 1, 128, 1, 2000, 120.0, 40.0, 25.0),
    )
    for name, count, body_bytes, queues, repeats, check_us, append_us, dispatch_us in shapes:
        config = StoreConfig(commit_log_file_bytes=256 << 20, record_checksum=is_checksummed)
        root = Path(tempfile.mkdtemp(dir=folder))
        store = MessageStore.open(root, config, FlushMode.ASYNC, RealFileSystem(), SystemClock())
        batch = batch_of(count, body_bytes, queues=queues, is_checksummed=is_checksummed)
        store.append(batch, born_host=HOST, store_host=HOST)
        task = store.file_due()
        if task is not None:
            task.run()
            store.file_ready(task)

        def append(store: MessageStore = store, batch: RecordBatch = batch) -> None:
            store.append(batch, born_host=HOST, store_host=HOST)

        def check(batch: RecordBatch = batch) -> None:
            sizes = batch.sizes.astype("<i4")
            check_records(
                batch.data,
                sizes,
                born_host_bytes=8,
                store_host_bytes=8,
                is_checksummed=is_checksummed,
            )

        def dispatch(store: MessageStore = store) -> None:
            store.dispatch(messages_max=1)

        store.dispatch()
        found.append((f"check {name}", best_us(check, repeats=repeats, records=count), check_us))
        found.append((f"append {name}", best_us(append, repeats=repeats, records=count), append_us))
        steps = ROUNDS * repeats
        best = best_us(dispatch, repeats=steps // ROUNDS, records=count)
        found.append((f"dispatch {name}", best, dispatch_us))
        if body_bytes == 1024:
            _, end = store.queue_range("benchmark", 0)
            wanted = min(1000, end)

            def read(store: MessageStore = store, wanted: int = wanted) -> None:
                result = store.reads.read(
                    "benchmark", 0, QueueOffset(0), messages_max=wanted, bytes_max=8 << 20
                )
                assert len(result.record_sizes) == wanted

            read_name = f"read {wanted} of {name}"
            found.append((read_name, best_us(read, repeats=20, records=wanted), 0.6))
        store.close()
    return found


def measure_index(folder: Path, *, batches: int = 60) -> Sequence[tuple[str, float, float]]:
    """Return what finding a record's keys costs, and hashing and chaining them: three a record."""
    index = IndexFiles.open(
        RealFileSystem(), folder, slots=5_000_000, entries=20_000_000, clock=SystemClock()
    )
    count, find_s, put_s = 256, float("inf"), float("inf")
    times = np.full(count, 1_700_000_000_000)
    for number in range(batches):
        pairs = [
            b"UNIQ_KEY\x01%b\x02KEYS\x01order-%d customer-%d\x02TAGS\x01TagA\x02"
            % (os.urandom(16).hex().upper().encode(), number * count + row, row % 97)
            for row in range(count)
        ]
        batch = batch_of(count, 1024, queues=8, is_checksummed=True, pairs=pairs)
        offset = number * len(batch.data)
        begin = time.perf_counter()
        keys = find_keys(batch)
        middle = time.perf_counter()
        index.reserve(len(keys.rows))
        index.put(keys, batch.starts + offset, times, PhysicalOffset(offset + len(batch.data)))
        end = time.perf_counter()
        find_s, put_s = min(find_s, middle - begin), min(put_s, end - middle)
    index.close()
    return (
        ("find and hash 3 keys, 1 KiB x 256", find_s / count * 1e6, 1.2),
        ("chain 3 keys into the index, 1 KiB x 256", put_s / count * 1e6, 1.0),
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the stores are made")
    parser.add_argument("--no-checksum", action="store_true", help="store.record_checksum=false")
    arguments = parser.parse_args()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    print(
        f"{platform.machine()} {os.cpu_count()} cores, Python {platform.python_version()}, ", end=""
    )
    print(f"numpy {np.__version__}, commit {commit or 'unknown'}")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for name, cost_us, target_us in measure(
            Path(folder), is_checksummed=not arguments.no_checksum
        ):
            print(f"{name:44} {cost_us:8.3f} us a record (at most {target_us:g})")
        for name, cost_us, target_us in measure_index(Path(folder) / "keys"):
            print(f"{name:44} {cost_us:8.3f} us a record (at most {target_us:g})")


if __name__ == "__main__":
    main()
