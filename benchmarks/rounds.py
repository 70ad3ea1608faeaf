"""Rounds of measurements in both modes of flushing, and their medians as a table."""

import argparse
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks import machine
from benchmarks.figures import MODES, Figure, markdown, number

Measure = Callable[[Path, str], Mapping[str, float]]
"""Measures once, given a folder on the disk to use and the mode of flushing."""


def options(description: str, names: Iterable[str]) -> argparse.ArgumentParser:
    """Return what the command line may say of rounds."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=3, help="print medians of so many")
    parser.add_argument("--only", action="append", choices=tuple(names), metavar="NAME")
    parser.add_argument("--mode", action="append", choices=MODES, help="flush; default: both")
    parser.add_argument("--data", type=Path, default=Path(), help="a folder on the disk to use")
    return parser


def medians(
    chosen: argparse.Namespace, measurements: Mapping[str, Measure]
) -> Mapping[str, Mapping[str, float]]:
    """Measure as `chosen` says, print the machine, and return medians by mode and figure."""
    modes = chosen.mode or MODES
    found: dict[str, dict[str, list[float]]] = {mode: defaultdict(list) for mode in modes}
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=chosen.data) as folder:
        print(*machine.describe(Path(folder)), sep="\n", flush=True)
        for round_number in range(chosen.rounds):
            for mode in modes:
                for name in chosen.only or measurements:
                    print(f"round {round_number + 1}, {mode}, {name} …", file=sys.stderr)
                    values = measurements[name](Path(folder), mode)
                    for figure, value in values.items():
                        print(f"  {figure} {value:,.2f}", file=sys.stderr)
                        found[mode][figure].append(value)
    print(f"rounds   {chosen.rounds}, medians\n")
    return {
        mode: {name: statistics.median(values) for name, values in figures.items()}
        for mode, figures in found.items()
    }


def table(
    title: str,
    figures: Sequence[Figure],
    columns: Mapping[str, Mapping[str, float]],
    *,
    shown: Callable[[Figure, float], str] = lambda _, value: number(value),
) -> str:
    """Return medians by mode and figure as a table; what missed its target is marked."""
    rows = [[title]]
    for mode in columns:
        rows[0] += [f"{mode} flush", "target"]
    for figure in figures:
        row = [f"{figure.text}, {figure.unit}"]
        for mode, values in columns.items():
            value, target = values.get(figure.name), figure.targets.get(mode)
            if value is None:
                row += ["", ""]
                continue
            is_good = target is None or (value <= target if figure.at_most else value >= target)
            sign = "≤" if figure.at_most else "≥"
            row += [
                f"{shown(figure, value)}{'' if is_good else ' ✗'}",
                "" if target is None else f"{sign} {target:,.0f}",
            ]
        if any(row[1:]):
            rows.append(row)
    return markdown(rows)
