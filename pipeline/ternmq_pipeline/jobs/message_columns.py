"""Spark's expressions that turn rows of read messages into rows of the sink. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from ternmq_client.admin.redrive import ORIGIN_TOPICS
from ternmq_model import properties as names
from ternmq_model.errors import UsageError
from ternmq_pipeline.sink.identity import NOT_COPIED

_BODIES: Final = ("binary", "string")
_KEYS: Final = ("array<string>", "string")


def message_columns(fields: Mapping[str, str]) -> list[str]:
    """Return the sink's columns, except the topic, for rows with these fields.

    Only the column `body` is required. The columns `tags`, `keys`, `properties` and `shardingKey`
    are used if present, and other columns are ignored.

    Args:
        fields: Spark's short type of each column, by name.

    Raises:
        UsageError: `body` is missing, or a column has a wrong type. The error names the column.
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
    """Return the expression for the original topic of a dead letter; null = unknown."""
    topics = (f"nullif(properties[{text(name)}], '')" for name in ORIGIN_TOPICS)
    return f"coalesce({', '.join(topics)})"


def between(start_ms: int | None, end_ms: int | None) -> list[str]:
    """Return conditions for rows stored from `start_ms` on and before `end_ms`."""
    found: list[str] = []
    if start_ms is not None:
        found.append(f"storeTimestamp >= timestamp_millis({start_ms})")
    if end_ms is not None:
        found.append(f"storeTimestamp < timestamp_millis({end_ms})")
    return found


def all_of(conditions: Iterable[str]) -> str:
    """Return the conjunction of conditions; `true` for none."""
    return " AND ".join(f"({condition})" for condition in conditions) or "true"


def text(value: str) -> str:
    """Return a text as a literal of Spark's SQL."""
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
"""Expression for the map of the copied properties."""
