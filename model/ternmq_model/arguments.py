"""Checks of arguments, with the rule that a wrong value breaks. Pure.

Each `fault_of_…` returns the broken rule or None. A type checker finds most of these mistakes
before the program runs. These checks find them at the call.
"""

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from numbers import Integral, Real
from types import CodeType
from typing import Any, Final, TypeVar, cast

from ternmq_model.errors import ConfigError, UsageError

T = TypeVar("T")

_SECONDS_MIN: Final = 100_000_000
_SECONDS_MAX: Final = 100_000_000_000
"""Upper bound of numbers that are taken for Unix seconds: 1973 to 5138. As milliseconds they lie
before March 1973."""

_MICROSECONDS_MIN: Final = 1_000_000_000_000_000
"""Lower bound of numbers that are taken for Unix microseconds, from 2001 on. As milliseconds they
lie in the year 33658."""


def is_kind(value: object, *kinds: type) -> bool:
    """Return whether `value` is of one of `kinds`, for values with a narrower declared type."""
    return isinstance(value, kinds)


def is_whole(value: object) -> bool:
    """Return whether `value` is an integer, such as an `int` or numpy's, and no bool."""
    return value.__class__ is int or (not isinstance(value, bool) and isinstance(value, Integral))


def is_async(function: object) -> bool:
    """Return whether a call of `function` must be awaited: an `async def`, or an object of one."""
    called = getattr(function, "__call__", None)  # noqa: B004 - an object whose call is `async def`
    return any(_is_so(inspect.iscoroutinefunction, each) for each in (function, called))


def fault_of_time_ms(value: object) -> str | None:
    """Return the rule that `value` breaks as a time in Unix milliseconds; None = it is one."""
    if isinstance(value, int) and _SECONDS_MAX <= value < _MICROSECONDS_MIN:
        return None
    if isinstance(value, datetime):
        return "must be Unix milliseconds: write int(when.timestamp() * 1000)"
    if not is_whole(value):
        return "must be Unix milliseconds, a whole number: int(time.time() * 1000) is now"
    number = int(cast("int", value))
    if _SECONDS_MIN <= number < _SECONDS_MAX:
        day = datetime.fromtimestamp(number / 1000, UTC).date()
        return f"is {day} in Unix milliseconds; multiply seconds by 1000"
    if number >= _MICROSECONDS_MIN:
        return "is too far ahead for Unix milliseconds; are these micro- or nanoseconds?"
    return None


def fault_of_span_ms(value: object) -> str | None:
    """Return the rule that `value` breaks as a number of milliseconds; None = it is one."""
    if isinstance(value, timedelta):
        return "must be milliseconds: write int(span.total_seconds() * 1000)"
    return None if is_whole(value) else "must be milliseconds, a whole number"


def fault_of_seconds(value: object) -> str | None:
    """Return the rule that `value` breaks as a number of seconds; None = it is one."""
    if isinstance(value, timedelta):
        return "must be seconds: write span.total_seconds()"
    if isinstance(value, bool) or not isinstance(value, Real | Decimal):
        return "must be seconds, a number"
    return None if math.isfinite(value) else "must be seconds, a finite number"


def fault_of_function(value: object, parameters: int) -> str | None:
    """Return the rule that `value` breaks as a function of `parameters` positional arguments."""
    if inspect.isclass(value):
        return "is a class: give a function, or an instance that can be called"
    if inspect.isawaitable(value):
        return "is the result of a call: give the function itself, without parentheses"
    if not callable(value):
        return "must be a function"
    if any(_is_so(has, value) for has in (inspect.isgeneratorfunction, inspect.isasyncgenfunction)):
        return "contains a yield, so a call does not run its code: return an answer instead"
    try:
        # A function wrapped by a decorator such as `mock.patch` may have more parameters, which the
        # decorator supplies.
        signature = inspect.signature(value, follow_wrapped=False)
    except (ValueError, TypeError):  # some functions written in C, and mocks made after one
        return None
    try:
        signature.bind(*range(parameters))
    except TypeError:
        some = "one argument" if parameters == 1 else f"{parameters} arguments"
        return f"takes {signature}, must take {some}"
    return None


def check_time_ms(name: str, value: object) -> int:
    """Return `value` as Unix milliseconds.

    Raises:
        UsageError: `value` has another type or another unit.
    """
    _refuse(name, value, fault_of_time_ms(value))
    return int(cast("int", value))


def check_seconds(name: str, value: object, *, least: float = -math.inf) -> float:
    """Return `value` as seconds, at least `least`.

    Raises:
        UsageError: `value` is no finite number, or is less.
    """
    _refuse(name, value, fault_of_seconds(value))
    seconds = float(cast("float", value))
    _refuse(name, value, f"must be seconds, at least {least:g}" if seconds < least else None)
    return seconds


def check_whole(name: str, value: object, least: int, most: int | None = None) -> int:
    """Return `value` as a whole number, from `least` to `most`; None = without an upper bound.

    Raises:
        UsageError: `value` is something else.
    """
    number = int(cast("int", value)) if is_whole(value) else least - 1
    is_fit = least <= number and (most is None or number <= most)
    bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
    _refuse(name, value, None if is_fit else f"must be a whole number {bounds}")
    return number


def check_range(setting: str, value: float, least: float, most: float) -> None:
    """Check that the value of a setting is from `least` to `most`.

    Raises:
        ConfigError: The value is outside.
    """
    if not least <= value <= most:
        raise ConfigError(setting, value, f"must be {least} to {most}")


def check_function(name: str, value: object, parameters: int, *, optional: bool = False) -> None:
    """Check that `value` is a function of `parameters` positional arguments, or None if `optional`.

    Raises:
        UsageError: `value` is something else.
    """
    if value is not None or not optional:
        _refuse(name, value, fault_of_function(value, parameters))


def check_interceptors(given: Iterable[T], *methods: str) -> tuple[T, ...]:
    """Return the interceptors in `given`, which may be an iterator: objects with `methods`.

    Raises:
        UsageError: `given` is no collection, or an interceptor is a class or lacks a method.
    """
    if not is_kind(given, Iterable):
        raise UsageError(f"interceptors={given!r} must be a list of interceptors")
    interceptors = tuple(given)
    for each in interceptors:
        if inspect.isclass(each):
            _refuse("interceptors", each, f"is a class: give an instance, {each.__name__}()")
        if missing := [name for name in methods if not callable(getattr(each, name, None))]:
            _refuse("interceptors", each, f"has no method {' and '.join(missing)}")
    return interceptors


def check_kinds(section: str, settings: Any) -> None:
    """Check the types of numbers and bools in a dataclass of settings.

    The expected type is that of the field's default. Numbers of other libraries become Python's.
    The class checks its other settings.

    Raises:
        ConfigError: A setting has another type. The error names the first one.
    """
    for field in fields(settings):
        value: object = getattr(settings, field.name)
        if field.default.__class__ is bool:
            rule = None if isinstance(value, bool) else "must be True or False"
        elif field.default.__class__ is int:
            rule = None if is_whole(value) else "must be a whole number"
        elif field.default.__class__ is float:
            rule = fault_of_seconds(value)
        else:
            continue
        if rule is not None:
            raise ConfigError(f"{section}.{field.name}", value, rule)
        if not isinstance(value, int | float):
            object.__setattr__(settings, field.name, type(field.default)(cast("Any", value)))


def _is_so(tells: Callable[[object], bool], function: object) -> bool:
    """Return the result of a function of `inspect`. A mock of a function may have no code."""
    code = getattr(function, "__code__", None)
    return (code is None or isinstance(code, CodeType)) and tells(function)


def _refuse(name: str, value: object, fault: str | None) -> None:
    if fault is not None:
        raise UsageError(f"{name}={value!r} {fault}")
