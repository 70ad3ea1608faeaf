"""Rates of the store without a network, with everything on. Prints a table.

    python benchmarks/store_alone.py [--rounds N] [--messages N] [--data DIR]

Records of 1 KiB bodies with a tag, a unique key and two keys, made before the clock runs, over 8
queues. Checking them, as the broker does with what a client sent, is part of what is timed.
Flushes, checkpoints and files made ahead run in threads meanwhile, as in the broker.
"""

import argparse
import asyncio
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks import machine
from benchmarks.figures import markdown, number
from ternmq_model.offsets import QueueOffset
from ternmq_model.record.batch import RecordBatch, check_records
from ternmq_model.record.format import encode_record
from ternmq_runtime.clock import SystemClock, rest
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.disk.layout import consume_queue_folder
from ternmq_store.message_store import MessageStore
from ternmq_store.query.key_search import KeyQuery

HOST: Final = bytes((127, 0, 0, 1)) + (10_911).to_bytes(4, "big")
TOPIC: Final = "benchmark"
QUEUES: Final = 8
BODY_BYTES: Final = 1024
BATCH: Final = 256
SENDERS: Final = 64
FILE_BYTES: Final = 256 << 20
READ: Final = 32

TARGETS: Final[Mapping[str, tuple[float, bool]]] = {
    "append, msg/s": (150_000, False),
    "append until queues and index have them, msg/s": (100_000, False),
    "dispatch by scan, msg/s": (100_000, False),
    "read by 32, msg/s": (300_000, False),
    "synchronous flush, 64 senders, msg/s": (40_000, False),
    "synchronous flush, messages a sync": (32, False),
}


def records_of(first: int, count: int, topic: str = TOPIC) -> tuple[bytes, NDArray[np.int32]]:
    """Return `count` records back to back, and their lengths."""
    body = os.urandom(BODY_BYTES)
    records = [
        encode_record(
            topic=topic.encode(),
            queue_id=row % QUEUES,
            body=body,
            properties=(
                b"UNIQ_KEY\x01%032X\x02TAGS\x01TagA\x02KEYS\x01order-%d user-%d\x02"
                % (row, row, row % 10_007)
            )
            + b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"
            + b"__CRC32#\x010000000000\x02",
            born_at_ms=1_700_000_000_000,
            born_host=HOST,
            store_host=HOST,
        )
        for row in range(first, first + count)
    ]
    return b"".join(records), np.fromiter(map(len, records), dtype="<i4", count=count)


def checked(records: bytes, sizes: NDArray[np.int32]) -> RecordBatch:
    """Return the batch that the broker makes of them."""
    batch = check_records(
        records, sizes, born_host_bytes=8, store_host_bytes=8, is_checksummed=True
    ).batch
    assert batch is not None
    assert len(batch) == len(sizes)
    return batch


class Background:
    """Background work of a store, driven by hand. Owned by the thread that owns the store."""

    def __init__(self, store: MessageStore, pool: ThreadPoolExecutor) -> None:
        self._store = store
        self._pool = pool
        self._clock = SystemClock()
        self._running: list[tuple[Future[None], Callable[[], None]]] = []

    def tick(self) -> None:
        """Take note of what has ended, begin what is due."""
        for each in [running for running in self._running if running[0].done()]:
            self._running.remove(each)
            each[0].result()
            each[1]()
        store, now_ms = self._store, self._clock.monotonic_ms()
        flush = store.flush_due(now_ms)
        if flush is not None:
            self._begin(flush.run, lambda: store.flush_done(flush))
        checkpoint = store.checkpoint_due(now_ms)
        if checkpoint is not None:
            self._begin(checkpoint.run, lambda: store.checkpoint_done(checkpoint))
        file = store.file_due()
        if file is not None:
            self._begin(file.run, lambda: store.file_ready(file))

    def _begin(self, run: Callable[[], None], done: Callable[[], None]) -> None:
        self._running.append((self._pool.submit(run), done))

    def drain(self) -> None:
        """Wait until nothing runs any more."""
        while self._running:
            self._running[0][0].result()
            for each in [running for running in self._running if running[0].done()]:
                self._running.remove(each)
                each[1]()


def opened(root: Path, mode: FlushMode) -> MessageStore:
    """Open a store with everything on."""
    config = StoreConfig(commit_log_file_bytes=FILE_BYTES)
    return MessageStore.open(root, config, mode, RealFileSystem(rest), SystemClock())


def measure_append(root: Path, messages: int) -> Iterator[tuple[str, float]]:
    """Yield what appending, dispatching by hint, reading and dispatching by scan do."""
    batches = [records_of(first, BATCH) for first in range(0, messages, BATCH)]
    count = len(batches) * BATCH
    for is_dispatched in (False, True):
        folder = root / str(is_dispatched)
        with ThreadPoolExecutor(3) as pool:
            store = opened(folder, FlushMode.ASYNC)
            background = Background(store, pool)
            begun_s = time.perf_counter()
            for records, sizes in batches:
                store.append(checked(records, sizes), born_host=HOST, store_host=HOST)
                if is_dispatched:
                    store.dispatch()
                background.tick()
            while is_dispatched and store.dispatched_offset < store.max_physical:
                store.dispatch()
            taken_s = time.perf_counter() - begun_s
            assert not is_dispatched or is_found(store, count - 1)
            name = "append until queues and index have them" if is_dispatched else "append"
            yield f"{name}, msg/s", count / taken_s
            if is_dispatched:
                yield "read by 32, msg/s", read_all(store)
            background.drain()
            store.close()
    shutil.rmtree(consume_queue_folder(folder))
    shutil.rmtree(folder / "index", ignore_errors=True)
    begun_s = time.perf_counter()
    store = opened(folder, FlushMode.ASYNC)
    taken_s = time.perf_counter() - begun_s
    assert store.queue_range(TOPIC, 0)[1] == count // QUEUES
    assert all(is_found(store, row) for row in (0, count - 1))
    yield "dispatch by scan, msg/s", count / taken_s
    store.close()


def is_found(store: MessageStore, row: int) -> bool:
    """Tell whether the index knows a record by one of its keys."""
    query = KeyQuery(topics=(TOPIC,), key=f"order-{row}")
    return bool(store.searches.by_key(query).run())


def read_all(store: MessageStore) -> float:
    """Return messages a second of reads of 32."""
    count, begun_s = 0, time.perf_counter()
    for queue_id in range(QUEUES):
        offset, end = store.queue_range(TOPIC, queue_id)
        while offset < end:
            result = store.read(TOPIC, queue_id, QueueOffset(offset), messages_max=READ)
            assert result.next_offset > offset
            offset = result.next_offset
            count += len(result.record_sizes)
            assert result.records
    return count / (time.perf_counter() - begun_s)


class Group:
    """Senders whose records go into the log together. Owned by one loop."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._changed = asyncio.Event()
        self.syncs = 0

    async def send(self, record: bytes) -> None:
        """Return when the record is on disk."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((record, future))
        self._changed.set()
        await future

    async def work(self) -> None:
        """Append what waits, sync, tell; again and again."""
        loop, clock = asyncio.get_running_loop(), SystemClock()
        while True:
            await self._changed.wait()
            self._changed.clear()
            taken, self._waiting = self._waiting, []
            sizes = np.fromiter((len(record) for record, _ in taken), "<i4", len(taken))
            batch = checked(b"".join(record for record, _ in taken), sizes)
            appended = self._store.append(batch, born_host=HOST, store_host=HOST)
            task = self._store.flush_due(clock.monotonic_ms())
            assert task is not None
            await loop.run_in_executor(None, task.run)
            self._store.flush_done(task)
            self.syncs += len(task.files)
            assert self._store.confirm_offset >= appended.end
            self._store.dispatch()
            for _, future in taken:
                future.set_result(None)


async def measure_sync(root: Path, messages: int) -> Sequence[tuple[str, float]]:
    """Return what 64 senders do that each wait for the disk before they send again."""
    store = opened(root / "sync", FlushMode.SYNC)
    each = messages // SENDERS
    records, sizes = records_of(0, each * SENDERS)
    ends = np.cumsum(sizes).tolist()
    ready = [records[end - size : end] for end, size in zip(ends, sizes.tolist(), strict=True)]
    group = Group(store)
    worker = asyncio.create_task(group.work())

    async def sender(number: int) -> None:
        for record in ready[number::SENDERS]:
            await group.send(record)

    begun_s = time.perf_counter()
    await asyncio.gather(*map(sender, range(SENDERS)))
    taken_s = time.perf_counter() - begun_s
    worker.cancel()
    store.close()
    return (
        ("synchronous flush, 64 senders, msg/s", len(ready) / taken_s),
        ("synchronous flush, messages a sync", len(ready) / group.syncs),
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure the store alone.")
    parser.add_argument("--rounds", type=int, default=3, help="print medians of so many")
    parser.add_argument("--messages", type=int, default=200_000, help="of each measurement")
    parser.add_argument("--data", type=Path, default=Path(), help="a folder on the disk to use")
    chosen = parser.parse_args()
    values: dict[str, list[float]] = defaultdict(list)
    print(*machine.describe(chosen.data), sep="\n", flush=True)
    for round_number in range(chosen.rounds):
        print(f"round {round_number + 1} of {chosen.rounds} …", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix=".bench-", dir=chosen.data) as folder:
            for name, value in measure_append(Path(folder), chosen.messages):
                values[name].append(value)
            for name, value in asyncio.run(measure_sync(Path(folder), chosen.messages // 4)):
                values[name].append(value)
    rows = [["1 KiB messages, 8 queues, everything on", "median", "target"]]
    for name, (target, at_most) in TARGETS.items():
        median = statistics.median(values[name])
        is_missed = median > target if at_most else median < target
        sign = "≤" if at_most else "≥"
        rows.append(
            [name, number(median) + (" ✗" if is_missed else ""), f"{sign} {number(target)}"]
        )
    print(f"rounds   {chosen.rounds}, medians\n\n{markdown(rows)}")


if __name__ == "__main__":
    main()
