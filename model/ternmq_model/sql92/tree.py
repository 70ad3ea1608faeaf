"""The syntax tree of a condition: a tree of values. Pure.

Source: RocketMQ `filter.expression`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Value: TypeAlias = str | int | float | bool | None
"""The truth of a part of a condition. None: not known, since a property is missing."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A value that stands there. NULL counts as a truth value, as TRUE and FALSE do."""

    value: Value


@dataclass(frozen=True, slots=True)
class Property:
    """The message's property of this name: a string, or nothing."""

    name: str


@dataclass(frozen=True, slots=True)
class Negative:
    """The number with the other sign. A property is no number: nothing is known of its negative."""

    of: "Node"


@dataclass(frozen=True, slots=True)
class Truth:
    """A property where a truth value is wanted: there it is false, whatever it is."""

    of: Property


@dataclass(frozen=True, slots=True)
class Not:
    """The contrary."""

    of: "Node"


@dataclass(frozen=True, slots=True)
class AllOf:
    """True when all are, false when any is."""

    parts: "Sequence[Node]"


@dataclass(frozen=True, slots=True)
class AnyOf:
    """True when any is, false when all are."""

    parts: "Sequence[Node]"


@dataclass(frozen=True, slots=True)
class Equal:
    """Both sides are the same."""

    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class IsNull:
    """Condition that a property has no value."""

    of: "Node"


@dataclass(frozen=True, slots=True)
class Ordered:
    """One number stands so to another."""

    left: "Node"
    symbol: str
    """One of `<`, `<=`, `>`, `>=`."""

    right: "Node"


@dataclass(frozen=True, slots=True)
class OneOf:
    """A property is one of some strings."""

    of: Property
    strings: frozenset[str]
    is_negated: bool


@dataclass(frozen=True, slots=True)
class HasText:
    """A string has another one somewhere, at its beginning or at its end."""

    of: "Node"
    where: str
    """`CONTAINS`, `STARTSWITH` or `ENDSWITH`."""

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
    """Tell whether a value is a number; a truth value is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_truth_value(node: Node) -> bool:
    """Tell whether a part comes to true, false or unknown, and to nothing else."""
    if isinstance(node, Literal):
        return node.value is None or isinstance(node.value, bool)
    return not isinstance(node, Property | Negative)
