"""Measure what applications do with a cluster of two brokers, and print a table.

    python benchmarks/messaging.py                       # everything, medians of three rounds
    python benchmarks/messaging.py --only end-to-end --rounds 1

NameServer, brokers and clients are processes of their own. Each round has new brokers for each mode
of flushing.
"""

import argparse
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from benchmarks import machine
from benchmarks.figures import MODES, Figure, either, markdown, number
from benchmarks.patterns import told
from benchmarks.services import client, cluster, load

LOAD: Final = "load_messaging.py"
FILTERING: Final = "load_filtering.py"

FIGURES: Final = (
    Figure("consume-batch", "push, batch listener", "msg/s", either(250_000)),
    Figure("consume-one", "push, one message a call, async", "msg/s", either(80_000)),
    Figure("transactions", "transactions, 64 awaiting senders", "1/s", {"async": 3_000.0}),
    Figure("end-to-end.p50", "1,000 msg/s end to end, p50", "ms", either(2, 3), at_most=True),
    Figure("end-to-end.p99", "1,000 msg/s end to end, p99", "ms", either(15), at_most=True),
    Figure("sql.evaluated", "SQL92 filter over 5 properties, evaluated", "msg/s", either(100_000)),
    Figure("beside.p50", "send beside a SQL pull that matches nothing, p50", "ms", {}),
    Figure(
        "beside.p99",
        "send beside a SQL pull that matches nothing, p99",
        "ms",
        either(20),
        at_most=True,
    ),
)

TRANSACTIONS: Final = "transactions"

Measure = Callable[[str], Mapping[str, float]]


def consume(kind: str) -> Measure:
    """Return what measures consumption of a backlog."""

    def measure(nameserver: str) -> Mapping[str, float]:
        load(LOAD, "fill", "--nameserver", nameserver)
        return load(LOAD, kind, "--nameserver", nameserver)

    return measure


def end_to_end(nameserver: str) -> Mapping[str, float]:
    """Measure how long messages are on their way while few are sent."""
    with client(LOAD, "receive", "--nameserver", nameserver) as receiver:
        load(LOAD, "pace", "--nameserver", nameserver)
        output, _ = receiver.communicate(timeout=60)
    return told(output.splitlines())


def transactions(nameserver: str) -> Mapping[str, float]:
    """Measure how many transactions one producer commits."""
    return load(LOAD, TRANSACTIONS, "--nameserver", nameserver)


def sql(nameserver: str) -> Mapping[str, float]:
    """Measure how many messages a condition is asked about."""
    load(FILTERING, "fill", "--nameserver", nameserver)
    return load(FILTERING, "needle", "--nameserver", nameserver)


def beside_sql(nameserver: str) -> Mapping[str, float]:
    """Measure sends while a reader looks for what is not there."""
    load(FILTERING, "fill", "--nameserver", nameserver)
    with client(FILTERING, "nothing", "--nameserver", nameserver):
        return load(FILTERING, "send", "--nameserver", nameserver)


MEASUREMENTS: Final[Mapping[str, Measure]] = {
    TRANSACTIONS: transactions,
    "consume-batch": consume("consume-batch"),
    "consume-one": consume("consume-one"),
    "end-to-end": end_to_end,
    "sql": sql,
    "beside": beside_sql,
}


def table(columns: Mapping[str, Mapping[str, float]]) -> str:
    """Return medians by mode and figure as a table; what missed its target is marked."""
    rows = [["1 KiB messages, two brokers"]]
    for mode in columns:
        rows[0] += [f"{mode} flush", "target"]
    for figure in FIGURES:
        row = [f"{figure.text}, {figure.unit}"]
        for mode, values in columns.items():
            value, target = values.get(figure.name), figure.targets.get(mode)
            if value is None:
                row += ["", ""]
                continue
            is_good = target is None or (value <= target if figure.at_most else value >= target)
            sign = "≤" if figure.at_most else "≥"
            row += [
                f"{number(value)}{'' if is_good else ' ✗'}",
                "" if target is None else f"{sign} {target:,.0f}",
            ]
        if any(row[1:]):
            rows.append(row)
    return markdown(rows)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure a cluster of two brokers.")
    parser.add_argument("--rounds", type=int, default=3, help="print medians of so many")
    parser.add_argument("--only", action="append", choices=MEASUREMENTS, metavar="NAME")
    parser.add_argument("--mode", action="append", choices=MODES, help="flush; default: both")
    parser.add_argument("--data", type=Path, default=Path(), help="a folder on the disk to use")
    chosen = parser.parse_args()
    modes = chosen.mode or MODES
    found: dict[str, dict[str, list[float]]] = {mode: defaultdict(list) for mode in modes}
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=chosen.data) as folder:
        print(*machine.describe(Path(folder)), sep="\n", flush=True)
        for round_number in range(chosen.rounds):
            for mode in modes:
                for name in chosen.only or MEASUREMENTS:
                    print(f"round {round_number + 1}, {mode}, {name} …", file=sys.stderr)
                    with cluster(Path(folder), mode) as nameserver:
                        for figure, value in MEASUREMENTS[name](nameserver).items():
                            found[mode][figure].append(value)
    medians = {
        mode: {name: statistics.median(values) for name, values in figures.items()}
        for mode, figures in found.items()
    }
    print(f"rounds   {chosen.rounds}, medians\n\n{table(medians)}")


if __name__ == "__main__":
    main()
