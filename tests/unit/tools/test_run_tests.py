import subprocess
import sys
from pathlib import Path
from typing import cast
from unittest import mock
from xml.etree import ElementTree

import pytest

from tools import run_tests
from tools.project import ROOT
from tools.run_tests import Ran, Report, by_folder, failures, reasons, slowest, times

JUNIT = """
<testsuites><testsuite>
  <testcase classname="tests.unit.model.test_names" name="test_topic[a]" time="0.25"/>
  <testcase classname="tests.unit.model.test_names" name="test_group" time="0.5"/>
  <testcase classname="tests.spark.test_sink" name="test_rows" time="3.0">
    <skipped type="pytest.skip" message="needs Java"/>
  </testcase>
  <testcase classname="tests.spark.test_sink" name="test_kills" time="0.0">
    <skipped type="pytest.skip" message="needs Java"/>
  </testcase>
</testsuite></testsuites>
"""
CASES = [*ElementTree.fromstring(JUNIT).iter("testcase")]


def steps_of(target: str) -> dict[str, tuple[str, ...]]:
    """Return the steps of a target, none of which run: their names, and folders if of tests."""
    found: dict[str, tuple[str, ...]] = {}

    def note(_: Report, name: str, *words: object, **__: object) -> None:
        first = words[0]
        found[name] = cast("tuple[str, ...]", first) if isinstance(first, tuple) else ()

    with (
        mock.patch.object(Report, "command", note),
        mock.patch.object(Report, "pytest", note),
        mock.patch.object(Report, "step", note),
    ):
        getattr(run_tests, target)(Report())
    return found


def test_summary_adds_times_by_folder_and_names_slowest() -> None:
    ran = times(CASES)
    assert ran[0] == Ran("tests/unit/model/test_names.py::test_topic[a]", 0.25)
    spark, unit = by_folder(ran)
    assert spark.split() == ["3.0", "s", "2", "tests/spark"]
    assert unit.split() == ["0.8", "s", "2", "tests/unit"]
    assert [line.split("::")[1] for line in slowest(ran)][:2] == ["test_rows", "test_group"]
    assert len(slowest(ran * 9)) == run_tests.SLOWEST_SHOWN


def test_skipped_tests_are_counted_by_reason() -> None:
    assert reasons(CASES) == ["2 tests: needs Java"]


def test_failure_without_reason_is_named() -> None:
    told = '<testcase classname="tests.unit.test_x" name="test_x"><failure/></testcase>'
    (line,) = failures([ElementTree.fromstring(told)])
    assert line == "tests/unit/test_x.py::test_x: no reason is told"


def test_summary_names_failures_and_why(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    failing = tmp_path / "test_x.py"
    failing.write_text("def test_x(): assert 1 == 2, 'too\\nlong'\n")
    report = Report()
    report.pytest("one", [str(failing)], "-p", "no:cacheprovider", f"--rootdir={tmp_path}")
    capsys.readouterr()
    report.print()
    told = f"one: test_x.py::test_x: AssertionError: too, at {failing}:1\n"
    assert told in capsys.readouterr().out


def test_failure_in_a_group_is_placed(tmp_path: Path) -> None:
    failing = tmp_path / "test_x.py"
    lines = ["def test_x():", "    try:", "        [][0]", "    except IndexError as error:"]
    lines += ["        raise ExceptionGroup('g', [error]) from None"]
    failing.write_text("\n".join(lines))
    results = tmp_path / "results.xml"
    words = ("-q", f"--rootdir={tmp_path}", f"--junitxml={results}", str(failing))
    subprocess.run([sys.executable, "-m", "pytest", *words], check=False, capture_output=True)
    (line,) = failures(ElementTree.parse(results).iter("testcase"))
    assert "IndexError" in line
    assert line.endswith(f", at {failing}:3")


@pytest.mark.parametrize(("is_ci", "passes"), [(False, True), (True, False)])
def test_skipped_test_fails_in_continuous_integration_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_ci: bool, passes: bool
) -> None:
    monkeypatch.setattr(run_tests, "IS_CI", is_ci)
    skipping = tmp_path / "test_x.py"
    skipping.write_text("import pytest\ndef test_x(): pytest.skip('why')\n")
    report = Report()
    report.pytest("one", [str(skipping)], "-p", "no:cacheprovider", f"--rootdir={tmp_path}")
    assert report.failed is not passes
    assert report.left_out == ["one: 1 tests: why"]


def test_test_and_test_all_run_every_folder_once() -> None:
    [*mine] = [folder for step in steps_of("test").values() for folder in step]
    rest = [folder for step in steps_of("rest").values() for folder in step]
    rest = [folder for folder in rest if folder not in run_tests.SCENARIOS]
    for once_more in ("tests/unit/store", "tests/simulation/testing/cluster"):
        rest.remove(once_more)  # without Linux
    rest.remove("tests/spark/faults")  # which the step of `tests/spark` passes over
    there = {f"tests/{path.parent.name}" for path in (ROOT / "tests").glob("*/test_*.py")}
    there |= {f"tests/{path.parents[1].name}" for path in (ROOT / "tests").glob("*/*/test_*.py")}
    examples = (ROOT / "examples").glob("*/tests/test_*.py")
    there |= {f"examples/{path.parents[1].name}" for path in examples}
    assert len(mine) == len(set(mine))
    assert set(mine) | set(rest) == there


def test_check_and_test_look_at_commits_and_types() -> None:
    for target in ("check", "test"):
        assert {"lint", "layout", "commits", "types"} <= set(steps_of(target))


@pytest.mark.parametrize("is_ci", [False, True])
@pytest.mark.parametrize("there", [{"3.11"}, {"3.11", "3.12", "3.13"}, {"3.12", "3.14"}])
def test_every_python_runs_and_newest_tries_everything(
    monkeypatch: pytest.MonkeyPatch, there: set[str], *, is_ci: bool
) -> None:
    drawn: dict[str, list[tuple[tuple[str, ...], str]]] = {}

    def note(
        _: Report, name: str, what: tuple[str, ...], *__: object, TESTS_EXAMPLES: str, **env: object
    ) -> None:
        if TESTS_EXAMPLES == "fresh":
            name = name.removesuffix(f", seed {env['TESTS_SEED']}")  # a failure can be repeated
        drawn.setdefault(name, []).append((what, TESTS_EXAMPLES))

    def find(version: str) -> Path | None:
        return Path() if version in there else None

    def install(*_: object) -> None:
        """Install nothing."""

    newest = max(there)
    monkeypatch.setattr(run_tests, "HERE", newest)
    monkeypatch.setattr(run_tests, "IS_CI", is_ci)
    monkeypatch.setattr(run_tests, "find_python", find)
    monkeypatch.setattr(Report, "pytest", note)
    monkeypatch.setattr(Report, "step", install)
    report = Report()
    run_tests.run_pythons(report)
    quick, scenarios = run_tests.QUICK, run_tests.SCENARIOS
    assert drawn.pop(f"Python {newest}") == [((*quick, *scenarios), "fresh")]
    measured = {run_tests.MEASURED_ON} if is_ci else set[str]()
    assert drawn == {
        f"Python {version}": [(run_tests.COVERED if version in measured else quick, "few")]
        for version in there - {newest}
    }
    assert "tests/simulation/test_scenario_everything.py" in scenarios
    missing = {*run_tests.PYTHONS} - there
    assert len(report.failures if is_ci else report.left_out) == len(missing)
    assert report.failed is (is_ci and bool(missing))
