"""What `help()` says of public classes."""

import dataclasses
import enum
import importlib
import inspect
import pydoc
import re
from collections.abc import Iterator

import pytest

PUBLIC = ("ternmq", "ternmq.spark")


def classes_with_fields() -> Iterator[tuple[type, list[str]]]:
    for module in map(importlib.import_module, PUBLIC):
        for name, value in vars(module).items():
            if name.startswith("_") or not inspect.isclass(value):
                continue
            if issubclass(value, enum.Enum):
                yield value, list(value.__members__)
            elif dataclasses.is_dataclass(value):
                yield value, [field.name for field in dataclasses.fields(value) if field.init]
            elif fields := getattr(value, "_fields", None):
                yield value, list(fields)


@pytest.mark.parametrize(
    ("kind", "fields"), [*classes_with_fields()], ids=lambda value: getattr(value, "__name__", "")
)
def test_help_describes_every_field_of_a_public_class(kind: type, fields: list[str]) -> None:
    told = pydoc.plain(pydoc.render_doc(kind))
    attributes = told.partition("Attributes:")[2].partition("-----")[0]
    missing = [name for name in fields if not re.search(rf"^ \|  +{name}: \S", attributes, re.M)]
    assert not missing, f"{kind.__name__}: no words below, or in Attributes, on {missing}"


def test_help_is_checked_for_the_classes_that_users_make() -> None:
    assert {"Message", "ClientConfig", "SendResult", "ConsumeStatus", "Archived"} <= {
        kind.__name__ for kind, _ in classes_with_fields()
    }
