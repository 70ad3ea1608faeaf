"""Columns that the sink takes, and their types. Pure.

Types go by Spark's short names (`DataType.simpleString()`), so that nothing here needs Spark.
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
"""The columns, in the order in which they are documented, and the types each may have."""

_OF_KAFKA: Final = {"value": BODY, "key": KEYS, "headers": PROPERTIES}
"""Names here for columns of Spark's Kafka sink."""

_NULL: Final = "void"
"""The type of a column in which there is nothing but null: as if it were not there."""

_STRING_LIKE: Final = re.compile(r"\b(?:string collate \w+|(?:var)?char\(\d+\))", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """Positions of the columns in the rows of one write. None = it has none."""

    body: int
    topic: int | None = None
    tags: int | None = None
    keys: int | None = None
    properties: int | None = None
    sharding_key: int | None = None
    delay: int | None = None

    topic_for_all: str | None = None
    """The option `topic`: it goes before the column."""

    keys_are_text: bool = False
    """Keys come as one string, with blanks between them."""

    delay_is_time: bool = False


def column_layout(fields: Sequence[tuple[str, str]], *, topic: str | None) -> ColumnLayout:
    """Return where the columns of rows with these fields are.

    Args:
        fields: Name and type of each column; names in any case.
        topic: The option `topic`.

    Raises:
        UsageError: A column is unknown, there twice or of a wrong type, or one that is needed is
            missing; it is named.
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
    """Return what to tell of a column that does not exist."""
    name = field.lower()[:100]
    nearest = [known[one] for one in difflib.get_close_matches(name, known, n=1)]
    meant = _OF_KAFKA.get(name) or next(iter(nearest), None)
    hint = f"did you mean {meant!r}? Its" if meant else "its"
    return f"column {field!r}: the sink does not know it; {hint} columns are {', '.join(TYPES)}"
