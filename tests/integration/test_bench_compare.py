"""`bench.py --compare` with two commits of a project, one of which is slow on purpose."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.compare import environment, foreign_code
from tools.project import PACKAGES, REGISTERING, ROOT, relative

SLOW = "\nimport time\ntime.sleep(0.3)\n"


def git(folder: Path, *words: str) -> str:
    """Run git in `folder` as nobody in particular and return what it prints."""
    name = ("-c", "user.name=T", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *name, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a checkout whose last commit takes a slow import back."""
    root = tmp_path / "project"
    skipped = shutil.ignore_patterns("__pycache__")
    for folder in (*PACKAGES.values(), REGISTERING, ROOT / "benchmarks"):
        shutil.copytree(folder, root / relative(folder), ignore=skipped)
    for name in ("pyproject.toml", ".gitignore"):
        shutil.copy(ROOT / name, root)
    main = root / "console" / "ternmq_console" / "main.py"
    quick = main.read_text()
    git(root, "init", "--initial-branch=main")
    for title, text in (("Import slowly", quick + SLOW), ("Import quickly", quick)):
        main.write_text(text)
        git(root, "add", "--all")
        git(root, "commit", "--message", title)
    return root


def test_comparison_runs_each_commit_with_its_own_code(project: Path) -> None:
    words = ("--compare=HEAD~1", "--only=help", "--rounds=2")
    done = subprocess.run(
        [sys.executable, project / "benchmarks" / "bench.py", *words],
        cwd=project,
        env=environment(project),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    row = re.search(r"^\| `ternmq --help`, ms \|.*", done.stdout, re.MULTILINE)
    assert row, done.stdout
    _, _, theirs, ours, *ratios = [cell.strip() for cell in row[0].strip("|").split("|")]
    assert float(theirs) > 300
    assert float(ours) < float(theirs)
    assert len(ratios) == 3
    assert all(float(ratio) > 1 for ratio in ratios)
    assert len(git(project, "worktree", "list").splitlines()) == 1
    assert not git(project, "status", "--porcelain")


def test_code_of_another_checkout_is_found(project: Path) -> None:
    assert not foreign_code(project, environment(project))
    found = foreign_code(project, environment(ROOT))
    assert len(found) == len(PACKAGES) + 2
    assert all(Path(file).is_relative_to(ROOT) for file in found)
