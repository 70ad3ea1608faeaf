import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tidy.source import Violation
from tests.tidy.text_rules import banned_words, dead_links, linked_pages, missing_tests
from tools.project import GENERATED, ROOT, relative

PageRule = Callable[[Path, str, str], Iterator[Violation]]
EXEMPT = ("tests/tidy/text_rules.py", "tests/tidy/test_texts.py", relative(GENERATED), "LICENSE")
"""The rules themselves, what a generator wrote, and what lawyers wrote."""


def text_files() -> dict[str, str]:
    """Return every text of the project that git knows or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found: dict[str, str] = {}
    for name in names.split("\0"):
        path = ROOT / name
        if name and path.is_file() and b"\0" not in (content := path.read_bytes()):
            found[relative(path)] = content.decode(errors="replace")
    return found


def test_files_have_no_banned_word() -> None:
    found = [
        str(violation)
        for file, text in text_files().items()
        if not file.startswith(EXEMPT)
        for violation in banned_words(file, text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("rule", [dead_links, missing_tests])
def test_every_link_and_test_named_on_a_page_exists(rule: PageRule) -> None:
    pages = {file: text for file, text in text_files().items() if file.endswith(".md")}
    assert "::test_" in pages["docs/promises.md"]
    found = [str(broken) for file, text in pages.items() for broken in rule(ROOT, file, text)]
    assert not found, "\n".join(found)


def test_every_promise_has_a_test() -> None:
    _, *promises, rest = (ROOT / "docs/promises.md").read_text().split("\n## ")
    assert rest.startswith("Promises without a test")
    assert not [each.partition("\n")[0] for each in promises if "::test_" not in each]


def test_every_support_module_is_on_its_page() -> None:
    folder = ROOT / "tests" / "support"
    rows = re.findall(r"^\| (`.*?) \|", (folder / "README.md").read_text(), re.MULTILINE)
    listed = set(re.findall(r"`(\w+)`", " ".join(rows)))
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert modules == listed, sorted(modules ^ listed)


def test_every_page_is_listed_in_the_docs_readme() -> None:
    listed = linked_pages(ROOT, "docs/README.md")
    for readme in [page for page in listed if page.endswith("/README.md")]:
        listed |= linked_pages(ROOT, readme)
    pages = {file for file in text_files() if file.startswith("docs/") and file.endswith(".md")}
    assert pages - {"docs/README.md"} <= listed, sorted(pages - listed)


@pytest.mark.parametrize(
    "line",
    [
        "# TODO later",
        "x = 1  # good enough for now",
        "raise NotImplementedError",
        "see issue #12",
        "open('/home/me/file')",
        "--index https://pypi.org/simple",
    ],
)
def test_banned_word_is_found_at_its_line(line: str) -> None:
    assert [found.line for found in banned_words("x.py", f"fine\n{line}\n")] == [2]


@pytest.mark.parametrize("line", ["SCHEDULE_TOPIC_XXXX", "a work/ folder", "a Session", "~/home/"])
def test_innocent_word_passes(line: str) -> None:
    assert not list(banned_words("x.py", line))


def test_dead_link_is_found_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# One thing: `it`\n")
    page = "[good](b.md#one-thing-it)\n[web](https://x.y)\n[gone](c.md)\n[no](b.md#two)\n```\n[](q)\n```\n"
    (tmp_path / "a.md").write_text(page)
    assert [dead.line for dead in dead_links(tmp_path, "a.md", page)] == [3, 4]


def test_linked_pages_are_found(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    page = "[a](a.md#x)\n[b](../b.md)\n[out](../../c.md)\n[web](https://x.y)\n```\n[](q.md)\n```\n"
    (tmp_path / "docs" / "README.md").write_text(page)
    assert linked_pages(tmp_path, "docs/README.md") == {"docs/a.md", "b.md"}


def test_missing_test_is_found_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_b() -> None: ...\nTestC = test_b\nd = 1\n")
    names = (
        "test_a.py::test_b",
        "test_a.py::TestC",
        "test_a.py::d",
        "test_a.py::x",
        "b.py::test_b",
    )
    page = "".join(f"- `{name}`: why\n" for name in names)
    assert [found.line for found in missing_tests(tmp_path, "p.md", page)] == [3, 4, 5]
