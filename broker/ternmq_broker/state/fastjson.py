"""RocketMQ's state files: JSON in which keys may lack their quotes or be objects. Pure."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from ternmq_model.data_version import DataVersion
from ternmq_model.json_checksum import as_object

_TOKEN: Final = re.compile(
    r'"(?:[^"\\]|\\.)*"|(?P<begin>[{,])(?P<blank>\s*)(?P<key>-?[0-9]+)(?=\s*:)'
)


DEPTH_MAX: Final = 64
_PLAIN: Final = re.compile(
    r'"(?:[^"\\]|\\.)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null'
)
_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_EXCERPT_CHARACTERS: Final = 20


def parse_json(text: str) -> dict[str, Any]:
    """Return the JSON object in `text`, also with keys that are no strings.

    A key that is a whole number becomes its digits. A key that is an object becomes its JSON,
    sorted and without blanks. A trailing comma is accepted.

    Raises:
        ValueError: The text is no object, or is deeper than `DEPTH_MAX`.
    """
    try:
        value = json.loads(_TOKEN.sub(_quote, text))
    except (ValueError, RecursionError):
        value = _FastjsonParser(text).read()
    return as_object(value, "the file")


class _FastjsonParser:
    """Parser of JSON that the json module refuses. Slower."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def read(self) -> object:
        """Return the one value in the text."""
        value = self._value()
        self._skip()
        if self._at != len(self._text):
            raise self._error("the end")
        return value

    def _error(self, expected: str) -> ValueError:
        found = self._text[self._at : self._at + _EXCERPT_CHARACTERS]
        return ValueError(f"{expected} expected at character {self._at}, found {found!r}")

    def _skip(self) -> str:
        """Pass over blanks and return the next character; empty at the end."""
        match = _BLANKS.match(self._text, self._at)
        assert match is not None, "the pattern also matches the empty text"
        self._at = match.end()
        return self._text[self._at : self._at + 1]

    def _value(self) -> object:
        first = self._skip()
        if first == "{":
            table: dict[str, Any] = {}
            self._items("}", lambda: self._member(table))
            return table
        if first == "[":
            found: list[object] = []
            self._items("]", lambda: found.append(self._value()))
            return found
        match = _PLAIN.match(self._text, self._at)
        if match is None:
            raise self._error("a value")
        self._at = match.end()
        value: object = json.loads(match[0])
        return value

    def _member(self, table: dict[str, Any]) -> None:
        key: object = self._value()
        if isinstance(key, dict):
            key = json.dumps(key, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
        elif isinstance(key, int) and not isinstance(key, bool):
            key = str(key)
        if not isinstance(key, str):
            raise self._error("a key before this")
        if self._skip() != ":":
            raise self._error("a colon")
        self._at += 1
        table[key] = self._value()

    def _items(self, end: str, read: Callable[[], None]) -> None:
        self._at += 1
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ValueError(f"more than {DEPTH_MAX} deep at character {self._at}")
        while (following := self._skip()) != end:
            read()
            following = self._skip()
            if following == ",":
                self._at += 1
            elif following != end:
                raise self._error(f"a comma or {end}")
        self._at += 1
        self._depth -= 1


def _quote(match: re.Match[str]) -> str:
    key = match["key"]
    return match[0] if key is None else f'{match["begin"]}{match["blank"]}"{key}"'


def write_json(value: Mapping[str, Any]) -> str:
    """Return `value` as strict JSON, which RocketMQ reads, too: a line for each row of a table.

    Rows are not indented: Python's indenting encoder is five times slower, on the broker's loop.
    """
    members = (_member(key, value[key]) for key in sorted(value))
    return "{\n\t" + ",\n\t".join(members) + "\n}\n"


class WrittenRows(dict[str, str]):
    """Rows of a table, each its name with its value as `write_row` returns them."""


def write_row(name: object, value: object) -> str:
    """Return one row of a table as JSON: its name and its value."""
    return _ENCODER.encode({name: value})[1:-1]


def _member(key: str, value: Any) -> str:
    rows: Any = value
    if not isinstance(value, dict) or not value:
        return write_row(key, rows)
    is_written = isinstance(value, WrittenRows)
    lines = (rows[name] if is_written else write_row(name, rows[name]) for name in sorted(rows))
    return _ENCODER.encode(key) + ": {\n\t\t" + ",\n\t\t".join(lines) + "\n\t}"


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, sort_keys=True)


def version_to_dict(version: DataVersion) -> dict[str, int]:
    """Return the version of a table as JSON."""
    return {
        "counter": version.counter,
        "stateVersion": version.state_version,
        "timestamp": version.timestamp_ms,
    }


def version_from_dict(value: object, *, now_ms: int) -> DataVersion:
    """Return the version of a table from JSON; a new version for None.

    Raises:
        ValueError: The value is no version.
    """
    if value is None:
        return DataVersion(now_ms)
    table = as_object(value, "dataVersion")
    return DataVersion(
        as_int(table.get("timestamp", now_ms), "timestamp"),
        as_int(table.get("counter", 0), "counter"),
        as_int(table.get("stateVersion", 0), "stateVersion"),
    )


def as_int(value: object, name: str) -> int:
    """Return `value`, a whole number.

    Raises:
        ValueError: The value has another type.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}, not a whole number")
    return value
