"""Run the checks and tests of one target: `run_tests.py check|test|rest`.

`make check` is for before a commit. `make test` is what a newcomer runs: tests of every kind on
one Python, with a few examples and seeds that never change. `make test-all` is the rest:
containers, with the behaviours in them, networks that fail, Spark whose processes die, other
Pythons, fallbacks for what only Linux has, pyright over every file, and examples and seeds that
nobody has seen yet.
Where `CI=true` a skipped test or a missing Python is a failure, and `make test-all` measures
coverage.
Each run ends with its steps, how long its tests took, and what did not run.
"""

import functools
import importlib.util
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tools.project import ROOT, relative

PYTHONS: Final = ("3.11", "3.12", "3.13")
"""Versions that the unit and property tests must pass on, oldest first."""

MEASURED_ON: Final = "3.12"
"""The first Python whose interpreter tells of each statement once, at no cost. Branches are left
out: they would take three times as long."""

PYTHON: Final = Path(sys.executable)
HERE: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
IS_CI: Final = os.environ.get("CI") == "true"

QUICK: Final = ("tests/unit", "tests/property")
COVERED: Final = (*QUICK, "tests/simulation")
SCENARIOS: Final = tuple(
    relative(file)
    for file in sorted((ROOT / "tests/simulation").rglob("test_*.py"))
    if "seeds(" in file.read_text()
)
"""Simulations that draw schedules and faults from seeds."""

STATIC: Final = ("tests/tidy", "tests/compat")
CRASHES: Final = ("tests/crash",)
NETWORK: Final = ("tests/network",)
PROCESSES: Final = ("tests/integration",)
BEHAVIOURS: Final = ("tests/behaviours",)
EXAMPLE: Final = ("examples/shop",)
"""An application's own tests, with its own settings of pytest."""

SPARK: Final = ("tests/spark",)
FAULTS: Final = ("tests/spark/faults",)
CONTAINERS: Final = ("tests/cluster",)

ON_BOTH_CORES: Final = ("-n", "2", "--dist", "worksteal")
THREE_AT_ONCE: Final = ("-n", "3", "--dist", "worksteal")
"""For tests that wait most of their time and share nothing."""
BY_FILE: Final = ("-n", "2", "--dist", "loadfile")
"""For tests whose files start a cluster, or build a wheel, once for all of their tests."""
CLOSING: Final = re.compile(r"^=*\s*(\d+ (passed|failed|error|skipped).* in [\d.]+s.*?)\s*=*$")
SLOWEST_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Ran:
    """One test that ran."""

    name: str
    """File and test: `tests/unit/test_x.py::test_y`."""

    seconds: float


@dataclass(slots=True)
class Report:
    """Steps of a run with outcome and duration, and the steps left out. Owned by `main`."""

    steps: list[str] = field(default_factory=list[str])
    left_out: list[str] = field(default_factory=list[str])
    closing_lines: list[str] = field(default_factory=list[str])
    ran: list[Ran] = field(default_factory=list[Ran])
    failures: list[str] = field(default_factory=list[str])
    failed: bool = False

    def step(self, name: str, run: Callable[[], bool]) -> None:
        """Run one step and remember how it went."""
        print(f"--- {name}", flush=True)
        began_s = time.monotonic()
        try:
            passed = run()
        except Exception:
            traceback.print_exc()  # the other steps go on, and the summary is printed
            passed = False
        if not passed:
            self.failed = True
        word = "ok" if passed else "FAILED"
        self.steps.append(f"{word:7}{time.monotonic() - began_s:7.1f} s  {name}")

    def command(self, name: str, *words: str | Path) -> None:
        """Run a script or module of this environment's Python as a step."""
        self.step(name, lambda: subprocess.call([PYTHON, *words], cwd=ROOT) == 0)

    def pytest(
        self, name: str, folders: Sequence[str], *options: str, python: Path = PYTHON, **env: str
    ) -> None:
        """Run the tests in `folders` as a step; each line that they print begins with `name`."""
        self.step(name, lambda: self._run_pytest(name, [*options, *folders], python, env))

    def _run_pytest(
        self, name: str, words: Sequence[str], python: Path, env: dict[str, str]
    ) -> bool:
        with tempfile.TemporaryDirectory() as scratch:
            results = Path(scratch) / "results.xml"
            with subprocess.Popen(
                [python, "-m", "pytest", "-q", f"--junitxml={results}", *words],
                cwd=ROOT,
                env=os.environ | env,
                stdout=subprocess.PIPE,
                text=True,
            ) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    print(f"{name}: {line}", end="", flush=True)
                    if found := CLOSING.match(line):
                        self.closing_lines.append(f"{name}: {found[1]}")
            status = process.returncode
            cases = [*ElementTree.parse(results).iter("testcase")] if results.exists() else []
        skipped = reasons(cases)
        self.left_out += [f"{name}: {reason}" for reason in skipped]
        self.ran += times(cases)
        self.failures += [f"{name}: {failure}" for failure in failures(cases)]
        return status == 0 and not (skipped and IS_CI)

    def print(self) -> None:
        """Print the summary."""
        print("\n--- summary", *self.steps, *self.failures, sep="\n")
        print("seconds in tests, by folder:", *by_folder(self.ran), sep="\n  ")
        print(f"the slowest {SLOWEST_SHOWN}:", *slowest(self.ran), sep="\n  ")
        print("skipped:" if self.left_out else "nothing was skipped", *self.left_out, sep="\n  ")
        print("FAILED" if self.failed else "PASSED", *self.closing_lines, sep="\n")


def reasons(cases: Iterable[ElementTree.Element]) -> list[str]:
    """Return why tests were skipped, each reason once with its number of tests."""
    counts: dict[str, int] = {}
    for skipped in (found for case in cases for found in case.iter("skipped")):
        if skipped.get("type") == "pytest.skip":
            reason = skipped.get("message", "no reason given")
            counts[reason] = counts.get(reason, 0) + 1
    return [f"{count} tests: {reason}" for reason, count in counts.items()]


def failures(cases: Iterable[ElementTree.Element]) -> list[str]:
    """Return which tests failed, the first line of why, and where."""
    return [
        f"{name_of(case)}: {line}{_where(found.text or '')}"
        for case in cases
        for found in (*case.iter("failure"), *case.iter("error"))
        for line in (found.get("message") or "no reason is told").splitlines()[:1]
    ]


def _where(report: str) -> str:
    """Return the place that the report of a failure names last: `, at file:line`."""
    places = re.findall(r'^[ |]*(?:File "([^"]+)", line |(\S+\.py):)(\d+)', report, re.MULTILINE)
    return "".join(f", at {told or shown}:{line}" for told, shown, line in places[-1:])


def times(cases: Iterable[ElementTree.Element]) -> list[Ran]:
    """Return the time of each test of a report in JUnit's form."""
    return [Ran(name_of(case), float(case.get("time", "0"))) for case in cases]


def name_of(case: ElementTree.Element) -> str:
    """Return the file and name of a test of a report in JUnit's form."""
    return f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"


def by_folder(ran: Iterable[Ran]) -> list[str]:
    """Return a line for each folder below `tests` with the sum of its tests, longest first."""
    sums: dict[str, tuple[float, int]] = {}
    for test in ran:
        folder = "/".join(test.name.split("/")[:2])
        seconds, count = sums.get(folder, (0.0, 0))
        sums[folder] = seconds + test.seconds, count + 1
    ordered = sorted(sums.items(), key=lambda item: item[1], reverse=True)
    return [f"{seconds:7.1f} s  {count:5}  {name}" for name, (seconds, count) in ordered]


def slowest(ran: Iterable[Ran]) -> list[str]:
    """Return a line for each of the slowest tests."""
    chosen = sorted(ran, key=lambda test: test.seconds, reverse=True)[:SLOWEST_SHOWN]
    return [f"{test.seconds:7.1f} s  {test.name}" for test in chosen]


def find_python(version: str) -> Path | None:
    """Return an interpreter of `version`, from the path or from pyenv, None if there is none."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    folders += sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin"))
    asking = "import sys; print('%d.%d' % sys.version_info[:2])"
    for folder in folders:
        python = folder / f"python{version}"
        if os.access(python, os.X_OK):
            # A shim of pyenv exists for versions that it does not let run.
            answer = subprocess.run([python, "-c", asking], capture_output=True, text=True)
            if answer.returncode == 0 and answer.stdout.strip() == version:
                return python
    return None


def install(version: str, base: Path) -> bool:
    """Put what the unit and property tests need into `.venv-<version>`."""
    folder = ROOT / f".venv-{version}"
    python, stamp = folder / "bin" / "python", folder / ".installed"
    if stamp.exists() and stamp.stat().st_mtime >= (ROOT / "pyproject.toml").stat().st_mtime:
        return True
    if not python.exists() and subprocess.call([base, "-m", "venv", folder]):
        return False
    # Most of what PySpark brings is never imported.
    words = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")
    plugins = ("pytest-asyncio", "pytest-cov", "pytest-timeout", "pytest-xdist")
    others = ("anyio", "grafana-foundation-sdk", "hypothesis", "testcontainers", "uvloop")
    own = ("--editable", ".[compression,metrics,otel,security,spark]")
    if subprocess.call([python, *words, *own, "pytest", *plugins, *others], cwd=ROOT):
        return False
    stamp.touch()
    return True


def run_pythons(report: Report) -> None:
    """Run unit and property tests on every other Python, and measure their coverage on one.

    The newest one draws every example anew, and every seed of the scenarios.
    """
    versions = dict.fromkeys((*PYTHONS, HERE))  # this one may be newer than all of them
    found = {version: PYTHON if version == HERE else find_python(version) for version in versions}
    *_, newest = [version for version, base in found.items() if base]
    for version, base in found.items():
        name = f"Python {version}"
        if base is None:
            missing = f"unit and property tests on {name}: not found here"
            (report.failures if IS_CI else report.left_out).append(missing)
            report.failed |= IS_CI
            continue
        python = PYTHON
        if version != HERE:
            python = ROOT / f".venv-{version}" / "bin" / "python"
            report.step(f"install {name}", functools.partial(install, version, base))
        if version == newest:
            every, seed = (*QUICK, *SCENARIOS), str(random.SystemRandom().randrange(1, 1 << 32))
            fresh = {"TESTS_EXAMPLES": "fresh", "TESTS_SEED": seed}
            report.pytest(f"{name}, seed {seed}", every, *ON_BOTH_CORES, python=python, **fresh)
        elif version == MEASURED_ON and IS_CI:
            counted = {"TESTS_EXAMPLES": "few", "COVERAGE_CORE": "sysmon"}
            measured = (*ON_BOTH_CORES, "--cov", "--cov-report=")
            report.pytest(name, COVERED, *measured, python=python, **counted)
            report.command("coverage", ROOT / "tools" / "check_coverage.py")
        elif version != HERE:
            report.pytest(name, QUICK, *ON_BOTH_CORES, python=python, TESTS_EXAMPLES="few")


def look(report: Report) -> None:
    """Look at what needs no run: mistakes, layout, messages of commits."""
    report.command("lint", "-m", "ruff", "check", ".")
    report.command("layout", "-m", "ruff", "format", "--check", ".")
    report.command("commits", ROOT / "tools" / "check_commits.py")


def check(report: Report) -> None:
    """Run what finds most mistakes in a minute."""
    look(report)
    side_by_side(
        lambda: report.command("types", ROOT / "tools" / "check_types.py", "--changed"),
        lambda: report.pytest(
            "tests", (*QUICK, "tests/tidy"), *ON_BOTH_CORES, TESTS_EXAMPLES="few"
        ),
    )


def test(report: Report) -> None:
    """Run tests of every kind on this Python."""
    look(report)

    def decisions() -> None:
        report.pytest("decisions", COVERED, *ON_BOTH_CORES, TESTS_EXAMPLES="few")
        report.pytest("rules", STATIC, *ON_BOTH_CORES)

    def processes() -> None:
        report.pytest("crashes", CRASHES, *THREE_AT_ONCE)
        report.pytest("processes", PROCESSES, *BY_FILE)
        report.pytest("behaviours", BEHAVIOURS, *THREE_AT_ONCE)
        report.pytest("example", EXAMPLE, "--rootdir=.", "--timeout=300")
        report.command("types", ROOT / "tools" / "check_types.py", "--changed")

    def spark() -> None:
        report.pytest("Spark", SPARK, *BY_FILE, *(f"--ignore={folder}" for folder in FAULTS))

    # Tests of processes and with Spark wait half of their time, so all share the cores.
    side_by_side(decisions, processes, spark)


def rest(report: Report) -> None:
    """Run what `test` leaves out."""

    def others() -> None:
        report.command("types", ROOT / "tools" / "check_types.py")
        run_pythons(report)
        # The store alone calls what only Linux has; a cluster in a test is used on other systems.
        without = ("tests/unit/store", "tests/simulation/testing/cluster")
        report.pytest("without Linux", without, TESTS_WITHOUT_LINUX="1")

    def faults() -> None:
        # Not beside crashes: a process in a network namespace would keep a dead disk mounted.
        report.pytest("network", NETWORK, *THREE_AT_ONCE)
        report.pytest("Spark, faults", FAULTS)

    def containers() -> None:
        report.pytest("containers", CONTAINERS)
        report.pytest(
            "behaviours in containers",
            BEHAVIOURS,
            *THREE_AT_ONCE,
            TERNMQ_TEST_CLUSTER="containers",
        )

    side_by_side(others, faults, containers)


def side_by_side(*lanes: Callable[[], None]) -> None:
    """Run lanes of steps in threads; their processes use a core each."""
    with ThreadPoolExecutor(max_workers=len(lanes)) as pool:
        for lane in [pool.submit(lane) for lane in lanes]:
            lane.result()


def main(target: str) -> int:
    """Run every step of a target, even after one failed, and print the summary."""
    assert importlib.util.find_spec("ternmq"), "run this by `make`"
    # Hundreds of processes start; each would compile all modules again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if target != "rest":
        os.environ["PYTHONHASHSEED"] = "0"  # the same run each time, sets of strings included
    report = Report()
    {"check": check, "test": test, "rest": rest}[target](report)
    report.print()
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
