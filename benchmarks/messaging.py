"""Measure what applications do with a cluster of two brokers, and print a table.

    python benchmarks/messaging.py                       # everything, medians of three rounds
    python benchmarks/messaging.py --only end-to-end --rounds 1

NameServer, brokers and clients are processes of their own. Each round has new brokers for each mode
of flushing.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from benchmarks import rounds
from benchmarks.figures import Figure, either
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


def in_a_cluster(measure: Measure) -> rounds.Measure:
    """Return what measures with brokers of its own."""

    def measured(folder: Path, mode: str) -> Mapping[str, float]:
        with cluster(folder, mode) as nameserver:
            return measure(nameserver)

    return measured


def main() -> None:
    """Measure and print."""
    chosen = rounds.options("Measure a cluster of two brokers.", MEASUREMENTS).parse_args()
    measures = {name: in_a_cluster(measure) for name, measure in MEASUREMENTS.items()}
    columns = rounds.medians(chosen, measures)
    print(rounds.table("1 KiB messages, two brokers", FIGURES, columns))


if __name__ == "__main__":
    main()
