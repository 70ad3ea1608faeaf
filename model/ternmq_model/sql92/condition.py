"""Parsed conditions. Pure."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from ternmq_model.sql92.evaluation import Decide, Properties, decision
from ternmq_model.sql92.parser import parse
from ternmq_model.sql92.values import Unconvertible

CACHED_CONDITIONS: Final = 100


@dataclass(frozen=True, slots=True)
class Condition:
    """SQL92 condition on a message's properties. Made by `compile_condition`."""

    text: str
    """Text of the condition."""

    steps: int = field(compare=False)
    """Number of its parts, the upper bound of its evaluation's cost."""

    ignored_from: int | None = field(compare=False)
    """Position in `text` from which on the text is ignored; None = none is ignored."""

    decide: Decide = field(compare=False, repr=False)
    """Function that evaluates the condition: true, false, None = unknown; or `Unconvertible`."""

    def matches(self, properties: Properties) -> bool:
        """Return whether the condition is true for a message.

        The result is False for an unknown value of a missing property, and for a comparison of a
        number with a property that is no number.
        """
        try:
            return self.decide(properties) is True
        except Unconvertible:
            return False


@lru_cache(maxsize=CACHED_CONDITIONS)
def compile_condition(text: str) -> Condition:
    """Return the condition in `text`. The last hundred conditions are cached.

    Raises:
        UsageError: The text is no condition or exceeds the bounds. The error has the position.
    """
    parsed = parse(text)
    return Condition(text, parsed.nodes, parsed.ignored_from, decision(parsed.tree))
