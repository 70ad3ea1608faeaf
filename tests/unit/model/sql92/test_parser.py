"""What no condition is, and the bounds of those that are."""

import pytest

from ternmq_model.errors import UsageError
from ternmq_model.expression_text import EXPRESSION_CHARACTERS_MAX
from ternmq_model.sql92 import DEPTH_MAX, NODES_MAX, compile_condition
from ternmq_model.sql92.parser import parse
from ternmq_model.sql92.tree import Equal, Literal, Property

REFUSED = [
    ("", "empty"),
    ("   ", "empty"),
    ("/* nothing */", "empty"),
    ("a >", "missing at the end"),
    ("a = ", "missing at the end"),
    ("= 5", "missing at character 1"),
    ("(a = 5", r"\) is missing at the end"),
    ("a = 'x", "string does not end, at character 5"),
    ('a = "x"', "single quotes, at character 5"),
    ("a != 5", "'!' has no meaning at character 3"),
    ("a == 5", "missing at character 4"),
    ("a = 5 ~", "'~' has no meaning at character 7"),
    ("a = 5 /* open", "'/' has no meaning at character 7"),
    ("5", "no condition"),
    ("'x'", "no condition"),
    ("-a", "no condition"),
    ("a = 5 AND 5", "no condition"),
    ("'x' OR a = 5", "no condition"),
    ("NOT 5", "no condition"),
    ("a = NULL", "IS"),
    ("NULL = a", "IS"),
    ("a <> NULL", "IS"),
    ("TRUE = 5", "TRUE and FALSE"),
    ("TRUE = 'true'", "TRUE and FALSE"),
    ("a > 'x'", "ordered"),
    ("a > TRUE", "ordered"),
    ("a > NULL", "ordered"),
    ("'5' < a", "ordered"),
    ("(a = 5) > 3", "ordered"),
    ("1 < a < 9", "ordered"),
    ("NOT a > 5", "ordered"),
    ("a BETWEEN 10 AND 1", "10 is more than 1"),
    ("a BETWEEN 1.5 AND 1", "more than"),
    ("a BETWEEN 'a' AND 'b'", "ordered"),
    ("a BETWEEN NULL AND 5", "ordered"),
    ("a BETWEEN 1", "AND is missing"),
    ("a BETWEEN 1 OR 2", "AND is missing"),
    ("5 IN ('x')", "name of a property"),
    ("(a = 5) IN ('x')", "name of a property"),
    ("a IN ()", "string in single quotes is missing"),
    ("a IN (5)", "string in single quotes is missing"),
    ("a IN ('x' 'y')", r"\) is missing"),
    ("a IN 'x'", r"\( is missing"),
    ("a CONTAINS b", "string in single quotes is missing"),
    ("a NOT b", "NOT must precede"),
    ("a NOT = 5", "NOT must precede"),
    ("a IS 5", "NULL is missing"),
    ("a IS NOT 5", "NULL is missing"),
    ("a = 9223372036854775808", "64 bits"),
    ("a = -9223372036854775808", "64 bits"),
    ("a = 0.0", "above 0"),
    ("a = 0.", "above 0"),
    ("a > .0e5", "above 0"),
    ("a = 1e999", "finite"),
    ("a = 1e-999", "above 0"),
    ("a = AND", "missing"),
    ("a AND", "missing at the end"),
    ("OR a", "missing at character 1"),
    ("a = 5 OR", "missing at the end"),
    ("a = (5", r"\) is missing"),
    ("é = 5", "no meaning at character 1"),
]


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_malformed_condition_is_refused_with_its_position(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        compile_condition(text)


@pytest.mark.parametrize("text", ["(" * 10_000, "NOT " * 1_000 + "a", "-" * 4_000 + "5 = a"])
def test_depth_is_bounded(text: str) -> None:
    with pytest.raises(UsageError, match=f"{EXPRESSION_CHARACTERS_MAX}|{DEPTH_MAX} levels deep"):
        compile_condition(text)


def test_chain_is_as_deep_as_it_is_long() -> None:
    compile_condition("a" + " IS NULL" * (DEPTH_MAX - 1))
    with pytest.raises(UsageError, match="deep"):
        compile_condition("a" + " IS NULL" * DEPTH_MAX)


def test_brackets_may_be_as_deep_as_the_bound() -> None:
    deep = "(" * (DEPTH_MAX - 1) + "a = 5" + ")" * (DEPTH_MAX - 1)
    assert compile_condition(deep).matches({"a": "5"})
    with pytest.raises(UsageError, match="deep"):
        compile_condition(f"(({deep}))")


def test_conditions_joined_by_or_may_be_long() -> None:
    wide = " OR ".join(f"a={number}" for number in range(300))
    assert compile_condition(wide).matches({"a": "299"})


def test_number_of_parts_is_bounded() -> None:
    with pytest.raises(UsageError, match=f"more than {NODES_MAX} parts"):
        compile_condition("a=1" + " OR a=1" * 400)


def test_length_is_bounded() -> None:
    compile_condition("a='" + "x" * (EXPRESSION_CHARACTERS_MAX - 4) + "'")
    with pytest.raises(UsageError, match="4097 characters"):
        compile_condition("a='" + "x" * (EXPRESSION_CHARACTERS_MAX - 3) + "'")


def test_condition_becomes_a_tree() -> None:
    assert parse("a = 5 rest").tree == Equal(Property("a"), Literal(5))
