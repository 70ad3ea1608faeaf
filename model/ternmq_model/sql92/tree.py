"""Syntax tree of a condition. Pure.

Source: RocketMQ `filter.expression`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Value: TypeAlias = str | int | float | bool | None
"""Value of a part of a condition. None = unknown, since a property is missing."""


@dataclass(frozen=True, slots=True)
class Literal:
    """Literal value. NULL is a truth value like TRUE and FALSE."""

    value: Value


@dataclass(frozen=True, slots=True)
class Property:
    """Property of the message: a string, or unknown."""

    name: str


@dataclass(frozen=True, slots=True)
class Negative:
    """Negative of a number. The negative of a property, which is a string, is unknown."""

    of: "Node"


@dataclass(frozen=True, slots=True)
class Truth:
    """Property in the place of a truth value: false for every value."""

    of: Property


@dataclass(frozen=True, slots=True)
class Not:
    """Negation of a truth value."""

    of: "Node"


@dataclass(frozen=True, slots=True)
class AllOf:
    """Conjunction: true if all parts are true, false if any is false."""

    parts: "Sequence[Node]"


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Disjunction: true if any part is true, false if all are false."""

    parts: "Sequence[Node]"


@dataclass(frozen=True, slots=True)
class Equal:
    """Equality of both sides."""

    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class IsNull:
    """Condition that a property has no value."""

    of: "Node"


@dataclass(frozen=True, slots=True)
class Ordered:
    """Comparison of two numbers."""

    left: "Node"
    symbol: str
    """Operator: `<`, `<=`, `>` or `>=`."""

    right: "Node"


@dataclass(frozen=True, slots=True)
class OneOf:
    """Test whether a property is one of some strings."""

    of: Property
    strings: frozenset[str]
    is_negated: bool


@dataclass(frozen=True, slots=True)
class HasText:
    """Test whether a string contains, begins with or ends with another one."""

    of: "Node"
    where: str
    """Operator: `CONTAINS`, `STARTSWITH` or `ENDSWITH`."""

    text: str
    is_negated: bool


Node: TypeAlias = (
    Literal
    | Property
    | Negative
    | Truth
    | Not
    | AllOf
    | AnyOf
    | Equal
    | IsNull
    | Ordered
    | OneOf
    | HasText
)


def is_number(value: Value) -> bool:
    """Return whether a value is a number. Truth values are no numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_truth_value(node: Node) -> bool:
    """Return whether a part always evaluates to true, false or unknown."""
    if isinstance(node, Literal):
        return node.value is None or isinstance(node.value, bool)
    return not isinstance(node, Property | Negative)
