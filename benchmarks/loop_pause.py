"""Pauses of the event loop while the store under it is appended to, flushes and rolls files.

    python benchmarks/loop_pause.py [--seconds S] [--rate N] [--file-mib N] [--mode sync] [--pool]

A store with everything on is driven as in the broker, by its jobs on the loop and in threads, at a
steady rate of 1 KiB messages; now and then a new topic of 8 queues comes. A ticker asks to be
called each millisecond; how much later that happens is a pause. The default writes 5 GiB in a
minute: 5 rolls of files of 1 GiB.
"""

import argparse
import asyncio
import gc
import shutil
import sys
import tempfile
from array import array
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks import machine
from benchmarks.store_alone import BATCH, HOST, TOPIC, checked, records_of
from ternmq_broker.storage.confirmations import Confirmations
from ternmq_broker.storage.loop import StoreLoop
from ternmq_model.errors import BrokerBusy
from ternmq_model.record.batch import RecordBatch
from ternmq_remoting.environment import Environment
from ternmq_remoting.system_environment import system_environment
from ternmq_runtime.clock import rest
from ternmq_runtime.service import JobRunner
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.message_store import MessageStore

TICK_S: Final = 0.001
TARGET_MS: Final = 20.0
BATCHES: Final = 32
NEW_TOPICS: Final = 5
"""Each of 8 queues, appended to for the first time while the loop is watched."""


class Ticker:
    """Measures how late it is called. Owned by the loop it runs on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._due_s = self._began_s = 0.0
        self.late_ms: array[float] = array("d")
        self.where: list[tuple[float, float]] = []
        """The longest: milliseconds, and seconds since the start."""

    def start(self) -> None:
        """Begin to tick."""
        self._began_s = self._loop.time()
        self._again()

    def _again(self) -> None:
        self._due_s = self._loop.time() + TICK_S
        self._loop.call_at(self._due_s, self._tick)

    def _tick(self) -> None:
        now_s = self._loop.time()
        late_ms = (now_s - self._due_s) * 1000
        self.late_ms.append(late_ms)
        if late_ms > TARGET_MS / 2:
            self.where.append((late_ms, now_s - self._began_s))
        self._again()


async def append(
    store: MessageStore, loop: StoreLoop, batches: list[RecordBatch], *, seconds: float, rate: int
) -> int:
    """Append at `rate` for so long; return how many messages there were."""
    clock = asyncio.get_running_loop()
    began_s, count, topics = clock.time(), 0, 0
    new = [checked(*records_of(0, BATCH, f"{TOPIC}-{row}")) for row in range(NEW_TOPICS)]
    while clock.time() - began_s < seconds:
        batch = batches[count // BATCH % BATCHES]
        is_time = clock.time() - began_s > (topics + 1) * seconds / (NEW_TOPICS + 1)
        if is_time and topics < NEW_TOPICS:
            batch = new[topics]
        try:
            store.append(batch, born_host=HOST, store_host=HOST)
        except BrokerBusy:
            await loop.space_made()
            continue
        loop.appended()
        count += BATCH
        topics += batch is not batches[(count - 1) // BATCH % BATCHES]
        await asyncio.sleep(max(0.0, began_s + count / rate - clock.time()))
    return count


async def measure(
    env: Environment, root: Path, mode: FlushMode, config: StoreConfig, *, seconds: float, rate: int
) -> tuple[Ticker, int, int]:
    """Return the ticks, the messages and the files that were begun."""
    store = await env.blocking.run(
        MessageStore.open, root, config, mode, RealFileSystem(rest), env.clock
    )
    loop = StoreLoop(
        store,
        Confirmations(),
        env.clock,
        env.blocking,
        on_arrivals=lambda _: None,
    )
    batches = [checked(*records_of(first, BATCH)) for first in range(0, BATCHES * BATCH, BATCH)]
    gc.collect()
    ticker = Ticker()
    async with JobRunner(*loop.jobs()):
        ticker.start()
        count = await append(store, loop, batches, seconds=seconds, rate=rate)
    rolls = store.max_physical // config.commit_log_file_bytes
    await env.blocking.run(store.close)
    return ticker, count, rolls


async def run(arguments: argparse.Namespace, root: Path) -> None:
    """Measure once and print."""
    mode = FlushMode(arguments.mode)
    config = StoreConfig(
        commit_log_file_bytes=arguments.file_mib << 20, transient_pool_enabled=arguments.pool
    )
    async with system_environment() as env:
        ticker, count, rolls = await measure(
            env, root, mode, config, seconds=arguments.seconds, rate=arguments.rate
        )
    late = np.frombuffer(ticker.late_ms, dtype=np.float64)
    p50, p99, p999 = np.percentile(late, (50, 99, 99.9)).tolist()
    print(
        f"{mode.value} flush: {count / arguments.seconds:,.0f} msg/s for {arguments.seconds:g} s, "
        f"{rolls} rolls of {arguments.file_mib} MiB, {len(late):,} ticks"
    )
    print(
        f"pause p50 {p50:.2f} ms, p99 {p99:.2f} ms, p99.9 {p999:.2f} ms "
        f"(at most {TARGET_MS:g}), longest {late.max():.1f} ms"
    )
    for late_ms, at_s in sorted(ticker.where, reverse=True)[:8]:
        print(f"  {late_ms:6.1f} ms at {at_s:.2f} s")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=int, default=80_000, help="messages a second")
    parser.add_argument("--file-mib", type=int, default=1024)
    parser.add_argument("--mode", choices=["async", "sync"], default="async")
    parser.add_argument("--pool", action="store_true", help="store.transient_pool_enabled=true")
    parser.add_argument("--data", type=Path, help="a folder on the disk to use")
    arguments = parser.parse_args()
    data: Path | None = arguments.data
    root = Path(tempfile.mkdtemp(dir=data))
    try:
        print("\n".join(machine.describe(root)), file=sys.stderr)
        asyncio.run(run(arguments, root))
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
