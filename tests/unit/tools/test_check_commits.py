from pathlib import Path

import pytest

from tests.support.repository import git
from tools import check_commits
from tools.check_commits import Commit, parse, problems


def problems_of(title: str, *, body: str = "", lines: int = 1) -> list[str]:
    """Return what is wrong with a commit."""
    return list(problems(Commit("abc", title, body, lines)))


@pytest.mark.parametrize(
    "title",
    [
        "Keep a known route",
        "consumer: keep a known route until a broker denies the topic",
        "store/queues, broker: Process units",
        "Embed the version",
        "Bring the index back",
        "docs: focus on reads",
        "Set, then read, the offset",
        'Revert "Added a thing"',
        "x" * 72,
    ],
)
def test_imperative_title_passes(title: str) -> None:
    assert problems_of(title) == []


@pytest.mark.parametrize(
    ("title", "word"),
    [
        ("Added a route", "Added"),
        ("store: fixes the index", "fixes"),
        ("store: Fixing the index", "Fixing"),
        ("Made it quick", "Made"),
        ("The index is quick", "The"),
        ("wip", "wip"),
        ("fixup! Keep a route", "fixup"),
        ("…", ""),
    ],
)
def test_title_in_another_form_is_refused(title: str, word: str) -> None:
    [problem] = problems_of(title)
    assert f"begins with {word!r}" in problem


def test_title_of_73_characters_is_refused() -> None:
    assert problems_of("x" * 73) == ["the title has 73 characters, at most 72 are allowed"]


def test_body_is_needed_beyond_ten_lines() -> None:
    assert problems_of("Keep it", lines=10) == []
    assert problems_of("Keep it", body="It was lost.", lines=11) == []
    assert problems_of("Keep it", lines=11) == ["11 lines change and no body says why"]


def test_generated_code_and_trailers_do_not_count() -> None:
    log = (
        "\x01abc\x00Keep it\x00Signed-off-by: A <a@b>\n\x00Signed-off-by: A <a@b>\n\x00\n\n"
        "4\t3\tstore/{a => b}.py\n-\t-\tlogo.png\n500\t9\tprotos/ternmq_protos/v1/a_pb2.py\n"
        "\x01def\x00Empty it\x00Why.\n\nSigned-off-by: A <a@b>\n\x00Signed-off-by: A <a@b>\n\x00\n"
    )
    expected = [Commit("abc", "Keep it", "", 7), Commit("def", "Empty it", "Why.", 0)]
    assert list(parse(log)) == expected


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """Return a checkout with a bad commit, a release, a good commit and a merge."""
    git(tmp_path, "init", "--initial-branch=main")
    git(tmp_path, "commit", "--allow-empty", "--message=Added before the release")
    git(tmp_path, "tag", "v0.1.0")
    git(tmp_path, "checkout", "-b", "side")
    git(tmp_path, "commit", "--allow-empty", "--message=Add a side")
    git(tmp_path, "checkout", "main")
    git(tmp_path, "merge", "--no-ff", "side", "--message=Merged a side")
    return tmp_path


def test_commits_are_checked_since_the_release_without_merges(
    released: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_commits.main(released) == 0
    assert capsys.readouterr().out == "commits: 1 checked, 0 problems\n"
    git(released, "commit", "--allow-empty", "--message=Adds more")
    assert check_commits.main(released) == 1
    assert "begins with 'Adds'" in capsys.readouterr().err


def test_source_archive_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert check_commits.main(tmp_path) == 0


@pytest.mark.parametrize(
    ("cause", "ci", "status"),
    [
        ("other history", "", 0),
        ("other history", "true", 1),
        ("git is missing", "", 0),
        ("git is missing", "true", 1),
        ("shallow clone", "true", 0),
    ],
)
def test_unreadable_history_fails_in_continuous_integration_alone(
    released: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cause: str,
    ci: str,
    status: int,
) -> None:
    root = released
    if cause == "shallow clone":
        root = released / "clone"
        git(released, "clone", "--depth=1", "--no-tags", f"file://{released}", str(root))
    elif cause == "other history":
        git(root, "tag", "--delete", "v0.1.0")
    else:
        monkeypatch.setenv("PATH", str(released))
    monkeypatch.setenv("CI", ci)
    assert check_commits.main(root) == status
    assert "commits: not checked" in capsys.readouterr().err
