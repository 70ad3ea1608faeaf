"""SQL92 conditions against a second evaluation that was written from their rules alone."""

from dataclasses import dataclass
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq_model.errors import UsageError
from ternmq_model.sql92 import compile_condition
from tests.support.examples import examples

NAMES = ("a", "b", "c")
WORDS = ("5", "-3", "2.5", "x", "true", "99999999999999999999", "it's")
properties = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(WORDS))


@dataclass(frozen=True)
class Case:
    """A condition, and what it must come to: T, F, U for unknown, E for an error."""

    text: str
    value: str


class Oracle:
    """Draws conditions of which it works out the value while it writes them."""

    def __init__(self, data: st.DataObject, message: dict[str, str]) -> None:
        self.data = data
        self.message = message

    def draw(self, options: tuple[str, ...]) -> str:
        return self.data.draw(st.sampled_from(options))

    def condition(self, depth: int) -> Case:
        kind = self.draw(
            ("leaf",) if depth == 0 else ("leaf", "and", "or", "not", "brackets", "equal")
        )
        if kind == "leaf":
            return self.leaf()
        one = self.condition(depth - 1)
        if kind == "brackets":
            return Case(f"({one.text})", one.value)
        if kind == "not":
            return Case(f"NOT ({one.text})", {"T": "F", "F": "T"}.get(one.value, one.value))
        two = self.condition(depth - 1)
        text = f"({one.text}) {kind} ({two.text})"
        if kind == "equal":
            text = f"({one.text}) = ({two.text})"
            if "E" in (one.value, two.value):
                return Case(text, "E")
            if one.value == "U" != two.value:
                return Case(text, "U")
            return Case(text, "T" if one.value == two.value else "F")
        decisive = "F" if kind == "and" else "T"
        if one.value in ("E", decisive):
            return Case(text, one.value)
        if two.value in ("E", decisive):
            return Case(text, two.value)
        if "U" in (one.value, two.value):
            return Case(text, "U")
        return Case(text, "T" if decisive == "F" else "F")

    def leaf(self) -> Case:
        name = self.draw(NAMES)
        value = self.message.get(name)
        kind = self.draw(("null", "in", "contains", "string", "whole", "point", "between", "bool"))
        if kind == "null":
            negation = self.draw(("", "NOT "))
            return Case(f"{name} IS {negation}NULL", told((value is None) != bool(negation)))
        if kind == "in":
            words = self.data.draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6))
            negation = self.draw(("", "NOT "))
            text = f"{name} {negation}IN ({', '.join(map(quoted, words))})"
            return Case(text, told(None if value is None else (value in words) != bool(negation)))
        if kind == "contains":
            part, negation = self.draw(("e", "5", "")), self.draw(("", "NOT "))
            is_known = value is not None and part != ""
            found = is_known and (part in (value or "")) != bool(negation)
            return Case(f"{name} {negation}CONTAINS '{part}'", told(found))
        if kind == "string":
            word = self.draw(WORDS)
            return Case(f"{name} = {quoted(word)}", told(None if value is None else value == word))
        if kind == "bool":
            is_true = None if value is None else value == "true"
            return Case(f"{name} = TRUE", told(is_true))
        if kind == "between":
            return self.between(name, value)
        number, exact = self.number(kind)
        symbol = self.draw(("<", "<=", ">", ">=", "=", "<>"))
        return Case(f"{name} {symbol} {number}", compared(value, kind, symbol, exact))

    def between(self, name: str, value: str | None) -> Case:
        (low, least), (high, most) = self.number("whole"), self.number("whole")
        negation = self.draw(("", "NOT "))
        first, second, decisive = ("<", ">", "T") if negation else (">=", "<=", "F")
        one = compared(value, "whole", first, least)
        two = compared(value, "whole", second, most)
        worth = one if one in ("E", "U", decisive) else two
        # A sign makes it no literal: then nobody compares the two.
        is_refused = not negation and least > most and "-" not in low + high
        return Case(f"{name} {negation}BETWEEN {low} AND {high}", "R" if is_refused else worth)

    def number(self, kind: str) -> tuple[str, Fraction]:
        text = self.draw(("5", "-3", "0", "7L") if kind == "whole" else ("2.5", "-3.", "5e0", ".5"))
        return text, Fraction(text.rstrip("L.") if kind == "whole" else Fraction(float(text)))


def told(value: bool | None) -> str:
    return "U" if value is None else "T" if value else "F"


def quoted(word: str) -> str:
    return "'" + word.replace("'", "''") + "'"


def compared(value: str | None, kind: str, symbol: str, number: Fraction) -> str:
    if value is None:
        return "U"
    if value in ("x", "true", "it's"):
        return "E"
    if kind == "whole" and (value == "2.5" or len(value) > 19):
        return "E"
    mine = Fraction(value)
    return told(
        {
            "<": mine < number,
            "<=": mine <= number,
            ">": mine > number,
            ">=": mine >= number,
            "=": mine == number,
            "<>": mine != number,
        }[symbol]
    )


@settings(max_examples=examples(300))
@given(data=st.data(), message=properties)
def test_conditions_evaluate_by_their_rules(data: st.DataObject, message: dict[str, str]) -> None:
    case = Oracle(data, message).condition(depth=3)
    try:
        condition = compile_condition(case.text)
    except UsageError:
        # Only bounds that are turned round are refused; whoever holds them is refused with them.
        assert "BETWEEN" in case.text, case
        return
    assert case.value != "R", case
    assert condition.matches(message) is (case.value == "T"), case


@settings(max_examples=examples(300))
@given(text=st.text(alphabet="aN'\"()=<>-+*/.,0159eEL \n") | st.text())
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    try:
        condition = compile_condition(text)
    except UsageError:
        return
    assert condition.matches({"a": "5"}) in (True, False)


FRAGMENTS = (
    "a", "b", "5", "0.5", "'x'", "TRUE", "NULL", "NOT", "AND", "OR", "=", "<>", "<", ">=", "IS",
    "BETWEEN", "IN", "CONTAINS", "(", ")", ",", "-", "+",
)  # fmt: skip


@settings(max_examples=examples(500))
@given(words=st.lists(st.sampled_from(FRAGMENTS), max_size=24), message=properties)
def test_any_row_of_tokens_is_a_condition_or_refused(
    words: list[str], message: dict[str, str]
) -> None:
    try:
        condition = compile_condition(" ".join(words))
    except UsageError:
        return
    assert condition.matches(message) in (True, False)
