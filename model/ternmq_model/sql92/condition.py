"""A parsed condition, ready to be asked about messages. Pure."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from ternmq_model.sql92.evaluation import Decide, Properties, decision
from ternmq_model.sql92.parser import parse
from ternmq_model.sql92.values import Unconvertible

CACHED_CONDITIONS: Final = 100


@dataclass(frozen=True, slots=True)
class Condition:
    """An SQL92 condition on a message's properties. Made by `compile_condition`."""

    text: str
    """The condition as it was written."""

    steps: int = field(compare=False)
    """Number of its parts: the most that evaluating it costs."""

    ignored_from: int | None = field(compare=False)
    """Position in `text` behind which all is ignored; None = nothing is."""

    decide: Decide = field(compare=False, repr=False)
    """Evaluates it: true, false or None for unknown; raises `Unconvertible`."""

    def matches(self, properties: Properties) -> bool:
        """Tell whether it is true of a message.

        It is not where it is unknown, since properties are missing, and not where a property is no
        number and is compared with one.
        """
        try:
            return self.decide(properties) is True
        except Unconvertible:
            return False


@lru_cache(maxsize=CACHED_CONDITIONS)
def compile_condition(text: str) -> Condition:
    """Return the condition that `text` is. The last hundred are kept.

    Raises:
        UsageError: It is none, or beyond the bounds; tells where.
    """
    parsed = parse(text)
    return Condition(text, parsed.nodes, parsed.ignored_from, decision(parsed.tree))
