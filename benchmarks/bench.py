"""Measure real services and clients, each in a process of its own, and print a table: `make bench`.

    python benchmarks/bench.py                        # everything, medians of three rounds
    python benchmarks/bench.py --quick                # once, with a tenth of the messages
    python benchmarks/bench.py --only push --only pull
    python benchmarks/bench.py --prototype            # the bare path beside it
    python benchmarks/bench.py --compare HEAD~5       # ratios to another commit, in paired rounds

Each round starts new services with nothing stored for every column (asynchronous and synchronous
flush, without the index and with everything on) and tears them down.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from benchmarks import compare, machine
from benchmarks.figures import BACKLOG, COLUMNS, CONSUMING, MEASUREMENTS, SENDING, Column, table
from benchmarks.patterns import scaled
from benchmarks.services import TERNMQ, bare, dev, load

IDLE_S: Final = 5.0
HELP_RUNS: Final = 5
QUICK_SCALE: Final = 0.1

Values = dict[str, list[float]]
"""Results of the rounds, by figure."""


def measure_dev(
    data: Path, column: Column, only: Collection[str], scale: float
) -> dict[str, float]:
    """Return what one `ternmq dev` and its clients do."""
    found: dict[str, float] = {}
    with dev(data, column.mode, column.settings) as service:
        if "idle" in only:
            found["idle.ready"] = service.ready_ms
            before_s = machine.cpu_s(service.process_id)
            time.sleep(IDLE_S)
            spent_s = machine.cpu_s(service.process_id) - before_s
            found["idle.cpu"] = spent_s / IDLE_S * 100
            found["idle.resident"] = machine.resident_mib(service.process_id)
        nameserver = ("--nameserver", service.nameserver)
        sending = [name for name in SENDING if name in only]
        if sending:
            wanted = [f"--only={name}" for name in sending]
            found |= load("load_producer.py", *nameserver, *wanted, f"--scale={scale}")
        consuming = [name for name in CONSUMING if name in only]
        if consuming:
            load("load_producer.py", *nameserver, "--only=fill", f"--scale={scale}")
            for name in consuming:
                count = str(scaled(BACKLOG, scale))
                found |= load("load_consumer.py", name, *nameserver, "--count", count)
    return found


def measure_bare(data: Path, mode: str, only: Collection[str], scale: float) -> dict[str, float]:
    """Return what the same kind of path does with nothing around it."""
    with bare(data, mode) as port:
        wanted = [f"--only={name}" for name in (*SENDING, "pull") if name in only]
        return dict(load("bare_path.py", "load", f"--port={port}", f"--scale={scale}", *wanted))


def measure_help() -> float:
    """Return how long `ternmq --help` takes, in milliseconds."""
    taken_ms: list[float] = []
    for _ in range(HELP_RUNS):
        begun_s = time.perf_counter()
        subprocess.run([TERNMQ, "--help"], stdout=subprocess.DEVNULL, check=True)
        taken_ms.append((time.perf_counter() - begun_s) * 1e3)
    return statistics.median(taken_ms)


def run(
    data: Path, only: Collection[str], *, rounds: int, scale: float, prototype: bool
) -> Mapping[str, Values]:
    """Return every value by heading and figure; what is compared runs in the same minute."""
    columns: dict[str, Values] = {}
    for column in COLUMNS:
        columns[column.heading] = defaultdict(list)
        if prototype:
            columns[f"bare, {column.mode}"] = defaultdict(list)
    for number in range(rounds):
        # `ternmq --help` alone needs no service.
        for column in COLUMNS if set(only) - {"help"} else ():
            heading = column.heading
            print(f"round {number + 1} of {rounds}, {heading} …", file=sys.stderr, flush=True)
            _add(columns[heading], measure_dev(data, column, only, scale))
            if prototype and not column.settings:
                _add(columns[f"bare, {column.mode}"], measure_bare(data, column.mode, only, scale))
        if "help" in only:
            columns[COLUMNS[0].heading]["help"].append(measure_help())
    return columns


def _add(values: Values, found: Mapping[str, float]) -> None:
    for name, value in found.items():
        values[name].append(value)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure TernMQ on this machine.")
    parser.add_argument("--rounds", type=int, help="print medians of so many; default 3")
    parser.add_argument("--quick", action="store_true", help="one round, a tenth of the messages")
    parser.add_argument(
        "--only",
        action="append",
        choices=MEASUREMENTS,
        metavar="NAME",
        help=", ".join(MEASUREMENTS),
    )
    parser.add_argument("--prototype", action="store_true", help="the bare path beside it")
    parser.add_argument("--data", type=Path, default=Path(), help="a folder on the disk to use")
    result = parser.add_mutually_exclusive_group()
    result.add_argument("--json", type=Path, help="write every round's values to this file")
    result.add_argument("--compare", metavar="COMMIT", help="print ratios to that commit's figures")
    chosen = parser.parse_args()
    rounds = chosen.rounds or (1 if chosen.quick else 3)
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=chosen.data) as folder:
        print(*machine.describe(Path(folder)), sep="\n", flush=True)
        if chosen.compare:
            words = [f"--data={Path(folder).resolve()}"]
            words += [f"--only={name}" for name in chosen.only or ()]
            words += ["--quick"] * chosen.quick + ["--prototype"] * chosen.prototype
            commit = compare.resolve(chosen.compare)
            print(f"against  {commit}, rounds {rounds} of each", flush=True)
            print(f"\n{compare.table(commit, compare.run(commit, rounds, words))}")
            return
        columns = run(
            Path(folder),
            chosen.only or MEASUREMENTS,
            rounds=rounds,
            scale=QUICK_SCALE if chosen.quick else 1.0,
            prototype=chosen.prototype,
        )
    if chosen.json:
        chosen.json.write_text(json.dumps(columns, indent=1))
    medians = {
        heading: {name: statistics.median(values) for name, values in figures.items()}
        for heading, figures in columns.items()
    }
    print(f"rounds   {rounds}, medians\n\n{table(medians)}")


if __name__ == "__main__":
    main()
