"""Run everything that can show a mistake on this machine, and say what did not run: `make test`.

Lint, types, freshness of the generated code, every test, and the unit and property tests again on
the other Pythons we support. With `CI=true` a test that is skipped is a failure.
"""

import functools
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tools.project import ROOT

OTHER_PYTHONS: Final = ("3.11", "3.12", "3.13")
"""Versions that the unit and property tests must pass on, besides the one that runs this."""

HERE: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
ELSEWHERE: Final = ("tests/unit", "tests/property")
WAITING: Final = ("tests/cluster", "tests/network", "tests/crash", "tests/spark")
"""Wait half of the time for processes that they started, so the others run beside them."""

CLOSING: Final = re.compile(r"^=*\s*(\d+ (passed|failed|error|skipped).* in [\d.]+s.*?)\s*=*$")


@dataclass(slots=True)
class Report:
    """What ran, how it went and what did not run. Owned by `main`."""

    steps: list[str] = field(default_factory=list[str])
    left_out: list[str] = field(default_factory=list[str])
    closing_lines: list[str] = field(default_factory=list[str])
    failed: bool = False

    def step(self, name: str, run: Callable[[], bool]) -> None:
        """Run one step and remember how it went."""
        print(f"--- {name}", flush=True)
        began_s = time.monotonic()
        passed = run()
        self.failed |= not passed
        word = "ok" if passed else "FAILED"
        self.steps.append(f"{word:7}{time.monotonic() - began_s:7.1f} s  {name}")


def command(*arguments: str | Path) -> bool:
    """Run a command in the project's folder and tell whether it succeeded."""
    return subprocess.call([str(argument) for argument in arguments], cwd=ROOT) == 0


def pytest(
    python: Path, folders: Sequence[str], report: Report, *, label: str, without_linux: str = ""
) -> bool:
    """Run the tests in `folders`; keep the closing line and the reasons of what was skipped."""
    with tempfile.TemporaryDirectory() as scratch:
        results = Path(scratch) / "results.xml"
        process = subprocess.Popen(
            [str(python), "-m", "pytest", "-q", f"--junitxml={results}", *folders],
            cwd=ROOT,
            env=os.environ | {"TESTS_WITHOUT_LINUX": without_linux},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        for line in process.stdout:
            print(f"{label}: {line}", end="", flush=True)
            if found := CLOSING.match(line):
                report.closing_lines.append(f"{label}: {found[1]}")
        status = process.wait()
        skipped = reasons(results) if results.exists() else []
    report.left_out += [f"{label}: {reason}" for reason in skipped]
    return status == 0 and not (skipped and must_run_everything())


def reasons(results: Path) -> list[str]:
    """Return why tests were skipped, each reason once with its number of tests."""
    counts: dict[str, int] = {}
    for skipped in ElementTree.parse(results).iter("skipped"):
        if skipped.get("type") == "pytest.skip":
            reason = skipped.get("message", "no reason given")
            counts[reason] = counts.get(reason, 0) + 1
    return [f"{count} tests: {reason}" for reason, count in counts.items()]


def must_run_everything() -> bool:
    """Tell whether a skipped test is a failure."""
    return os.environ.get("CI") == "true"


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


def test_elsewhere(version: str, base: Path, report: Report) -> bool:
    """Run the unit and property tests on another Python, in a `.venv-<version>` of its own."""
    folder = ROOT / f".venv-{version}"
    python = folder / "bin" / "python"
    stamp = folder / ".installed"
    if not python.exists() and not command(base, "-m", "venv", folder):
        return False
    wanted = (ROOT / "pyproject.toml").stat().st_mtime
    if not stamp.exists() or stamp.stat().st_mtime < wanted:
        install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        if not command(*install, "--editable", ".[compression,spark]", "pytest", "hypothesis"):
            return False
        stamp.touch()
    return pytest(python, ELSEWHERE, report, label=f"Python {version}")


def run_other_pythons(report: Report) -> None:
    """Run the unit and property tests on every other Python that is there; name the others."""
    for version in OTHER_PYTHONS:
        base = find_python(version)
        name = f"unit and property tests on Python {version}"
        if version == HERE:
            continue
        if base is None:
            report.left_out.append(f"{name}: not found here")
        else:
            report.step(name, functools.partial(test_elsewhere, version, base, report))


def side_by_side(*lanes: Callable[[], None]) -> None:
    """Run lanes of steps in threads; their processes use a core each."""
    with ThreadPoolExecutor(max_workers=len(lanes)) as pool:
        for lane in [pool.submit(lane) for lane in lanes]:
            lane.result()


def main() -> int:
    """Run every step, even after one failed, and print the summary."""
    report = Report()
    assert importlib.util.find_spec("ternmq"), "run this by `make test`"
    python = Path(sys.executable)
    report.step("lint", lambda: command(python, "-m", "ruff", "check", "."))
    report.step("layout", lambda: command(python, "-m", "ruff", "format", "--check", "."))
    report.step("types", lambda: command(python, ROOT / "tools" / "check_types.py"))

    def tests(label: str, name: str, *words: str, without_linux: str = "") -> None:
        run = functools.partial(pytest, python, words, report, label=label)
        report.step(name, functools.partial(run, without_linux=without_linux))

    here = f"Python {HERE}"

    def waiting() -> None:
        tests("processes", f"tests of processes and with Spark on {here}", *WAITING)

    def others() -> None:
        run_other_pythons(report)
        name = "unit tests without what only Linux has"
        tests("without Linux", name, "tests/unit", without_linux="1")
        left_out = (f"--ignore={folder}" for folder in WAITING)
        tests(here, f"every other test on {here}", "tests", *left_out)

    side_by_side(waiting, others)
    print("\n--- summary", *report.steps, sep="\n")
    print("did not run:" if report.left_out else "everything ran", *report.left_out, sep="\n  ")
    print("FAILED" if report.failed else "PASSED", *report.closing_lines, sep="\n")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
