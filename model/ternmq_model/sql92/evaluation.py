"""Evaluation of a condition's tree, as a function of a message's properties. Pure.

Each part becomes a closure that returns true, false, or None for unknown; frequent parts have
shorter closures. A string that cannot be converted raises an error for the whole condition.

Source: RocketMQ `LogicExpression`, `UnaryExpression`, `ComparisonExpression`.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias, cast

from ternmq_model.sql92.tree import (
    AllOf,
    AnyOf,
    Equal,
    HasText,
    IsNull,
    Literal,
    Negative,
    Node,
    Not,
    OneOf,
    Ordered,
    Property,
    Truth,
    Value,
)
from ternmq_model.sql92.values import (
    are_equal,
    bool_of,
    compare_doubles,
    double_of,
    long_of,
    order,
)


class Properties(Protocol):
    """Properties of a message: a `dict` or a lazy mapping."""

    def get(self, name: str, /) -> str | None:
        """Return the value of a property; None = the message does not have it."""
        ...


Evaluate: TypeAlias = Callable[[Properties], Value]
Decide: TypeAlias = Callable[[Properties], bool | None]

_ORDERS: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def decision(node: Node) -> Decide:
    """Return the function that evaluates a truth value.

    The function raises `Unconvertible` for a string that cannot be converted.
    """
    return cast("Decide", _compiled(node))


def _compiled(node: Node) -> Evaluate:  # one line for each kind of part
    match node:
        case Literal(value):
            return lambda _: value
        case Property(name):
            return lambda properties: properties.get(name)
        case Negative(of):
            return _negative(_compiled(of))
        case Truth(Property(name)):
            return lambda properties: None if properties.get(name) is None else False
        case Not(of):
            return _not(decision(of))
        case AllOf(parts):
            return _joined([decision(part) for part in parts], decided_by=False)
        case AnyOf(parts):
            return _joined([decision(part) for part in parts], decided_by=True)
        case Equal(left, right):
            return _equal(left, right)
        case IsNull(of):
            return _is_null(_compiled(of))
        case Ordered(left, symbol, right):
            return _ordered(left, symbol, right)
        case OneOf(Property(name), strings, is_negated):
            return _one_of(name, strings, is_negated=is_negated)
        case HasText():
            return _has_text(node)


def _negative(value_of: Evaluate) -> Evaluate:
    def negative(properties: Properties) -> Value:
        value = value_of(properties)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return -value if is_number else None  # type: ignore[operator]

    return negative


def _not(decide: Decide) -> Evaluate:
    def negated(properties: Properties) -> Value:
        known = decide(properties)
        return None if known is None else not known

    return negated


def _joined(decisions: Sequence[Decide], *, decided_by: bool) -> Evaluate:
    """Return the OR of the decisions if `decided_by` is true, else the AND."""

    def joined(properties: Properties) -> Value:
        is_unknown = False
        for decide in decisions:
            known = decide(properties)
            if known is decided_by:
                return decided_by
            if known is None:
                is_unknown = True
        return None if is_unknown else not decided_by

    return joined


def _is_null(value_of: Evaluate) -> Evaluate:
    return lambda properties: value_of(properties) is None


def _equal(left: Node, right: Node) -> Evaluate:
    if isinstance(left, Property) and isinstance(right, Literal):
        wanted = right.value
        if isinstance(wanted, str):
            return _is_same(left.name, wanted)
        if isinstance(wanted, bool):
            return _is_like(left.name, bool_of, wanted)
        if isinstance(wanted, int):
            return _is_like(left.name, long_of, wanted)
    left_of, right_of = _compiled(left), _compiled(right)
    return lambda properties: are_equal(left_of(properties), right_of(properties))


def _is_same(name: str, wanted: str) -> Evaluate:
    def is_same(properties: Properties) -> Value:
        value = properties.get(name)
        return None if value is None else value == wanted

    return is_same


def _is_like(name: str, convert: Callable[[str], int], wanted: int) -> Evaluate:
    def is_like(properties: Properties) -> Value:
        value = properties.get(name)
        return None if value is None else convert(value) == wanted

    return is_like


def _ordered(left: Node, symbol: str, right: Node) -> Evaluate:
    if isinstance(left, Property) and isinstance(right, Literal):
        return _beside_number(left.name, _ORDERS[symbol], right.value)
    if isinstance(left, Literal) and isinstance(right, Property):
        return _beside_number(right.name, _ORDERS[_TURNED[symbol]], left.value)
    compare, left_of, right_of = _ORDERS[symbol], _compiled(left), _compiled(right)

    def ordered(properties: Properties) -> Value:
        found = order(left_of(properties), right_of(properties))
        return None if found is None else compare(found, 0)

    return ordered


def _beside_number(name: str, compare: Callable[[float, float], bool], number: Value) -> Evaluate:
    if isinstance(number, int):
        whole = number

        def beside_whole(properties: Properties) -> Value:
            value = properties.get(name)
            return None if value is None else compare(long_of(value), whole)

        return beside_whole
    assert isinstance(number, float), "only numbers are ordered"
    double = number

    def beside_double(properties: Properties) -> Value:
        value = properties.get(name)
        return None if value is None else compare(compare_doubles(double_of(value), double), 0)

    return beside_double


def _one_of(name: str, strings: frozenset[str], *, is_negated: bool) -> Evaluate:
    def one_of(properties: Properties) -> Value:
        value = properties.get(name)
        return None if value is None else (value in strings) is not is_negated

    return one_of


def _has_text(node: HasText) -> Evaluate:
    value_of, text, is_negated = _compiled(node.of), node.text, node.is_negated
    test: Callable[[str, str], bool] = {
        "CONTAINS": str.__contains__,
        "STARTSWITH": str.startswith,
        "ENDSWITH": str.endswith,
    }[node.where]

    def has_text(properties: Properties) -> Value:
        value = value_of(properties)
        if not isinstance(value, str) or not text:
            return False
        return test(value, text) is not is_negated

    return has_text
