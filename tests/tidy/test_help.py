"""What `help()` says of public classes, and of those that their methods return."""

import dataclasses
import enum
import importlib
import inspect
import pydoc
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast, get_args, get_type_hints

import pytest

PUBLIC = ("ternmq", "ternmq.spark")

OF_EXTRAS = {
    "pa": SimpleNamespace(RecordBatch=object),
    **dict.fromkeys(("Context", "Link", "MeterProvider", "Span", "TracerProvider"), object),
    "Token": list,
}
"""Names in annotations that are imported for type checkers alone."""


def classes_in(hint: Any) -> Iterator[type]:
    """The product's classes that an annotation names."""
    if inspect.isclass(hint) and hint.__module__.startswith("ternmq"):
        yield hint
    parts = cast("list[Any]", hint if isinstance(hint, list) else get_args(hint))
    for each in parts:
        yield from classes_in(each)


def fields_of(kind: Any) -> list[str]:
    if issubclass(kind, enum.Enum):
        return list(kind.__members__)
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind) if field.init]
    return list(getattr(kind, "_fields", ()))


def reachable(kind: type, found: dict[type, list[str]]) -> None:
    """Add `kind`, and the classes of its fields and of what its public methods return."""
    if kind in found:
        return
    found[kind] = fields_of(kind)
    hints = list(get_type_hints(kind).values()) if found[kind] else []
    for name, member in inspect.getmembers(kind):
        function = member.fget if isinstance(member, property) else member
        if inspect.isfunction(function) and not name.startswith("_"):
            hints.append(get_type_hints(function, localns=OF_EXTRAS).get("return"))
    for hint in hints:
        for each in classes_in(hint):
            reachable(each, found)


def classes_with_fields() -> dict[type, list[str]]:
    found: dict[type, list[str]] = {}
    for module in map(importlib.import_module, PUBLIC):
        for name, value in vars(module).items():
            if inspect.isclass(value) and not name.startswith("_"):
                reachable(value, found)
    return {kind: fields for kind, fields in found.items() if fields}


@pytest.mark.parametrize(
    ("kind", "fields"),
    classes_with_fields().items(),
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_help_describes_every_field_of_a_public_class(kind: type, fields: list[str]) -> None:
    told = pydoc.plain(pydoc.render_doc(kind))
    attributes = told.partition("Attributes:")[2].partition("-----")[0]
    missing = [name for name in fields if not re.search(rf"^ \|  +{name}: \S", attributes, re.M)]
    assert not missing, f"{kind.__name__}: no words below, or in Attributes, on {missing}"


def test_help_is_checked_for_the_classes_that_users_make_and_get() -> None:
    assert {"Message", "ClientConfig", "SendResult", "ConsumeStatus", "Archived"} | {
        "GroupDescription", "GroupSettings", "QueueStatus", "QueueProgress", "OffsetChange",
        "ResetOutcome", "BrokerData", "ProducerMember",
    } <= {kind.__name__ for kind in classes_with_fields()}  # fmt: skip
