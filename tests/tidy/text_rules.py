"""Words that no file of the project has, and links and names of tests that lead nowhere."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from tests.tidy.source import Violation

BANNED: Final = {
    re.compile(rf"\b({words})", flags): why
    for words, flags, why in (
        (r"TODO|FIXME|XXX|HACK\b", 0, "unfinished work belongs into an issue"),
        (r"placeholder|for now\b", re.IGNORECASE, "say what it is, not what it will be"),
        (r"NotImplementedError", 0, "what is not there is left out"),
        (r"this session\b|issue #?\d+\b", re.IGNORECASE, "a reader does not know of it"),
        (r"ChatGPT|Copilot|language model\b", re.IGNORECASE, "a reader does not care"),
        (r"pypi\.org|pythonhosted|npmjs\.|docker\.io/", 0, "package hosts are the user's choice"),
    )
} | {re.compile(r"(?<![\w.~])/(work|home|root)/"): "a path of one machine"}

_LINK: Final = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)|!\[[^\]\n]*\]\(([^)\s]+)\)")
_TEST: Final = re.compile(r"`(\S+\.py)::(\w+)`")
_FENCE: Final = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def banned_words(file: str, text: str) -> Iterator[Violation]:
    """Find words from the table in the content of `file`."""
    for number, line in enumerate(text.splitlines(), start=1):
        for pattern, why in BANNED.items():
            if found := pattern.search(line):
                yield Violation(file, number, f"{found[0]!r}: {why}")


def anchors(text: str) -> set[str]:
    """Return the names by which the headings of a page can be linked."""
    headings = re.findall(r"^#+ +(.*?) *#*$", _FENCE.sub("", text), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


def linked_pages(root: Path, file: str) -> set[str]:
    """Return the files that the page `file` links to, as seen from `root`."""
    folder = (root / file).parent
    text = _FENCE.sub("", (root / file).read_text())
    targets = {(found[1] or found[2]).partition("#")[0] for found in _LINK.finditer(text)}
    paths = {(folder / target).resolve() for target in targets if target and ":" not in target}
    return {path.relative_to(root).as_posix() for path in paths if path.is_relative_to(root)}


def dead_links(root: Path, file: str, text: str) -> Iterator[Violation]:
    """Find relative links of the page `file` to files and headings that are not there."""
    code = [range(found.start(), found.end()) for found in _FENCE.finditer(text)]
    for found in _LINK.finditer(text):
        target = found[1] or found[2]
        if ":" in target or any(found.start() in part for part in code):
            continue
        line = text.count("\n", 0, found.start()) + 1
        name, _, anchor = target.partition("#")
        path = (root / file).parent / name if name else root / file
        if not path.exists():
            yield Violation(file, line, f"{target} leads nowhere")
        elif anchor and path.suffix == ".md" and anchor not in anchors(path.read_text()):
            yield Violation(file, line, f"{target}: the page has no such heading")


def missing_tests(root: Path, file: str, text: str) -> Iterator[Violation]:
    """Find tests, named as `tests/test_x.py::test_y` on the page `file`, that are not there."""
    for number, line in enumerate(text.splitlines(), start=1):
        for path, name in _TEST.findall(line):
            if name not in _tests_of(root / path):
                yield Violation(file, number, f"{path} has no {name}")


@cache
def _tests_of(path: Path) -> frozenset[str]:
    """Return the names of functions and of state machines at the top level of a file."""
    body = ast.parse(path.read_text()).body if path.is_file() else []
    functions = (node.name for node in body if isinstance(node, ast.FunctionDef))
    assigned = (target for node in body if isinstance(node, ast.Assign) for target in node.targets)
    machines = (target.id for target in assigned if isinstance(target, ast.Name))
    return frozenset(name for name in (*functions, *machines) if name.lower().startswith("test"))
