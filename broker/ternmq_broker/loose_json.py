"""RocketMQ's state files: JSON in which integer keys may lack their quotes. Pure."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from ternmq_model.data_version import DataVersion

_TOKEN: Final = re.compile(
    r'"(?:[^"\\]|\\.)*"|(?P<begin>[{,])(?P<blank>\s*)(?P<key>-?[0-9]+)(?=\s*:)'
)


def parse_json(text: str) -> dict[str, Any]:
    """Return the object that `text` holds, whether or not its integer keys are quoted.

    Raises:
        ValueError: It is no such object.
    """
    return as_object(json.loads(_TOKEN.sub(_quote, text)), "the file")


def _quote(match: re.Match[str]) -> str:
    key = match["key"]
    return match[0] if key is None else f'{match["begin"]}{match["blank"]}"{key}"'


def write_json(value: Mapping[str, Any]) -> str:
    """Return `value` as strict JSON, which RocketMQ reads as well."""
    return json.dumps(value, indent="\t", sort_keys=True, ensure_ascii=False) + "\n"


def version_to_dict(version: DataVersion) -> dict[str, int]:
    """Return a table's version as the files keep it."""
    return {
        "counter": version.counter,
        "stateVersion": version.state_version,
        "timestamp": version.timestamp_ms,
    }


def version_from_dict(value: object, *, now_ms: int) -> DataVersion:
    """Return the version that a file keeps; a new one when it keeps none.

    Raises:
        ValueError: It keeps something else.
    """
    if value is None:
        return DataVersion(now_ms)
    table = as_object(value, "dataVersion")
    return DataVersion(
        as_int(table.get("timestamp", now_ms), "timestamp"),
        as_int(table.get("counter", 0), "counter"),
        as_int(table.get("stateVersion", 0), "stateVersion"),
    )


def as_object(value: object, name: str) -> dict[str, Any]:
    """Return `value`, an object with text keys.

    Raises:
        ValueError: It is something else.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {value!r}, not an object")
    return cast("dict[str, Any]", value)


def as_int(value: object, name: str) -> int:
    """Return `value`, a whole number.

    Raises:
        ValueError: It is something else.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}, not a whole number")
    return value
