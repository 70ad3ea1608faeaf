"""Values of settings: from text to a field's type, and back to text. Pure.

A field's type decides the accepted values, and the end of its name decides the unit: `*_bytes`
accepts `64MiB`, `*_s` and `*_ms` accept `30s`.
"""

import re
import types
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Union, cast, get_args, get_origin

_BYTES_PER_UNIT = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_SIZE = re.compile(r"(\d[\d_]*)\s*([a-z]*)", re.IGNORECASE)

_MS_PER_UNIT = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?(?:e-?\d+)?)\s*(ms|s|m|h|d)", re.IGNORECASE)

_TRUE_WORDS = frozenset({"true", "yes", "on", "1"})
_FALSE_WORDS = frozenset({"false", "no", "off", "0"})
_NONE_WORDS = frozenset({"", "none"})

_NUMBER_LIMIT = 1 << 63


def parse_value(raw: object, kind: object, name: str) -> object:
    """Return the value of type `kind` for field `name`.

    Args:
        raw: Text, or a value of TOML.
        kind: Type of the field: str, int, float, bool, Path, an Enum (by value), `tuple[X, ...]`
            (text separated by commas, or a list), or one of these `| None` (empty or `none`).
        name: Name of the field. Its end decides the unit.

    Raises:
        ValueError: `raw` is no such value. The message is the rule: "must be …".
        TypeError: No setting can have the type `kind`: the class is wrong.
    """
    inner = _optional(kind)
    if inner is not None:
        if isinstance(raw, str) and raw.strip().lower() in _NONE_WORDS:
            return None
        return parse_value(raw, inner, name)
    if get_origin(kind) is tuple:
        item_kind = get_args(kind)[0]
        return tuple(parse_value(item, item_kind, name) for item in _items(raw))
    if not isinstance(kind, type):
        raise TypeError(f"setting {name!r} has the type {kind!r}, which cannot be given as text")
    if kind is bool:
        return _parse_bool(raw)
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        raise ValueError(f"must be {describe_kind(kind, name)}")
    return _parse_text(str(raw).strip(), kind, name)


def _parse_text(text: str, kind: type, name: str) -> object:
    if issubclass(kind, Enum):
        return _parse_enum(text, kind)
    if kind is str:
        return text
    if kind is Path:
        if not text:
            raise ValueError("must be a path, not empty")
        try:
            return Path(text).expanduser()
        except RuntimeError:
            raise ValueError("names a home directory that is not there") from None
    if kind not in (int, float):
        raise TypeError(f"setting {name!r} has the type {kind!r}, which cannot be given as text")
    number = _parse_number(text, name)
    # Not-a-number fails the comparison too.
    if number is None or not abs(number) < _NUMBER_LIMIT or (kind is int and number % 1):
        raise ValueError(f"must be {describe_kind(kind, name)}")
    return int(number) if kind is int else float(number)


def _parse_number(text: str, name: str) -> int | float | None:
    """Return the number in `text`, in the unit of `name`; None = no number."""
    if name.endswith("_bytes") and (size := _SIZE.fullmatch(text)):
        factor = _BYTES_PER_UNIT.get(size[2].lower())
        return None if factor is None else int(size[1]) * factor
    if name.endswith(("_s", "_ms")) and (duration := _DURATION.fullmatch(text)):
        in_ms = float(duration[1]) * _MS_PER_UNIT[duration[2].lower()]
        return in_ms if name.endswith("_ms") else in_ms / 1_000
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return None


def _parse_bool(raw: object) -> bool:
    word = str(raw).strip().lower()  # a TOML boolean becomes one of the words as well
    if word in _TRUE_WORDS | _FALSE_WORDS:
        return word in _TRUE_WORDS
    raise ValueError("must be true or false")


def _parse_enum(text: str, kind: type[Enum]) -> Enum:
    for member in kind:
        if str(member.value).lower() == text.lower():
            return member
    raise ValueError(f"must be {describe_kind(kind, '')}")


def _items(raw: object) -> Sequence[object]:
    if isinstance(raw, str):
        return [item.strip() for item in raw.split(",") if item.strip()]
    if isinstance(raw, list):
        return cast("list[object]", raw)
    raise ValueError("must be a list, or text separated by commas")


def _optional(kind: object) -> object | None:
    """Return X if `kind` is `X | None`, else None."""
    if get_origin(kind) not in (Union, types.UnionType):
        return None
    others = [arg for arg in get_args(kind) if arg is not types.NoneType]
    return others[0] if len(others) == 1 else None


def describe_kind(kind: Any, name: str) -> str:
    """Return the description of the values of field `name` of type `kind`: "true or false"."""
    inner = _optional(kind)
    if inner is not None:
        return f"{describe_kind(inner, name)}, or none"
    if get_origin(kind) is tuple:
        return "a list separated by commas"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(str(member.value) for member in kind)
    if kind in (int, float):
        whole = "whole " if kind is int else ""
        if name.endswith("_bytes"):
            return "a size such as 512KiB, 64MiB, 1GiB, or a number of bytes"
        if name.endswith("_s"):
            return f"a duration such as 500ms, 30s, 5m, 2h, or a {whole}number of seconds"
        if name.endswith("_ms"):
            return f"a duration such as 500ms, 30s, 5m, 2h, or a {whole}number of milliseconds"
        return f"a {whole}number"
    if kind is bool:
        return "true or false"
    return "a path" if kind is Path else "text"


def format_value(value: object, name: str) -> str:
    """Write `value` of field `name` so that `parse_value` reads it again: "64MiB"."""
    if value is None:
        return "none"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(format_value(item, name) for item in cast("tuple[object, ...]", value))
    if isinstance(value, int) and name.endswith("_bytes"):
        for unit in ("TiB", "GiB", "MiB", "KiB"):
            if value and value % _BYTES_PER_UNIT[unit.lower()] == 0:
                return f"{value // _BYTES_PER_UNIT[unit.lower()]}{unit}"
    if isinstance(value, int | float) and name.endswith(("_s", "_ms")):
        return _format_duration(value * (1 if name.endswith("_ms") else 1_000))
    return str(value)


def _format_duration(in_ms: float) -> str:
    in_ms = round(in_ms, 9)  # 1.005 s are 1004.9999999999999 ms
    unit = next((unit for unit in ("d", "h", "m", "s") if in_ms % _MS_PER_UNIT[unit] == 0), "ms")
    number = in_ms / _MS_PER_UNIT[unit] if in_ms else 0
    return f"{int(number) if number == int(number) else number}{unit if in_ms else 's'}"
