"""Losses by a change of settings: messages that are deleted earlier. Pure."""

from collections.abc import Mapping
from typing import Final

from ternmq_console.cli.options import duration_text
from ternmq_runtime.settings.values import parse_value

_LOWERED: Final = {
    "store.disk_clean_percent": "disk use at which expired files are deleted at once, in percent",
    "store.disk_force_percent": "disk use at which unexpired files are deleted, in percent",
    "store.file_reserved_hours": "age in hours of the newest message at which files are deleted",
}
"""Settings whose lower values delete files earlier, with their effect."""

_FORCIBLY: Final = "store.clean_forcibly"


def settings_losses(now: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """Return a line for each change of a broker's settings that deletes messages earlier.

    Args:
        now: Present settings of the broker, by name.
        wanted: New values. Unknown settings and illegal values have no line.
    """
    lines: list[str] = []
    for name, text in sorted(wanted.items()):
        if name not in now or name not in (*_LOWERED, _FORCIBLY):
            continue
        try:
            value = parse_value(text, bool if name == _FORCIBLY else int, name)
        except ValueError:
            continue
        if name == _FORCIBLY and value is True and now[name] != "true":
            lines.append(f"{name}=true: a full disk deletes files that have not expired")
        elif name in _LOWERED and isinstance(value, int) and value < int(now[name]):
            lines.append(f"{name}={value}, {now[name]} before: {_LOWERED[name]}")
    return lines


def retention_losses(topic: str, changes_ms: Mapping[str, tuple[int, int]]) -> list[str]:
    """Return a line for each broker with a shorter retention of a topic.

    Args:
        topic: Name of the topic.
        changes_ms: Present and new retention of each broker, ms.
    """
    return [
        f"{broker}: messages of {topic} that are {duration_text(wanted_ms)} old can no longer"
        f" be read, {duration_text(before_ms)} before"
        for broker, (before_ms, wanted_ms) in changes_ms.items()
        if wanted_ms < before_ms
    ]
