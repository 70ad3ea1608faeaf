"""Paired rounds of two commits on one machine, and the ratios of their figures.

`bench.py --compare COMMIT` measures this checkout and a worktree of COMMIT in turns, so that what
slows the machine down for a while slows both. Each side runs its own benchmarks on its own code.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.figures import FIGURES, Figure, markdown, number

ROOT: Final = Path(__file__).resolve().parents[1]

Round = Mapping[tuple[str, str], float]
"""Values of one round, by heading of the column and name of the figure."""

Pair = tuple[Round, Round]
"""A round of the compared commit and one of the checkout."""

LOCATE: Final = """
import importlib.util, sys
for name in sys.argv[1:]:
    print(importlib.util.find_spec(name).origin)
"""


def packages(root: Path) -> list[Path]:
    """Return the packages that the wheel of the checkout `root` has."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    names: list[str] = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return [root / name for name in names]


def environment(root: Path) -> dict[str, str]:
    """Return an environment in which Python takes the code of `root` before any installed one."""
    folders = dict.fromkeys([root, *(package.parent for package in packages(root))])
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))}


def foreign_code(root: Path, env: Mapping[str, str]) -> list[str]:
    """Return the files of packages that `env` would take from elsewhere than `root`."""
    names = ["benchmarks.bench", *(package.name for package in packages(root))]
    # -P, because commands such as `ternmq` do not see the working directory either.
    command = [sys.executable, "-P", "-c", LOCATE, *names]
    done = subprocess.run(command, env=env, cwd=root, check=True, stdout=subprocess.PIPE, text=True)
    return [file for file in done.stdout.splitlines() if not Path(file).is_relative_to(root)]


def resolve(commit: str) -> str:
    """Return the short hash of `commit`.

    Raises:
        SystemExit: There is no such commit.
    """
    command = ["git", "rev-parse", "--quiet", "--verify", "--short=12", f"{commit}^{{commit}}"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{commit} is no commit of this repository")
    return done.stdout.strip()


@contextlib.contextmanager
def worktree(commit: str) -> Generator[Path]:
    """Check `commit` out into a folder that goes at the end."""
    with tempfile.TemporaryDirectory(prefix="bench-worktree-") as scratch:
        folder = Path(scratch).resolve() / "checkout"
        git = ("git", "-C", ROOT, "worktree")
        subprocess.run([*git, "add", "--quiet", "--detach", folder, commit], check=True)
        try:
            yield folder
        finally:
            subprocess.run([*git, "remove", "--force", folder], check=True)


def measure(root: Path, words: Sequence[str]) -> Round:
    """Return one round of the benchmarks of `root`; `words` are more of its arguments.

    Raises:
        SystemExit: The benchmarks failed.
    """
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        bench = [sys.executable, str(root / "benchmarks" / "bench.py"), "--rounds=1"]
        command = [*bench, f"--json={file.name}", *words]
        env = environment(root)
        if subprocess.run(command, cwd=root, env=env, stdout=subprocess.DEVNULL).returncode:
            raise SystemExit(f"the benchmarks in {root} failed")
        columns: dict[str, dict[str, list[float]]] = json.loads(Path(file.name).read_bytes())
    return {
        (heading, name): value
        for heading, figures in columns.items()
        for name, [value] in figures.items()
    }


def run(commit: str, rounds: int, words: Sequence[str]) -> list[Pair]:
    """Return so many pairs of rounds of `commit` and of this checkout.

    Raises:
        SystemExit: One side cannot be measured.
    """
    pairs: list[Pair] = []
    if subprocess.run(["git", "diff", "--quiet", commit, "--", "benchmarks"], cwd=ROOT).returncode:
        print("the benchmarks differ, and each side runs its own", flush=True)
    with worktree(commit) as other:
        for root in (other, ROOT):
            if found := foreign_code(root, environment(root)):
                raise SystemExit(f"{root} would be measured with {found[0]}")
            # Neither side pays for compiling in its first round.
            subprocess.run([sys.executable, "-m", "compileall", "-q", *packages(root)], check=True)
        for number_of_pair in range(rounds):
            print(f"pair {number_of_pair + 1} of {rounds} …", file=sys.stderr, flush=True)
            # The machine may be warmer for the second of a pair, so they take turns at that, too.
            order = (other, ROOT) if number_of_pair % 2 == 0 else (ROOT, other)
            rounds_of = {root: measure(root, words) for root in order}
            pairs.append((rounds_of[other], rounds_of[ROOT]))
    return pairs


def ratio(figure: Figure, theirs: float, ours: float) -> float:
    """Return how much better `ours` is: 2.0 = twice as many a second, or half of the time."""
    return theirs / ours if figure.at_most else ours / theirs


def table(commit: str, pairs: Sequence[Pair]) -> str:
    """Return the ratios of every figure that all rounds have, and the median of all of them."""
    rows = [["figure", "column", commit, "checkout", "ratio", "lowest", "highest"]]
    medians: list[float] = []
    for figure in FIGURES:
        for heading, name in pairs[0][0]:
            if name != figure.name:
                continue
            values = [[side.get((heading, name), 0.0) for side in pair] for pair in pairs]
            # A processor that did nothing measurable has no ratio.
            if not all(value > 0 for pair in values for value in pair):
                continue
            found = [ratio(figure, *pair) for pair in values]
            medians.append(statistics.median(found))
            rows.append(
                [
                    f"{figure.text}, {figure.unit}",
                    heading,
                    *(number(statistics.median(side)) for side in zip(*values, strict=True)),
                    *(f"{value:.3f}" for value in (medians[-1], min(found), max(found))),
                ]
            )
    if not medians:
        raise SystemExit(f"{commit} and the checkout have no figure in common")
    return (
        f"{markdown(rows)}\n\nA ratio above 1: the checkout is better. Each is the median of "
        f"{len(pairs)} pairs.\nMedian of all ratios: {statistics.median(medians):.3f}"
    )
