from pathlib import Path

import pytest

from ternmq_model.version import __version__
from tests.support.repository import git
from tools.project import GENERATED
from tools.release import Tag, differences, find_tag, remaining_steps

AGAIN = "commit, then run `make release` again"
BUILD_CHANGELOG = ".venv/bin/towncrier build --yes"


@pytest.mark.parametrize(
    ("tag", "fragments", "changes", "beginnings"),
    [
        ("missing", True, False, [BUILD_CHANGELOG, AGAIN]),
        ("missing", False, True, [AGAIN]),
        ("missing", False, False, ["git tag", "git push", "twine upload"]),
        ("here", False, False, ["git push", "twine upload"]),
        ("here", False, True, [AGAIN]),
        ("elsewhere", True, False, ["write a new version", BUILD_CHANGELOG, AGAIN]),
        ("elsewhere", False, False, ["write a new version", AGAIN]),
    ],
)
def test_remaining_steps_depend_on_the_checkout(
    tag: Tag, fragments: bool, changes: bool, beginnings: list[str]
) -> None:
    steps = remaining_steps(tag, fragments=fragments, changes=changes)
    assert len(steps) == len(beginnings)
    assert all(map(str.startswith, steps, beginnings)), steps


def test_tag_of_the_version_is_found_here_and_elsewhere(tmp_path: Path) -> None:
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "--message=Release it")
    assert find_tag(tmp_path) == "missing"
    git(tmp_path, "tag", f"v{__version__}")
    assert find_tag(tmp_path) == "here"
    git(tmp_path, "commit", "--allow-empty", "--message=Go on")
    assert find_tag(tmp_path) == "elsewhere"


def test_wheel_without_generated_code_or_with_strangers_differs() -> None:
    whole = differences(set())
    metadata = {f"ternmq-{__version__}.dist-info/METADATA"}
    assert not differences(whole | metadata)
    generated = {name for name in whole if name.startswith("ternmq_protos/v1/")}
    assert len(generated) >= len(list(GENERATED.glob("*_pb2.py"))) > 0
    stranger = {"tests/conftest.py"}
    assert differences(whole - generated | stranger) == generated | stranger
