"""What the checks on the code see: a file as text and as a tree, and what they say about it."""

import ast
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar, cast

from tools.project import BESIDE

Node = TypeVar("Node", bound=ast.AST)


@dataclass(frozen=True, slots=True)
class Violation:
    """One place that breaks a rule."""

    file: str
    line: int
    rule: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}"


@dataclass(frozen=True)
class Source:
    """One Python file. Its tree is walked once, whatever number of rules looks at it."""

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

    @cached_property
    def _nodes(self) -> dict[type[ast.AST], list[ast.AST]]:
        found: dict[type[ast.AST], list[ast.AST]] = {}
        waiting: deque[ast.AST] = deque([self.tree])
        while waiting:
            node = waiting.popleft()
            found.setdefault(type(node), []).append(node)
            for name in node._fields:
                value: object = getattr(node, name, None)
                children = cast("list[object]", value) if isinstance(value, list) else [value]
                for child in children:
                    if isinstance(child, ast.AST) and child._fields:
                        waiting.append(child)
        return found

    def nodes(self, kind: type[Node]) -> list[Node]:
        """Return every node of exactly this kind, outer ones first."""
        return [node for node in self._nodes.get(kind, ()) if isinstance(node, kind)]

    @cached_property
    def imports(self) -> list[tuple[ast.alias | ast.ImportFrom, str]]:
        """Each import with the module's full name, "" for one relative to the file."""
        plain = [(name, name.name) for node in self.nodes(ast.Import) for name in node.names]
        chosen = [
            (node, "" if node.level else node.module or "") for node in self.nodes(ast.ImportFrom)
        ]
        return [*plain, *chosen]

    @cached_property
    def qualified_names(self) -> list[tuple[ast.Name | ast.Attribute, str]]:
        """Mentions of imported modules with their full names, however they were imported.

        `from time import monotonic as now; now()` has `time.monotonic`.
        """
        names: dict[str, str] = {}
        for node, module in self.imports:
            if isinstance(node, ast.alias):
                top = module.split(".")[0]
                names[node.asname or top] = module if node.asname else top
            elif node.module:
                names |= {
                    alias.asname or alias.name: f"{node.module}.{alias.name}"
                    for alias in node.names
                }
        found: list[tuple[ast.Name | ast.Attribute, str]] = []
        mentions: list[ast.Name | ast.Attribute] = [*self.nodes(ast.Name)]
        for mention in (*mentions, *self.nodes(ast.Attribute)):
            first, dot, rest = dotted(mention).partition(".")
            if first in names:
                found.append((mention, names[first] + dot + rest))
        return found

    def at(self, node: ast.stmt | ast.expr | ast.alias | ast.excepthandler, rule: str) -> Violation:
        """Return that `node` breaks `rule`."""
        return Violation(self.file, node.lineno, rule)


Rule = Callable[[Source], Iterator[Violation]]


def parse(file: str, text: str) -> Source:
    """Return `text` as the content of `file`."""
    return Source(file, text, ast.parse(text, file))


def broken(rules: Sequence[Rule], files: Mapping[str, str]) -> list[Violation]:
    """Return what in `files`, texts by name, breaks a rule. So does a file that is no Python."""
    found: list[Violation] = []
    for file, text in files.items():
        try:
            source = parse(file, text)
        except SyntaxError as error:
            found.append(Violation(file, error.lineno or 1, f"is not Python: {error.msg}"))
        else:
            found += [violation for rule in rules for violation in rule(source)]
    return found


def lines_broken(rule: Rule, file: str, text: str) -> list[int]:
    """Return the lines of `text` that break `rule` if it were the content of `file`."""
    return sorted({found.line for found in broken([rule], {file: text})})


def dotted(node: ast.expr) -> str:
    """Return `a.b.c` for such an expression and "" for any other."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (value := dotted(node.value)):
        return f"{value}.{node.attr}"
    return ""
