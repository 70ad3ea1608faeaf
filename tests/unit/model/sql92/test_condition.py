"""What SQL92 conditions mean: every rule, case by case."""

import pytest

from ternmq_model.errors import UsageError
from ternmq_model.sql92 import Condition, compile_condition
from ternmq_model.sql92.values import Unconvertible

PROPERTIES = {
    "a": "5",
    "b": "text",
    "c": "3.5",
    "flag": "true",
    "off": "no",
    "neg": "-7",
    "big": "9223372036854775807",
    "huge": "9223372036854775808",
    "quote": "it's",
    "TAGS": "red",
    "$x_1": "1",
    "plus": "+5",
    "blank": " 5 ",
    "nan": "NaN",
    "many": "3000000000",
}
"""`missing`, `other` and `none` are not there."""

ERROR = "error"


def outcome(text: str) -> bool | str | None:
    """Return what a condition comes to for the message above."""
    try:
        return compile_condition(text).decide(PROPERTIES)
    except Unconvertible:
        return ERROR


EQUALITY = [
    ("b = 'text'", True),
    ("b = 'Text'", False),
    ("'text' = b", True),
    ("b <> 'text'", False),
    ("b <> 'x'", True),
    ("a = 5", True),
    ("a = 6", False),
    ("5 = a", True),
    ("a <> 6", True),
    ("a = 5L", True),
    ("a = 5l", True),
    ("a = 5.0", True),
    ("a = 5e0", True),
    ("a = '5'", True),
    ("c = 3.5", True),
    ("c = .35E1", True),
    ("c = 3", ERROR),
    ("b = 5", ERROR),
    ("b <> 5", ERROR),
    ("plus = 5", True),
    ("blank = 5", ERROR),
    ("blank = 5.", True),
    ("a = +5", True),
    ("neg = -7", True),
    ("neg = -7.0", True),
    ("- 7 = neg", True),
    ("big = 9223372036854775807", True),
    ("huge = 9223372036854775807", ERROR),
    ("huge = 9223372036854775808.", True),
    ("a = b", False),
    ("a = plus", False),
    ("b = b", True),
    ("3 = 3.0", True),
    ("'5' = 5", True),
    ("'x' = 5", ERROR),
    ("quote = 'it''s'", True),
    ("TAGS = 'red'", True),
    ("$x_1 = 1", True),
    ("nan = nan", True),
]
TRUTH_VALUES = [
    ("TRUE", True),
    ("false", False),
    ("flag = TRUE", True),
    ("flag = true", True),
    ("flag = FALSE", False),
    ("flag <> TRUE", False),
    ("off = TRUE", False),
    ("off = FALSE", True),
    ("b = FALSE", True),
    ("TRUE = flag", True),
    ("TRUE = TRUE", True),
    ("TRUE = FALSE", False),
    ("TRUE <> FALSE", True),
    ("5 = TRUE", False),
    ("5 <> TRUE", True),
    ("(a > 3) = TRUE", True),
    ("a > 3 = TRUE", True),
    ("(a > 3) = 5", False),
    ("'true' = TRUE", True),
    # A property is never a truth value by itself, whatever it reads.
    ("flag", False),
    ("a", False),
    ("NOT flag", True),
    ("missing", None),
    ("NOT missing", None),
    ("flag OR a = 5", True),
    ("NULL", None),
    ("NOT NULL", None),
]
ORDER = [
    ("a > 4", True),
    ("a > 5", False),
    ("a >= 5", True),
    ("a < 5", False),
    ("a <= 5", True),
    ("a < 5.5", True),
    ("a > 4.999", True),
    ("4 < a", True),
    ("6 > a", True),
    ("6 <= a", False),
    ("c > 3", ERROR),
    ("c > 3.0", True),
    ("b > 3", ERROR),
    ("b > 3.0", ERROR),
    ("neg < 0", True),
    ("neg < -6", True),
    ("neg > -6.5", False),
    ("a > c", True),
    ("c < a", True),
    ("a > b", ERROR),
    ("a > neg", True),
    ("3 > 2", True),
    ("3 >= 3.0", True),
    ("2 > 3.5", False),
    ("many > 5", True),
    ("nan > 1e300", True),
    ("nan < 1.5", False),
    ("a > 4 = (a < 6)", True),
]
BETWEEN = [
    ("a BETWEEN 5 AND 5", True),
    ("a BETWEEN 1 AND 10", True),
    ("a between 6 and 10", False),
    ("a BETWEEN 1.5 AND 7", True),
    ("a NOT BETWEEN 6 AND 10", True),
    ("a NOT BETWEEN 5 AND 10", False),
    ("a NOT BETWEEN 10 AND 6", True),
    ("neg BETWEEN -10 AND -5", True),
    ("neg BETWEEN -5 AND -10", False),
    ("a BETWEEN neg AND 5", True),
    ("missing BETWEEN 1 AND 2", None),
    ("missing NOT BETWEEN 1 AND 2", None),
    ("a BETWEEN 1 AND missing", None),
    ("a BETWEEN 6 AND missing", False),
    ("a BETWEEN missing AND 9", None),
    ("a BETWEEN missing AND 4", False),
    ("5 BETWEEN missing AND other", None),
    ("NOT (a BETWEEN 1 AND missing)", None),
    ("a NOT BETWEEN 1 AND missing", None),
    ("a NOT BETWEEN 6 AND missing", True),
    ("a NOT BETWEEN missing AND 4", True),
    ("b BETWEEN 1 AND 2", ERROR),
    ("5 BETWEEN 1 AND 9", True),
    ("a BETWEEN 1 AND 9 AND b = 'text'", True),
    ("NOT a BETWEEN 1 AND 9", "refused"),
    ("NOT (a BETWEEN 1 AND 9)", False),
]
SETS = [
    ("b IN ('x', 'text')", True),
    ("b IN ('x')", False),
    ("b NOT IN ('x')", True),
    ("b not in ('x','text')", False),
    ("a IN ('5')", True),
    ("(b) IN ('text')", True),
    ("missing IN ('x')", None),
    ("missing NOT IN ('x')", None),
    ("b IN ('1','2','3','4','5','text')", True),
    ("quote IN ('it''s')", True),
]
STRINGS = [
    ("b CONTAINS 'ex'", True),
    ("b CONTAINS 'xe'", False),
    ("b contains 'text'", True),
    ("b NOT CONTAINS 'xe'", True),
    ("b NOT CONTAINS 'ex'", False),
    ("b STARTSWITH 'te'", True),
    ("b STARTSWITH 'xt'", False),
    ("b NOT STARTSWITH 'xt'", True),
    ("b ENDSWITH 'xt'", True),
    ("b ENDSWITH 'te'", False),
    ("b NOT ENDSWITH 'te'", True),
    ("missing CONTAINS 'x'", False),
    ("missing NOT CONTAINS 'x'", False),
    ("missing STARTSWITH 'x'", False),
    ("missing NOT STARTSWITH 'x'", False),
    ("missing ENDSWITH 'x'", False),
    ("missing NOT ENDSWITH 'x'", False),
    ("b CONTAINS ''", False),
    ("b NOT CONTAINS ''", False),
    ("'text' CONTAINS 'x'", True),
    ("5 CONTAINS '5'", False),
    ("5 NOT CONTAINS '6'", False),
]
NULLS = [
    ("missing IS NULL", True),
    ("missing IS NOT NULL", False),
    ("a IS NULL", False),
    ("a IS NOT NULL", True),
    ("a is not null", True),
    ("NULL IS NULL", True),
    ("5 IS NULL", False),
    ("a IS NULL IS NULL", False),
    ("missing = 5", None),
    ("missing <> 5", None),
    ("missing = 'x'", None),
    ("missing = TRUE", None),
    ("missing > 5", None),
    ("missing > 5.5", None),
    ("NOT (missing > 5)", None),
    ("5 = missing", False),
    ("5 <> missing", True),
    ("5 > missing", None),
    ("5.5 >= missing", None),
    ("NOT (5 > missing)", None),
    ("(5 > missing) IS NULL", True),
    ("a = missing", False),
    ("NOT (a = missing)", True),
    ("a > missing", None),
    ("NOT (a > missing)", None),
    ("b > missing", None),
    ("missing > b", None),
    ("-missing > 5", None),
    ("missing > a", None),
    ("missing > other", None),
    ("missing = missing", True),
    ("missing = other", True),
    ("missing <> other", False),
    ("(missing > 5) = (5 > other)", True),
    ("(5 > missing) = (a > 4)", None),
    ("(a > 4) = (5 > missing)", False),
    ("TRUE = missing", False),
    ("-a = 5", None),
    ("5 = -a", False),
    ("-a = -missing", True),
    ("-missing = 5", None),
]
LOGIC = [
    ("TRUE AND TRUE", True),
    ("TRUE AND FALSE", False),
    ("TRUE AND NULL", None),
    ("NULL AND TRUE", None),
    ("FALSE AND NULL", False),
    ("NULL AND FALSE", False),
    ("NULL AND NULL", None),
    ("TRUE OR NULL", True),
    ("NULL OR TRUE", True),
    ("FALSE OR NULL", None),
    ("NULL OR FALSE", None),
    ("FALSE OR FALSE", False),
    ("NOT TRUE", False),
    ("NOT FALSE", True),
    ("NOT NOT TRUE", True),
    ("FALSE AND TRUE OR TRUE", True),
    ("TRUE OR TRUE AND FALSE", True),
    ("(TRUE OR TRUE) AND FALSE", False),
    ("NOT FALSE AND FALSE", False),
    # What is decided is not evaluated further, so no error comes of it.
    ("TRUE OR b > 3", True),
    ("FALSE AND b > 3", False),
    ("b > 3 OR TRUE", ERROR),
    ("b > 3 AND FALSE", ERROR),
    ("NULL AND b > 3", ERROR),
    ("NOT (b > 3)", ERROR),
]
WRITING = [
    ("a=5", True),
    ("a>4AND b='text'", True),
    ("\ta\n=\r5\f", True),
    ("a = 5 -- five\n AND b = 'text'", True),
    ("a = 5 -- five\r AND b = 'x'", False),
    ("/* one */ a /* two ** */ = /***/ 5", True),
    ("aNd = 5", "refused"),
    ("Not (A = 5)", None),
    ("a = - - 5", True),
    ("a = + + 5", True),
    ("b = 'te''xt'", False),
    ("((((a = 5))))", True),
]
IGNORED = [
    ("a = 5 garbage", True),
    ("a = 5 5", True),
    ("a = 5)", True),
    ("a = 5 , ???", True),
    ("a = 05", False),
    ("5 = 5 TRUE OR FALSE", True),
    ("a = 5 -- no end of line", True),
    ("a = 5 LIKE 'x'", True),
    ("a = 0L", False),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *EQUALITY,
        *TRUTH_VALUES,
        *ORDER,
        *BETWEEN,
        *SETS,
        *STRINGS,
        *NULLS,
        *LOGIC,
        *WRITING,
        *IGNORED,
    ],
)
def test_condition_evaluates_to_its_value(text: str, expected: bool | str | None) -> None:
    if expected == "refused":
        with pytest.raises(UsageError, match="SQL92"):
            compile_condition(text)
        return
    assert outcome(text) is expected
    assert compile_condition(text).matches(PROPERTIES) is (expected is True)


def test_message_passes_only_when_the_condition_is_true() -> None:
    condition = compile_condition("a > 3")
    assert condition.matches({"a": "4"})
    assert not condition.matches({"a": "3"})
    assert not condition.matches({"a": "many"})
    assert not condition.matches({})


def test_ignored_rest_of_a_condition_is_located() -> None:
    assert compile_condition("a = 5 garbage").ignored_from == 6
    assert compile_condition("a = 5 -- comment\n").ignored_from is None


def test_conditions_are_compiled_once_and_compared_by_their_text() -> None:
    one = compile_condition("a = 1 AND b = 2")
    assert compile_condition("a = 1 AND b = 2") is one
    assert one != compile_condition("a = 1 AND b = 3")
    assert isinstance(one, Condition)
    assert one.steps == 7
