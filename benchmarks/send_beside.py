"""Latency of other clients' sends while Spark's tasks use the same broker.

    python benchmarks/send_beside.py                  # medians of three rounds, about three minutes
    python benchmarks/send_beside.py --rounds 1

One client sends a thousand messages of 1 KiB a second. Beside it another one scans a backlog of
300,000 messages, all columns, again and again; or stages 200,000 rows, looks at them and commits
them, again and again.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks import rounds
from benchmarks.figures import Figure
from benchmarks.services import client, cluster, load

FILTERING: Final = "load_filtering.py"
PIPELINE: Final = "load_pipeline.py"

TEXTS: Final = {
    "alone": "send, nothing beside it",
    "scan": "send beside a full Scan",
    "commit": "send beside staged batches",
}
LIMITS_MS: Final = {"scan": 20.0}

FIGURES: Final = tuple(
    Figure(
        f"{name}.{part}",
        f"{text}, {part}",
        "ms",
        {mode: LIMITS_MS[name] for mode in ("async", "sync")}
        if part == "p99" and name in LIMITS_MS
        else {},
        at_most=True,
    )
    for name, text in TEXTS.items()
    for part in ("p50", "p99")
)


def measure(name: str) -> rounds.Measure:
    """Return what measures sends beside one load."""

    def measured(folder: Path, mode: str) -> Mapping[str, float]:
        with ExitStack() as stack:
            running = cluster(folder, mode, brokers=1)
            target = ("--nameserver", stack.enter_context(running))
            load(FILTERING, "fill", *target)
            if name != "alone":
                stack.enter_context(client(PIPELINE, name, *target))
            told = load(FILTERING, "send", *target)
        return {f"{name}.{key.partition('.')[2]}": value for key, value in told.items()}

    return measured


def main() -> None:
    """Measure and print."""
    measures = {name: measure(name) for name in TEXTS}
    chosen = rounds.options("Measure sends beside Spark's tasks.", measures).parse_args()
    print(rounds.table("1 KiB messages", FIGURES, rounds.medians(chosen, measures)))


if __name__ == "__main__":
    main()
