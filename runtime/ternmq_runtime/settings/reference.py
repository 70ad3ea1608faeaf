"""Reference of all settings, read from their classes."""

import dataclasses
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import get_type_hints

from ternmq_runtime.settings.field_docs import field_docs
from ternmq_runtime.settings.values import describe_kind, format_value


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingDescription:
    """Description of one setting.

    Attributes:
        name: Name, `section.field`.
        kind: Allowed values, such as "true or false".
        default: Default in the form of a setting; "required" = no default.
        doc: Docstring below the field, on one line.
    """

    name: str
    kind: str
    default: str
    doc: str


def describe(sections: Mapping[str, type]) -> list[SettingDescription]:
    """Describe every setting of `sections`, in the order of definition.

    Raises:
        OSError: The source of a class is not available.
    """
    return [
        SettingDescription(
            name=f"{section}.{field.name}",
            kind=describe_kind(hints[field.name], field.name),
            default=_default(field),
            doc=docs.get(field.name, ""),
        )
        for section, kind in sections.items()
        for hints, docs in [(get_type_hints(kind), field_docs(kind))]
        for field in dataclasses.fields(kind)
        if field.init
    ]


def settings_table(sections: Mapping[str, type]) -> str:
    """Return one Markdown table per section, each under a heading with the section's name."""
    parts: list[str] = []
    for section, kind in sections.items():
        parts.append(
            f"## {section}\n\n| setting | value | default | meaning |\n|---|---|---|---|\n"
        )
        parts += [
            f"| `{one.name}` | {_cell(one.kind)} | {_code(one.default)} | {_cell(one.doc)} |\n"
            for one in describe({section: kind})
        ]
        parts.append("\n")
    return "".join(parts).rstrip("\n") + "\n"


def _default(field: "dataclasses.Field[object]") -> str:
    if field.default is not MISSING:
        return format_value(field.default, field.name)
    if field.default_factory is not MISSING:
        return format_value(field.default_factory(), field.name)
    return "required"


def _code(default: str) -> str:
    return f"`{_cell(default)}`" if default else "empty"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
