"""Descriptions of fields behind a class's docstring."""

import inspect
import pydoc
from dataclasses import dataclass
from typing import NamedTuple

from ternmq_runtime.settings.field_docs import describe_fields, field_docs


@dataclass
class Base:
    """A base.

    With a second paragraph.
    """

    first: int = 0
    """Of the base, on
    two lines."""


@dataclass(slots=True)
class Place(Base):
    second: str = ""
    """Of its own."""

    third: str = ""


class Pair(NamedTuple):
    """Two."""

    left: int
    """On the left."""

    right: int


def test_docstring_tells_of_each_described_field() -> None:
    assert field_docs(Place) == {"first": "Of the base, on two lines.", "second": "Of its own."}
    describe_fields(Base)
    describe_fields(Pair)
    Base.__module__ = "elsewhere"
    own = "A base.\n\nWith a second paragraph."
    assert inspect.getdoc(Base) == f"{own}\n\nAttributes:\n    first: Of the base, on two lines."
    assert "first: Of the base" in pydoc.render_doc(Base)
    assert "left: On the left." in pydoc.render_doc(Pair)
    assert "right" not in str(Pair.__doc__)


def test_class_without_source_keeps_its_docstring() -> None:
    made: type = dataclass(type("Made", (), {"__doc__": "Made up.", "__annotations__": {"a": int}}))
    made.__module__ = "builtins"
    describe_fields(made)
    assert made.__doc__ == "Made up."
