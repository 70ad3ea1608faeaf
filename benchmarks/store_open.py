"""Time to open a store. Prints a table.

    python benchmarks/store_open.py [--clean-gib 10] [--crash-mib 100] [--rounds 3] [--data DIR]

Once after a clean stop, with so much in it and the default sizes of files. Once after a process was
ended at once with so much appended, flushed and not dispatched since the last checkpoint. Records
as in `store_alone.py`. What was just written is mostly in the page cache; a start after a reboot
reads a few pages of each file besides.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from benchmarks import machine
from benchmarks.figures import markdown
from benchmarks.store_alone import BATCH, HOST, Background, checked, records_of
from ternmq_model.errors import BrokerBusy
from ternmq_runtime.clock import SystemClock, rest
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.message_store import MessageStore

CLEAN_S: Final = 2.0
CRASHED_S: Final = 5.0


def opened(root: Path) -> MessageStore:
    """Open a store with everything on."""
    clock = SystemClock()
    return MessageStore.open(root, StoreConfig(), FlushMode.ASYNC, RealFileSystem(rest), clock)


def fill(store: MessageStore, length: int, *, is_dispatched: bool) -> None:
    """Append `length` bytes and flush them."""
    records, sizes = records_of(0, BATCH)
    end = store.max_physical + length
    with ThreadPoolExecutor(3) as pool:
        background = Background(store, pool)
        while store.max_physical < end:
            try:
                store.append(checked(records, sizes), born_host=HOST, store_host=HOST)
            except BrokerBusy:
                background.drain()  # the log's next file is being made
            if is_dispatched:
                store.dispatch()
            background.tick()
        background.drain()


def fill_and_die(root: Path, length: int) -> None:
    """Fill a store in another process that ends without stopping it."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        assert status == 0
        return
    try:
        fill(opened(root), length, is_dispatched=False)
        os._exit(0)
    finally:
        os._exit(1)


def time_of_opening(root: Path) -> tuple[float, MessageStore]:
    """Return how long it takes, and the store."""
    begun_s = time.perf_counter()
    store = opened(root)
    return time.perf_counter() - begun_s, store


def measure_clean(root: Path, length: int, rounds: int) -> list[float]:
    """Return how long it takes to open a store of `length` bytes that was stopped cleanly."""
    store = opened(root)
    fill(store, length, is_dispatched=True)
    store.close()
    found: list[float] = []
    for _ in range(rounds):
        taken_s, store = time_of_opening(root)
        assert store.report.was_clean
        assert not store.report.records_scanned
        store.close()
        found.append(taken_s)
    return found


def measure_crashed(root: Path, length: int, rounds: int) -> list[float]:
    """Return how long it takes to recover `length` bytes that no queue knows of."""
    found: list[float] = []
    for number_of_round in range(rounds):
        folder = root / str(number_of_round)
        fill_and_die(folder, length)
        taken_s, store = time_of_opening(folder)
        assert not store.report.was_clean
        assert store.report.end - store.report.scanned_from >= length
        store.close()
        shutil.rmtree(folder)
        found.append(taken_s)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clean-gib", type=float, default=10.0)
    parser.add_argument("--crash-mib", type=float, default=100.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, default=None, help="where; a folder of its own")
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="ternmq-open-", dir=arguments.data))
    try:
        clean = measure_clean(
            root / "clean", int(arguments.clean_gib * (1 << 30)), arguments.rounds
        )
        shutil.rmtree(root / "clean")
        crashed = measure_crashed(
            root / "crashed", int(arguments.crash_mib * (1 << 20)), arguments.rounds
        )
    finally:
        shutil.rmtree(root)
    rows = [["opening a store", "median, s", "target, s"]]
    for name, found, target_s in (
        (f"after a clean stop, {arguments.clean_gib:g} GiB", clean, CLEAN_S),
        (f"after a crash, {arguments.crash_mib:g} MiB not dispatched", crashed, CRASHED_S),
    ):
        middle = statistics.median(found)
        rows.append([name, f"{middle:.2f}" + " ✗" * (middle > target_s), f"≤ {target_s:g}"])
    print(*machine.describe(root.parent), sep="\n")
    print(f"rounds   {arguments.rounds}, medians\n\n{markdown(rows)}")


if __name__ == "__main__":
    main()
