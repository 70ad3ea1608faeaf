import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ternmq_model.version import __version__
from tests.tidy.text_rules import dead_links
from tools.project import ROOT

FRAGMENTS = ROOT / "changelog.d"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a copy of what a changelog is built from."""
    shutil.copytree(FRAGMENTS, tmp_path / "changelog.d")
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def towncrier(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Build the changelog of `project`."""
    command = [sys.executable, "-m", "towncrier", "build", "--dir", str(project), *words]
    return subprocess.run(command, cwd=project, capture_output=True, text=True)


def test_changelog_takes_every_fragment(project: Path) -> None:
    kinds = ("upgrading", "added", "changed", "fixed")
    for kind in kinds:
        text = f"Text of {kind}.\n\n- [Limits](../docs/reference/limits.md)\n  are a list.\n"
        (project / "changelog.d" / f"one-more.{kind}.md").write_text(text)
    (project / "changelog.d" / "list.fixed.md").write_text("- First.\n- Second.\n")
    for version in ("98.0.0", "99.0.0"):
        done = towncrier(project, "--yes", f"--version={version}", "--date=2030-01-02")
        assert done.returncode == 0, done.stdout + done.stderr
    built = (project / "CHANGELOG.md").read_text()
    left = {path.name for path in (project / "changelog.d").iterdir()}
    assert left == {"README.md", "template.md"}
    assert built.index("## 99.0.0 (2030-01-02)\n") < built.index("\n\n## 98.0.0 (2030-01-02)\n")
    places = [built.index(f"\n\n### {kind.title()}\n\n- ") for kind in kinds]
    assert places == sorted(places)
    for kind in kinds:
        link = "[Limits](docs/reference/limits.md)"
        assert f"\n- Text of {kind}.\n\n  - {link}\n    are a list.\n" in built
    assert "\n- First.\n- Second.\n" in built
    assert not list(dead_links(ROOT, "CHANGELOG.md", built))


def test_draft_has_the_version_of_the_package() -> None:
    done = towncrier(ROOT, "--draft")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"## {__version__} (")


@pytest.mark.parametrize("name", ["spare.removed.md", "spare.md", "Spare Part.added.md"])
def test_fragment_with_another_name_is_refused(project: Path, name: str) -> None:
    (project / "changelog.d" / name).write_text("Text.\n")
    done = towncrier(project, "--draft")
    assert done.returncode != 0
    assert name.partition(".")[0] in done.stderr
