"""What the checks on the code see: a file as text and as a tree, and what they say about it."""

import ast
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.project import BESIDE, relative


@dataclass(frozen=True, slots=True)
class Violation:
    """One place that breaks a rule."""

    file: str
    line: int
    rule: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}"


@dataclass(frozen=True, slots=True)
class Source:
    """One Python file."""

    file: str
    """Relative to the project's root."""

    text: str
    tree: ast.Module

    @property
    def role(self) -> str:
        """The top folder: a role, or one of the folders beside them."""
        return self.file.split("/")[0]

    @property
    def is_shipped(self) -> bool:
        """Tell whether the wheel has this file."""
        return self.role not in BESIDE and self.file.count("/") > (self.role != "ternmq")

    def at(self, node: ast.stmt | ast.expr | ast.alias | ast.excepthandler, rule: str) -> Violation:
        """Return that `node` breaks `rule`."""
        return Violation(self.file, node.lineno, rule)


Rule = Callable[[Source], Iterator[Violation]]


def parse(file: str, text: str) -> Source:
    """Return `text` as the content of `file`."""
    return Source(file, text, ast.parse(text, file))


@functools.cache
def load(path: Path) -> Source | Violation:
    """Read the file at `path`; a file that is no Python is a violation of its own."""
    try:
        return parse(relative(path), path.read_text())
    except SyntaxError as error:
        return Violation(relative(path), error.lineno or 1, f"is not Python: {error.msg}")


def broken(rule: Rule, paths: Sequence[Path]) -> str:
    """Return, line by line, what in `paths` breaks `rule`: "" when nothing does."""
    found: list[Violation] = []
    for path in paths:
        source = load(path)
        found += [source] if isinstance(source, Violation) else rule(source)
    return "\n".join(map(str, found))


def lines_broken(rule: Rule, file: str, text: str) -> list[int]:
    """Return the lines of `text` that break `rule` if it were the content of `file`."""
    return sorted({found.line for found in rule(parse(file, text))})


def qualified_names(tree: ast.Module) -> Iterator[tuple[ast.Name | ast.Attribute, str]]:
    """Yield what is mentioned of imported modules, by full name, however it was imported.

    `from time import monotonic as now; now()` yields `time.monotonic`.
    """
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {
                alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names
            }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and (name := dotted(node)):
            first, dot, rest = name.partition(".")
            if first in names:
                yield node, names[first] + dot + rest


def dotted(node: ast.expr) -> str:
    """Return `a.b.c` for such an expression and "" for any other."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (value := dotted(node.value)):
        return f"{value}.{node.attr}"
    return ""
