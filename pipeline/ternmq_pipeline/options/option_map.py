"""Options from Spark: texts by name, in any case. Pure.

`OptionMap` reads every value, so each error names the option.
"""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final, TypeVar, cast

from ternmq_client.retry_timeout import RETRY_TIMEOUT, RETRY_TIMEOUT_S
from ternmq_model.errors import ConfigError, UsageError
from ternmq_pipeline.strict_json import shown

EnumT = TypeVar("EnumT", bound=Enum)

VALUE_CHARACTERS_MAX: Final = 8 << 20
"""Longest value of an option."""

RETRY_TIMEOUT_S_MIN: Final = 1.0
RETRY_TIMEOUT_S_MAX: Final = 86_400.0
"""Greatest value of `retryTimeout`, s."""

_NOW_RETRY_TIMEOUT: Final = f"is {RETRY_TIMEOUT} now, which applies to all requests of a query"
RENAMED: Final[Mapping[str, str]] = dict.fromkeys(
    (
        "readtimeout",
        "sendtimeout",
        "committimeout",
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "kafkaconsumer.polltimeoutms",
        "kafka.delivery.timeout.ms",
    ),
    _NOW_RETRY_TIMEOUT,
)
"""Former names of `retryTimeout`, and names of Kafka's options, with the rule to quote."""

COUNT_MAX: Final = (1 << 63) - 1

_OF_SPARK: Final = frozenset(
    {"checkpointlocation", "queryname", "asyncprogresstrackingenabled", "serialization.format"}
)
"""Options that Spark itself adds to a source's or sink's, in lower case."""

_INTERNAL_PREFIXES: Final = ("__", "spark.")
"""Prefixes of the names of Spark's own options."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_DURATION: Final = re.compile(
    r"(?P<number>[0-9]{1,15}(?:\.[0-9]{1,9})?) *(?P<unit>[a-z]*)", re.ASCII | re.IGNORECASE
)
_UNITS_MS: Final[Mapping[str, float]] = {
    "us": 0.001,
    "ms": 1,
    "s": 1_000,
    "sec": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "hr": 3_600_000,
    "d": 86_400_000,
}
"""Units of Spark's own durations."""


class OptionMap:
    """Options of one reader or writer, by name and type.

    Args:
        known: Names of all options, in the documented case.
        hints: Rules for names of other connectors, by name in lower case.

    Raises:
        UsageError: An option is unknown, given twice, or no text.
    """

    def __init__(
        self, options: Mapping[str, str], *, known: Iterable[str], hints: Mapping[str, str]
    ) -> None:
        names = {name.lower(): name for name in known}
        self._values: dict[str, str] = {}
        for name, value in cast("Iterable[tuple[object, object]]", options.items()):
            if not isinstance(name, str):
                raise UsageError(f"option {name!r}: a name must be a text")
            if is_of_spark(name):
                continue
            lower = name.lower()
            if lower not in names:
                raise UsageError(_unknown(name, names, hints))
            if names[lower] in self._values:
                raise ConfigError(names[lower], shown(value), "is given twice")
            self._values[names[lower]] = _checked_value(names[lower], value)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, trim: Callable[[str], str] = str.strip) -> str | None:
        """Return an option's text without surrounding blanks; None = not given.

        Raises:
            ConfigError: The text is empty.
        """
        value = self._values.get(name)
        if value is None:
            return None
        text = trim(value)
        if not text:
            raise ConfigError(name, shown(value), "must not be empty")
        return text

    def boolean(self, name: str, default: bool) -> bool:
        """Return the value of a boolean option: `true` or `false`, in any case."""
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise ConfigError(name, shown(text), "must be true or false")
        return text.lower() == "true"

    def integer(
        self, name: str, default: int | None, *, minimum: int, maximum: int = COUNT_MAX
    ) -> int | None:
        """Return the integer value of an option; `default` = not given."""
        text = self.text(name)
        if text is None:
            return default
        rule = f"must be a whole number from {minimum} to {maximum}"
        if not _INTEGER.fullmatch(text) or not minimum <= int(text) <= maximum:
            raise ConfigError(name, shown(text), rule)
        return int(text)

    def count(self, name: str, default: int, *, minimum: int, maximum: int = COUNT_MAX) -> int:
        """Return the integer value of an option that has a default."""
        number = self.integer(name, default, minimum=minimum, maximum=maximum)
        assert number is not None, "the default is a number"
        return number

    def seconds(self, name: str, default: float, *, minimum: float, maximum: float) -> float:
        """Return an option's duration in seconds; a number without a unit is in seconds."""
        milliseconds = self._duration_ms(name, default_unit="s")
        seconds = default if milliseconds is None else milliseconds / 1_000
        if not minimum <= seconds <= maximum:
            rule = f"must be a duration from {minimum:g} s to {maximum:g} s"
            raise ConfigError(name, shown(self.text(name)), rule)
        return seconds

    def retry_timeout_s(self) -> float:
        """Return the value of the option `retryTimeout`, s."""
        least, most = RETRY_TIMEOUT_S_MIN, RETRY_TIMEOUT_S_MAX
        return self.seconds(RETRY_TIMEOUT, RETRY_TIMEOUT_S, minimum=least, maximum=most)

    def milliseconds(self, name: str, default: int, *, minimum: int, maximum: int) -> int:
        """Return an option's duration; a number without a unit is in milliseconds."""
        found = self._duration_ms(name, default_unit="ms")
        milliseconds = default if found is None else math.floor(found)
        if not minimum <= milliseconds <= maximum:
            rule = f"must be a duration from {minimum} ms to {maximum} ms"
            raise ConfigError(name, shown(self.text(name)), rule)
        return milliseconds

    def choice(self, name: str, default: EnumT) -> EnumT:
        """Return the enumeration member with the value of an option, in any case."""
        text = self.text(name)
        if text is None:
            return default
        members = {str(member.value).lower(): member for member in type(default)}
        if text.lower() not in members:
            raise ConfigError(name, shown(text), f"must be one of {', '.join(members)}")
        return members[text.lower()]

    def one_of(self, *names: str, needed: bool) -> str | None:
        """Return the given option among `names`; None = none is given.

        Raises:
            UsageError: More than one is given; or none is given and one is needed.
        """
        there = [name for name in names if name in self]
        if len(there) > 1:
            raise UsageError(f"options {' and '.join(there)}: only one of them may be given")
        if needed and not there:
            raise UsageError(f"one of the options {', '.join(names)} must be given")
        return there[0] if there else None

    def refuse(self, names: Iterable[str], rule: str) -> None:
        """Refuse options that do not fit the read.

        Raises:
            ConfigError: One of `names` is given.
        """
        for name in names:
            if name in self:
                raise ConfigError(name, shown(self._values[name]), rule)

    def _duration_ms(self, name: str, *, default_unit: str) -> float | None:
        text = self.text(name)
        if text is None:
            return None
        match = _DURATION.fullmatch(text)
        unit = "" if match is None else match["unit"].lower() or default_unit
        if match is None or unit not in _UNITS_MS:
            raise ConfigError(name, shown(text), "must be a duration, such as 90s, 15m or 1h")
        return float(match["number"]) * _UNITS_MS[unit]


def is_of_spark(name: str) -> bool:
    """Return whether Spark itself adds an option of this name. Such options are ignored."""
    lower = name.lower()
    return lower in _OF_SPARK or lower.startswith(_INTERNAL_PREFIXES)


def _checked_value(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(name, shown(value), f"must be a text, not {type(value).__name__}")
    if len(value) > VALUE_CHARACTERS_MAX:
        rule = f"is {len(value)} characters long, at most {VALUE_CHARACTERS_MAX} are read"
        raise ConfigError(name, shown(value), rule)
    return value


def _unknown(name: str, names: Mapping[str, str], hints: Mapping[str, str]) -> str:
    lower = name.lower()
    text = f"option {shown(name)!r}: there is no such option"
    if lower in hints:
        return f"option {shown(name)!r}: {hints[lower]}"
    nearest = difflib.get_close_matches(lower[:100], names, n=1, cutoff=0.6)
    return f"{text}; did you mean {names[nearest[0]]!r}?" if nearest else text
