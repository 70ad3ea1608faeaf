"""Comparison of the values of a condition: properties are strings, whatever they mean. Pure.

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
"""The least that a number with a point may be: RocketMQ refuses what is below, 0.0 among it."""

_LONG: Final = re.compile(r"[+-]?\d+")
_DOUBLE: Final = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<word>NaN|Infinity)"
    r"|(?P<digits>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?)"
)


class Unconvertible(ValueError):
    """A string is not what it is compared with: nothing can be told of the whole condition."""


def long_of(text: str) -> int:
    """Return the whole number that `text` is.

    Raises:
        Unconvertible: It is none of 64 bits.
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
    """Return the number that `text` is; blanks around it do not count.

    Raises:
        Unconvertible: It is none.
    """
    found = _DOUBLE.fullmatch(trimmed(text))
    if found is None:
        raise Unconvertible(text)
    return float(found["sign"] + (found["word"] or found["digits"]))


def bool_of(text: str) -> bool:
    """Return whether `text` is "true", in any case."""
    return text.lower() == "true"


def compare_doubles(left: float, right: float) -> int:
    """Return -1, 0 or 1 as `left` is less, the same or more: NaN is most, -0.0 less than 0.0."""
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
    """Return -1, 0 or 1 as `left` is less than `right`, the same, or more.

    A string beside a number or a truth value is taken for one. A number and a truth value are
    never the same.

    Raises:
        Unconvertible: It is none.
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
    """Tell whether both are the same, as they are when both are missing; None when the left one is.

    Raises:
        Unconvertible: One is a string that cannot be taken for what the other is.
    """
    if left is None:
        return True if right is None else None
    return right is not None and compare(left, right) == 0


def order(left: Value, right: Value) -> int | None:
    """Return how two numbers compare, as `compare` does, or None when one of them is missing.

    Two strings are taken for numbers with a point.

    Raises:
        Unconvertible: A string is no number.
    """
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        return compare_doubles(double_of(left), double_of(right))
    return compare(left, right)
