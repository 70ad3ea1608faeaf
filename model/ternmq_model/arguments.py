"""Arguments that cannot be meant, and what to write instead. Pure.

Each `fault_of_…` returns the rule that a value breaks, or None. Callers that check types see most
of these mistakes before the program runs; the others see them here, at the call.
"""

import inspect
from collections.abc import Iterable
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from ternmq_model.errors import ConfigError, UsageError

_SECONDS_MIN: Final = 100_000_000
_SECONDS_MAX: Final = 100_000_000_000
"""Seconds since 1970 from 1973 to 5138. As milliseconds they lie before March 1973."""

_MICROSECONDS_MIN: Final = 1_000_000_000_000_000
"""Microseconds since 1970 from 2001 on. As milliseconds they lie in the year 33658."""


def is_kind(value: object, *kinds: type) -> bool:
    """Tell whether `value` is of one of `kinds`, whatever type its caller's checker knows."""
    return isinstance(value, kinds)


def fault_of_time_ms(value: object) -> str | None:
    """Return why `value` is no time in Unix milliseconds."""
    if isinstance(value, datetime):
        return "must be Unix milliseconds: write int(when.timestamp() * 1000)"
    if not isinstance(value, int) or isinstance(value, bool):
        return "must be Unix milliseconds, a whole number: int(time.time() * 1000) is now"
    if _SECONDS_MIN <= value < _SECONDS_MAX:
        day = datetime.fromtimestamp(value / 1000, UTC).date()
        return f"is {day} in Unix milliseconds; seconds are to be multiplied by 1000"
    if value >= _MICROSECONDS_MIN:
        return "is too far ahead for Unix milliseconds; are these micro- or nanoseconds?"
    return None


def fault_of_span_ms(value: object) -> str | None:
    """Return why `value` is no number of milliseconds."""
    if isinstance(value, timedelta):
        return "must be milliseconds: write int(span.total_seconds() * 1000)"
    if not isinstance(value, int) or isinstance(value, bool):
        return "must be milliseconds, a whole number"
    return None


def fault_of_seconds(value: object) -> str | None:
    """Return why `value` is no number of seconds."""
    if isinstance(value, timedelta):
        return "must be seconds: write span.total_seconds()"
    if not isinstance(value, int | float) or isinstance(value, bool):
        return "must be seconds, a number"
    return None


def fault_of_function(value: object, parameters: int) -> str | None:
    """Return why `value` cannot be called with so many positional arguments."""
    if inspect.isclass(value):
        return "is a class: give a function, or an instance that can be called"
    if inspect.isawaitable(value):
        return "is what a call returned: give the function itself, without parentheses"
    if not callable(value):
        return "must be a function"
    if inspect.isgeneratorfunction(value) or inspect.isasyncgenfunction(value):
        return "has a yield, so a call of it runs nothing: return an answer instead"
    try:
        signature = inspect.signature(value)
    except (ValueError, TypeError):  # some functions written in C
        return None
    try:
        signature.bind(*range(parameters))
    except TypeError:
        some = "one argument" if parameters == 1 else f"{parameters} arguments"
        return f"takes {signature}, must take {some}"
    return None


def check_time_ms(name: str, value: object) -> None:
    """Refuse what is no time in Unix milliseconds.

    Raises:
        UsageError: It is of another type, or in another unit.
    """
    _refuse(name, value, fault_of_time_ms(value))


def check_seconds(name: str, value: object) -> None:
    """Refuse what is no number of seconds.

    Raises:
        UsageError: It is something else.
    """
    _refuse(name, value, fault_of_seconds(value))


def check_function(name: str, value: object, parameters: int) -> None:
    """Refuse what is neither None nor a function of so many positional arguments.

    Raises:
        UsageError: It is something else.
    """
    if value is not None:
        _refuse(name, value, fault_of_function(value, parameters))


def check_interceptors(given: object, *methods: str) -> None:
    """Refuse what is no collection of objects with `methods`.

    Raises:
        UsageError: It is something else.
    """
    if not isinstance(given, Iterable):
        _refuse("interceptors", given, "must be a list of interceptors")
    else:
        for each in cast("Iterable[object]", given):
            missing = [name for name in methods if not callable(getattr(each, name, None))]
            if missing:
                _refuse("interceptors", each, f"has no method {' and '.join(missing)}")


def check_kinds(section: str, settings: Any) -> None:
    """Refuse a dataclass of settings in which a number or a bool is of another type.

    Its type is that of the field's default. Other settings are left to their class.

    Raises:
        ConfigError: The first such setting.
    """
    for field in fields(settings):
        if field.default is MISSING:
            continue
        value: object = getattr(settings, field.name)
        kind = cast("type[object]", type(field.default))
        rule: str | None = None
        if kind is bool:
            rule = None if isinstance(value, bool) else "must be True or False"
        elif kind is int:
            is_whole = isinstance(value, int) and not isinstance(value, bool)
            rule = None if is_whole else "must be a whole number"
        elif kind is float:
            rule = fault_of_seconds(value)
        if rule is not None:
            raise ConfigError(f"{section}.{field.name}", value, rule)


def _refuse(name: str, value: object, fault: str | None) -> None:
    if fault is not None:
        raise UsageError(f"{name}={value!r} {fault}")
