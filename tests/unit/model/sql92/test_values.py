"""Strings that are taken for numbers."""

import math

import pytest

from ternmq_model.sql92.values import Unconvertible, compare_doubles, double_of, long_of


@pytest.mark.parametrize(
    ("text", "number"),
    [("5", 5), ("+5", 5), ("-5", -5), ("007", 7), ("-9223372036854775808", -(1 << 63))],
)
def test_whole_numbers_are_converted(text: str, number: int) -> None:
    assert long_of(text) == number


@pytest.mark.parametrize(
    "text", ["", "5.0", " 5", "5 ", "5L", "1_0", "0x5", "--5", "9223372036854775808", "9" * 10_000]
)
def test_malformed_whole_numbers_are_refused(text: str) -> None:
    with pytest.raises(Unconvertible):
        long_of(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [("5", 5.0), (" 5.5\t", 5.5), ("5.", 5.0), (".5", 0.5), ("-1e3", -1000.0), ("2d", 2.0),
     ("2.5F", 2.5), ("0.0", 0.0), ("Infinity", math.inf), ("-Infinity", -math.inf),
     ("1e999", math.inf)],
)  # fmt: skip
def test_floating_point_numbers_are_converted(text: str, number: float) -> None:
    assert double_of(text) == number


@pytest.mark.parametrize("text", ["", ".", "e5", "1_0.0", "inf", "nan", "5L", "1 2", "five"])
def test_malformed_floating_point_numbers_are_refused(text: str) -> None:
    with pytest.raises(Unconvertible):
        double_of(text)


def test_every_two_numbers_have_an_order() -> None:
    rising = [-math.inf, -1.0, -0.0, 0.0, 5e-324, 1.0, math.inf, double_of("NaN")]
    for place, left in enumerate(rising):
        for other, right in enumerate(rising):
            assert compare_doubles(left, right) == (place > other) - (place < other)
