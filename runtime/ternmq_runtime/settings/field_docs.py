"""Docstrings of the fields of a class, for `help()` and for the tables of settings."""

import ast
import inspect
import sys
import textwrap
from itertools import pairwise
from typing import Final

_WIDTH: Final = 96


class DescribedFields:
    """`__doc__` of a class: its own docstring, followed by the text below each field.

    Each text stands once, for editors, for the tables of settings and for `help()`. The source is
    read only when `__doc__` is read, so importing the class costs nothing.
    """

    def __init__(self, own: str, module: str) -> None:
        self._own = own
        self.module = module
        """Module that defines the class; `__module__` may name another one."""

    def __get__(self, instance: object, owner: type) -> str:
        own = inspect.cleandoc(self._own)
        try:
            docs = field_docs(owner)
        except (OSError, TypeError):  # the source is not available
            docs = {}
        if not docs:
            return own
        lines = (
            textwrap.fill(
                f"{name}: {text}", _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8
            )
            for name, text in docs.items()
        )
        return "\n".join((own, "", "Attributes:", *lines))


def describe_fields(kind: type) -> None:
    """Add the fields of `kind` to its docstring. Call it before `__module__` is changed."""
    docs = DescribedFields(kind.__doc__ or "", kind.__module__)
    type.__setattr__(kind, "__doc__", docs)


def field_docs(kind: type) -> dict[str, str]:
    """Return the docstring below each field, on one line, base classes included.

    Raises:
        OSError: The source is not available.
    """
    docs: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        described = vars(owner).get("__doc__")
        module = described.module if isinstance(described, DescribedFields) else owner.__module__
        if module.partition(".")[0] in sys.stdlib_module_names:
            continue
        source = inspect.getsource(sys.modules[module])
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef) and node.name == owner.__name__:
                docs |= _docs_in(node)
    return docs


def _docs_in(definition: ast.ClassDef) -> dict[str, str]:
    docs: dict[str, str] = {}
    for statement, below in pairwise(definition.body):
        match statement, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                docs[name] = " ".join(inspect.cleandoc(text).split())
            case _:
                pass
    return docs
