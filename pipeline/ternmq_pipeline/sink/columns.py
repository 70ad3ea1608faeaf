"""Columns of the sink, and their types. Pure.

Types have Spark's short names (`DataType.simpleString()`), so this module does not need Spark.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ternmq_model.errors import UsageError

BODY: Final = "body"
TOPIC: Final = "topic"
TAGS: Final = "tags"
KEYS: Final = "keys"
PROPERTIES: Final = "properties"
SHARDING_KEY: Final = "shardingKey"
DELAY: Final = "delay"

_STRING: Final = "string"
_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")

TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    BODY: ("binary", _STRING),
    TOPIC: (_STRING,),
    TAGS: (_STRING,),
    KEYS: ("array<string>", _STRING),
    PROPERTIES: ("map<string,string>",),
    SHARDING_KEY: (_STRING,),
    DELAY: (*_INTEGERS, "timestamp"),
}
"""Columns in the documented order, and their allowed types."""

_OF_KAFKA: Final = {"value": BODY, "key": KEYS, "headers": PROPERTIES}
"""Columns of Spark's Kafka sink, and their names in this sink."""

_NULL: Final = "void"
"""Type of a column of nulls. Such a column counts as missing."""

_STRING_LIKE: Final = re.compile(r"\b(?:string collate \w+|(?:var)?char\(\d+\))", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """Positions of the columns in the rows of one write. None = no such column."""

    body: int
    topic: int | None = None
    tags: int | None = None
    keys: int | None = None
    properties: int | None = None
    sharding_key: int | None = None
    delay: int | None = None

    topic_for_all: str | None = None
    """Value of the option `topic`. It takes precedence over the column."""

    keys_are_text: bool = False
    """True = the column `keys` is one string, with blanks between the keys."""

    delay_is_time: bool = False


def column_layout(fields: Sequence[tuple[str, str]], *, topic: str | None) -> ColumnLayout:
    """Return the positions of the columns in rows with these fields.

    Args:
        fields: Name and type of each column; names in any case.
        topic: Value of the option `topic`.

    Raises:
        UsageError: A column is unknown, stands twice, has a wrong type, or a needed one is missing.
            The error names it.
    """
    known = {name.lower(): name for name in TYPES}
    places: dict[str, int] = {}
    types: dict[str, str] = {}
    for place, (field, field_type) in enumerate(fields):
        name = known.get(field.lower())
        if name is None:
            raise UsageError(_unknown(field, known))
        if name in places:
            raise UsageError(f"column {name!r} is there twice")
        plain = _STRING_LIKE.sub(_STRING, field_type.lower())
        if plain not in TYPES[name] and (plain != _NULL or name == BODY):
            raise UsageError(
                f"column {name!r} has the type {field_type}; it must be {' or '.join(TYPES[name])}"
            )
        places[name], types[name] = place, plain
    if BODY not in places:
        raise UsageError("there is no column 'body'; the sink needs one, binary or string")
    present = {name: place for name, place in places.items() if types[name] != _NULL}
    if topic is None and TOPIC not in present:
        raise UsageError("there is neither an option 'topic' nor a column 'topic'")
    return ColumnLayout(
        body=present[BODY],
        topic=present.get(TOPIC),
        tags=present.get(TAGS),
        keys=present.get(KEYS),
        properties=present.get(PROPERTIES),
        sharding_key=present.get(SHARDING_KEY),
        delay=present.get(DELAY),
        topic_for_all=topic,
        keys_are_text=types.get(KEYS) == _STRING,
        delay_is_time=types.get(DELAY) == "timestamp",
    )


def _unknown(field: str, known: Mapping[str, str]) -> str:
    """Return the error text for an unknown column."""
    name = field.lower()[:100]
    nearest = [known[one] for one in difflib.get_close_matches(name, known, n=1)]
    meant = _OF_KAFKA.get(name) or next(iter(nearest), None)
    hint = f"did you mean {meant!r}? Its" if meant else "its"
    return f"column {field!r}: the sink does not know it; {hint} columns are {', '.join(TYPES)}"
