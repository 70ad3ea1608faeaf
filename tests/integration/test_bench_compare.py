"""`bench.py --compare` with two commits of a project, each of which notes that it ran."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.bench import HELP_RUNS
from benchmarks.compare import environment, foreign_code
from tests.support.repository import git
from tools.project import PACKAGES, REGISTERING, ROOT, relative

NOTING = "\nimport os\nopen(os.environ['NOTES'], 'a').write('{}\\n')\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a checkout of two commits, whose command notes `old` or `new`."""
    root = tmp_path / "project"
    skipped = shutil.ignore_patterns("__pycache__")
    for folder in (*PACKAGES.values(), REGISTERING, ROOT / "benchmarks"):
        shutil.copytree(folder, root / relative(folder), ignore=skipped)
    for name in ("pyproject.toml", ".gitignore"):
        shutil.copy(ROOT / name, root)
    main = root / "console" / "ternmq_console" / "main.py"
    text = main.read_text()
    git(root, "init", "--initial-branch=main")
    for word in ("old", "new"):
        main.write_text(text + NOTING.format(word))
        git(root, "add", "--all")
        git(root, "commit", "--message", f"Note {word}")
    return root


def test_comparison_runs_each_commit_with_its_own_code(project: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    words = ("--compare=HEAD~1", "--only=help", "--rounds=2")
    done = subprocess.run(
        [sys.executable, project / "benchmarks" / "bench.py", *words],
        cwd=project,
        env=environment(project) | {"NOTES": str(notes)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    row = re.search(r"^\| `ternmq --help`, ms \|.*", done.stdout, re.MULTILINE)
    assert row, done.stdout
    _, _, theirs, ours, *ratios = [cell.strip() for cell in row[0].strip("|").split("|")]
    assert notes.read_text().split() == [
        *(["old"] * HELP_RUNS + ["new"] * HELP_RUNS),
        *(["new"] * HELP_RUNS + ["old"] * HELP_RUNS),
    ]
    assert float(theirs) > 0 < float(ours)
    assert [float(ratio) > 0 for ratio in ratios] == [True] * 3
    assert len(git(project, "worktree", "list").splitlines()) == 1
    assert not git(project, "status", "--porcelain")


def test_code_of_another_checkout_is_found(project: Path) -> None:
    assert not foreign_code(project, environment(project))
    found = foreign_code(project, environment(ROOT))
    assert len(found) == len(PACKAGES) + 2
    assert all(Path(file).is_relative_to(ROOT) for file in found)
