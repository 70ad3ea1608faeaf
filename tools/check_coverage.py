"""Hold the coverage of each role to its floor, after a run of pytest with `--cov`.

The floors are what unit, property and simulation tests reached, less one point. What runs only in
processes of its own (console, Spark's workers) is covered by integration and Spark tests, which are
not measured.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

from tools.project import PACKAGES, ROOT, relative

FLOORS: Final[Mapping[str, float]] = {
    "model": 98.3,
    "runtime": 97.6,
    "remoting": 79.2,
    "security": 97.0,
    "store": 96.4,
    "nameserver": 99.0,
    "broker": 97.2,
    "client": 97.5,
    "producer": 96.6,
    "consumer": 97.6,
    "pipeline": 90.7,
    "console": 64.0,
    "testing": 95.7,
    "ternmq": 95.9,
}
"""Percent of statements, by role."""


def reached(files: Mapping[str, Any]) -> dict[str, float]:
    """Return the percentage of each role from the files of a JSON report of coverage."""
    found: dict[str, float] = {}
    for role, package in PACKAGES.items():
        folder = relative(package) + "/"
        sums = [each["summary"] for file, each in files.items() if file.startswith(folder)]
        every = sum(each["num_statements"] for each in sums)
        covered = sum(each["covered_lines"] for each in sums)
        found[role] = 100 * covered / every if every else 0.0
    return found


def main() -> int:
    """Print each role's coverage, and fail where it is below its floor."""
    command = [sys.executable, "-m", "coverage", "json", "--quiet", "-o", "-"]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    is_low = False
    for role, percent in reached(json.loads(told)["files"]).items():
        floor = FLOORS.get(role, 0.0)
        is_low |= percent < floor
        verdict = f"BELOW {floor:.1f}" if percent < floor else f"at least {floor:.1f}"
        print(f"{role:12} {percent:5.1f} %  {verdict}")
    return 1 if is_low else 0


if __name__ == "__main__":
    sys.exit(main())
