"""Measure the cost of OpenTelemetry in a producer: the same loads with and without, in one run.

    python benchmarks/telemetry.py --rounds 5

All sides run `ternmq dev` and one client process on this machine. The order of the sides changes
with each round.
"""

import argparse
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks import machine
from benchmarks.figures import markdown
from benchmarks.services import dev, load

SENDING: Final = ("alone", "awaiting-64", "pipelined", "send-many")
TARGETS: Final = {"metrics": 0.98, "traces": 0.95}
"""Least part of the speed that is left by side."""

TIMES: Final = ("alone.p50", "alone.p99")
"""Figures of which less is better."""


def measure(folder: Path, side: str, scale: float) -> Mapping[str, float]:
    """Return the figures of one cluster and its producer."""
    own = () if side == "plain" else ("--telemetry", side)
    wanted = [f"--only={name}" for name in SENDING]
    with dev(folder, "async", ()) as service:
        nameserver = ("--nameserver", service.nameserver)
        return load("load_producer.py", *nameserver, *wanted, f"--scale={scale}", *own)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="the cost of OpenTelemetry in a producer")
    parser.add_argument("--rounds", type=int, default=5, help="print medians of so many rounds")
    parser.add_argument("--scale", type=float, default=0.5, help="factor on the numbers")
    parser.add_argument("--data", type=Path, default=Path(), help="a folder on the disk to use")
    parser.add_argument("--side", choices=[*TARGETS], action="append", help="sides, beside plain")
    options = parser.parse_args()
    sides = ["plain", *(options.side or TARGETS)]
    rounds: dict[str, list[Mapping[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=options.data) as name:
        folder = Path(name).absolute()
        print(*machine.describe(folder), sep="\n", flush=True)
        for number in range(options.rounds):
            for side in sides if number % 2 else reversed(sides):
                rounds[side].append(measure(folder, side, options.scale))
    print(f"rounds   {options.rounds}, medians\n")
    print(markdown(list(rows(rounds))))


def rows(rounds: Mapping[str, Sequence[Mapping[str, float]]]) -> Sequence[Sequence[str]]:
    """Return the rows of the table; a part of the speed below its target is marked with "✗"."""
    sides = [side for side in TARGETS if side in rounds]
    heads = [text for side in sides for text in (side, "part of the speed")]
    table = [["1 KiB messages, asynchronous flush", "plain", *heads]]
    for figure in rounds["plain"][0]:
        found = {side: [each[figure] for each in measured] for side, measured in rounds.items()}
        row = [figure, f"{statistics.median(found['plain']):,.2f}"]
        for side in sides:
            pairs = list(zip(found["plain"], found[side], strict=True))
            parts = [one / two if figure in TIMES else two / one for one, two in pairs]
            part = statistics.median(parts)
            missed = " ✗" if part < TARGETS[side] else ""
            row += [f"{statistics.median(found[side]):,.2f}", f"{part:.3f}{missed}"]
        table.append(row)
    return table


if __name__ == "__main__":
    main()
