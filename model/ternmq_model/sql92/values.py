"""Comparison of the values of a condition. Properties are always strings. Pure.

Source: RocketMQ `ComparisonExpression`, Java's `Long.valueOf`, `Double.valueOf`, `compareTo`.
"""

import math
import re
from typing import Final

from ternmq_model.expression_text import trimmed
from ternmq_model.sql92.tree import Value

LONG_MIN: Final = -(1 << 63)
LONG_MAX: Final = (1 << 63) - 1
DOUBLE_LEAST: Final = 5e-324
"""Least number with a decimal point. RocketMQ refuses lower ones, 0.0 included."""

_LONG: Final = re.compile(r"[+-]?\d+")
_DOUBLE: Final = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<word>NaN|Infinity)"
    r"|(?P<digits>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?)"
)


class Unconvertible(ValueError):
    """Error for a string of another type than the compared value. The whole condition fails."""


def long_of(text: str) -> int:
    """Return the integer in `text`.

    Raises:
        Unconvertible: `text` is no integer of 64 bits.
    """
    if _LONG.fullmatch(text) is None:
        raise Unconvertible(text)
    try:
        number = int(text)
    except ValueError:  # more digits than Python converts
        raise Unconvertible(text) from None
    if not LONG_MIN <= number <= LONG_MAX:
        raise Unconvertible(text)
    return number


def double_of(text: str) -> float:
    """Return the number in `text`, without surrounding blanks.

    Raises:
        Unconvertible: `text` is no number.
    """
    found = _DOUBLE.fullmatch(trimmed(text))
    if found is None:
        raise Unconvertible(text)
    return float(found["sign"] + (found["word"] or found["digits"]))


def bool_of(text: str) -> bool:
    """Return whether `text` is "true", in any case."""
    return text.lower() == "true"


def compare_doubles(left: float, right: float) -> int:
    """Return -1, 0 or 1 for `left` less than, equal to or above `right`. NaN > all, -0.0 < 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right and left != 0:
        return 0
    # Zeros and not-a-numbers.
    one = math.isnan(left), math.copysign(1, left)
    other = math.isnan(right), math.copysign(1, right)
    if one[0] or other[0]:
        return one[0] - other[0]
    return (one[1] > other[1]) - (one[1] < other[1])


def compare(left: str | float | bool, right: str | float | bool) -> int:
    """Return -1, 0 or 1 for `left` less than, equal to or above `right`.

    A string beside a number or a truth value is converted to that type. A number and a truth value
    are never equal.

    Raises:
        Unconvertible: The string cannot be converted.
    """
    if isinstance(left, str):
        if isinstance(right, str):
            return (left > right) - (left < right)
        left = _like(left, right)
    elif isinstance(right, str):
        right = _like(right, left)
    if isinstance(left, bool) is not isinstance(right, bool):
        return -1
    if isinstance(left, float) or isinstance(right, float):
        return compare_doubles(float(left), float(right))
    return (left > right) - (left < right)


def _like(text: str, other: float | bool) -> float | bool:
    if isinstance(other, bool):
        return bool_of(text)
    return long_of(text) if isinstance(other, int) else double_of(text)


def are_equal(left: Value, right: Value) -> bool | None:
    """Return whether both are equal, also if both are missing; None = only the left one is missing.

    Raises:
        Unconvertible: A string cannot be converted to the type of the other value.
    """
    if left is None:
        return True if right is None else None
    return right is not None and compare(left, right) == 0


def order(left: Value, right: Value) -> int | None:
    """Return the result of `compare` for two numbers; None = one of them is missing.

    Two strings are converted to numbers with a decimal point.

    Raises:
        Unconvertible: A string is no number.
    """
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        return compare_doubles(double_of(left), double_of(right))
    return compare(left, right)
