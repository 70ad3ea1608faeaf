"""Successors in docs/renamed.md: each is a module or a class of the product."""

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from tests.tidy.source import Violation
from tools.project import PACKAGES, ROOT

PAGE: Final = "docs/renamed.md"
_ROW: Final = re.compile(r"^\| `(\S+)` \|(?: `\S+` \|)? `(\S+)`(?: of `(\w+)`)? \|$")


def product_names() -> dict[str, set[str]]:
    """Return the names of modules and classes by role. Modules are paths without a suffix."""
    names: dict[str, set[str]] = {}
    for role, package in PACKAGES.items():
        found = names.setdefault(role, set())
        for path in package.rglob("*.py"):
            module = path.relative_to(package).with_suffix("").as_posix()
            found.add(module.removesuffix("/__init__"))
            tree = ast.parse(path.read_text())
            found |= {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    return names


def stale_rows(text: str, names: Mapping[str, Collection[str]]) -> Iterator[Violation]:
    """Find rows of `text` that lead to a name which its role lacks, and rows without a form."""
    role = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("## "):
            role = line.removeprefix("## ")
        elif line.startswith("| `"):
            row = _ROW.match(line)
            if not row:
                yield Violation(PAGE, number, "the row is not `old` | `new`")
            elif row[2] not in names[row[3] or role]:
                rule = f"{row[3] or role} has no {row[2]}: name the successor of {row[1]}"
                yield Violation(PAGE, number, f"{rule}, or drop the row")


def test_successors_of_renamed_modules_and_classes_exist() -> None:
    found = [str(row) for row in stale_rows((ROOT / PAGE).read_text(), product_names())]
    assert not found, "\n".join(found)


def test_stale_row_is_found_at_its_line() -> None:
    page = "## store\n| `a` | `b` |\n| `C` | `a` | `D` |\n| `C` | `a` | `D` of `model` |\n| `x`\n"
    names = {"store": {"b"}, "model": {"D"}}
    assert [row.line for row in stale_rows(page, names)] == [3, 5]
