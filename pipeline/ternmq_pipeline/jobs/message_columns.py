"""Rows that were messages as rows for the sink: Spark's expressions for its columns. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from ternmq_client.admin.redrive import ORIGIN_TOPICS
from ternmq_model import properties as names
from ternmq_model.errors import UsageError
from ternmq_pipeline.sink.identity import NOT_COPIED

_BODIES: Final = ("binary", "string")
_KEYS: Final = ("array<string>", "string")


def message_columns(fields: Mapping[str, str]) -> list[str]:
    """Return the sink's columns, but for the topic, of rows that have these fields.

    A row needs a body alone: tags, keys, properties and shardingKey are taken where they are, and
    other columns are not looked at.

    Args:
        fields: Spark's short type of each column, by name.

    Raises:
        UsageError: There is no body, or a column has a type that cannot be sent; it is named.
    """
    if "body" not in fields:
        raise UsageError(
            f"there is no column 'body'; the columns are {', '.join(fields) or 'none at all'}"
        )
    _check(fields, "body", _BODIES)
    found = ["cast(body AS binary) AS body"]
    if _check(fields, "tags", ("string",)):
        found.append("tags")
    if _check(fields, "keys", _KEYS):
        found.append("keys")
    has_properties = _check(fields, "properties", ("map<string,string>",))
    if has_properties:
        found.append(f"{_KEPT} AS properties")
    if _check(fields, "shardingKey", ("string",)):
        found.append("shardingKey")
    elif has_properties:
        found.append(f"properties[{text(names.SHARDING_KEY)}] AS shardingKey")
    return found


def origin_topic() -> str:
    """Return the expression for the first topic of a dead letter; null when unknown."""
    told = (f"nullif(properties[{text(name)}], '')" for name in ORIGIN_TOPICS)
    return f"coalesce({', '.join(told)})"


def between(start_ms: int | None, end_ms: int | None) -> list[str]:
    """Return conditions for rows stored from one time on, and before another."""
    found: list[str] = []
    if start_ms is not None:
        found.append(f"storeTimestamp >= timestamp_millis({start_ms})")
    if end_ms is not None:
        found.append(f"storeTimestamp < timestamp_millis({end_ms})")
    return found


def all_of(conditions: Iterable[str]) -> str:
    """Return one condition for all of these, `true` for none."""
    return " AND ".join(f"({condition})" for condition in conditions) or "true"


def text(value: str) -> str:
    """Return a text as Spark's SQL writes it."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _check(fields: Mapping[str, str], name: str, types: Collection[str]) -> bool:
    """Return whether a column exists, after a check of its type."""
    if name not in fields:
        return False
    if fields[name] not in types:
        raise UsageError(
            f"column {name!r} has the type {fields[name]}; it must be {' or '.join(types)}"
        )
    return True


_KEPT: Final = (
    "map_filter(properties, (name, value) -> value IS NOT NULL "
    f"AND name NOT IN ({', '.join(map(text, sorted(NOT_COPIED)))}) "
    f"AND NOT startswith(name, {text(names.TIMER_PREFIX)}))"
)
"""The map of those properties that are handed on."""
