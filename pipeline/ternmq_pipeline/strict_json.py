"""Strict reader of JSON from users and checkpoints. Pure.

Python's own reader accepts `NaN`, keeps the last of several equal keys and raises four types of
errors. A wrong offset that comes from such JSON would be found weeks later.
"""

import json
from typing import Any, Final, cast

from ternmq_model.errors import ConfigError

CHARACTERS_MAX: Final = 8 << 20
"""Most characters of a text: offsets of about 200,000 queues."""

SHOWN_CHARACTERS_MAX: Final = 100


def shown(value: object) -> object:
    """Return `value` for an error. A long text is cut at its end."""
    if isinstance(value, str) and len(value) > SHOWN_CHARACTERS_MAX:
        return value[:SHOWN_CHARACTERS_MAX] + "…"
    return value


def read_object(text: str, *, option: str) -> dict[str, Any]:
    """Return the JSON object in `text`.

    Args:
        text: JSON, at most 8 Mi characters.
        option: Name of the option, for errors.

    Raises:
        ConfigError: `text` is too long, is no JSON object, repeats a key, or has NaN or Infinity.
    """
    if len(text) > CHARACTERS_MAX:
        rule = f"is {len(text)} characters long, at most {CHARACTERS_MAX} are read"
        raise ConfigError(option, shown(text), rule)
    try:
        found: object = json.loads(
            text, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError) as error:
        raise ConfigError(option, shown(text), f"must be JSON: {_told(error)}") from None
    if not isinstance(found, dict):
        raise ConfigError(option, shown(text), "must be a JSON object, such as {…}")
    return cast("dict[str, Any]", found)


def _told(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{shown(key)!r} is there twice")
        found[key] = value
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")
