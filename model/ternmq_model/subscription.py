"""Subscriptions to a topic: tags, or a condition on properties, and their tests.

Source: RocketMQ `FilterAPI`, `SubscriptionData`, `ExpressionType`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ternmq_model.arguments import is_kind
from ternmq_model.errors import UsageError
from ternmq_model.expression_text import EXPRESSION_CHARACTERS_MAX, trimmed
from ternmq_model.names import check_topic
from ternmq_model.properties import TAGS, tag_code
from ternmq_model.sql92 import Condition, compile_condition

ALL_TAGS = "*"


TAG: Final = "TAG"
SQL92: Final = "SQL92"
"""The two types of expressions, as requests and files name them."""


class Expression(NamedTuple):
    """A filter expression, without a topic. `sql` makes one of a condition."""

    text: str
    expression_type: str = TAG


def sql(condition: str) -> Expression:
    """Return an SQL92 condition on a message's properties, as consumers take it for a topic.

    Args:
        condition: Such as `amount > 100 AND region IN ('eu', 'us')`; docs/howto/filter.md.

    Raises:
        UsageError: It cannot be read; tells where.
    """
    if not is_kind(condition, str):
        raise UsageError(f"SQL92: {condition!r} must be a condition as a string")
    compile_condition(condition)
    return Expression(condition, SQL92)


@dataclass(frozen=True, slots=True)
class Subscription:
    """One topic with what is wanted of it. Made by `parse_subscription`."""

    topic: str
    """The topic's name."""

    expression: str
    """The expression as it was written; `*` = all messages."""

    tags: frozenset[str]
    """No tags = all messages, as far as `condition` allows it."""

    codes: frozenset[int]
    """Hash codes of tags, compared with a consume queue's unit; tags may share one."""

    version_ms: int = 0
    """Time at which it was formed; a newer one replaces an older one."""

    expression_type: str = TAG
    """`TAG` or `SQL92`."""

    condition: Condition | None = field(default=None, compare=False, repr=False)
    """The parsed expression, when it is SQL92."""

    @property
    def tag_codes(self) -> frozenset[int] | None:
        """The codes to filter by; None = take everything."""
        return self.codes or None

    def wants(self, tag: str) -> bool:
        """Tell whether a message with this very tag may be wanted."""
        return not self.tags or tag in self.tags

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Tell whether a message with these properties is wanted."""
        if self.condition is not None:
            return self.condition.matches(properties)
        return self.wants(properties.get(TAGS, ""))

    def has_same_filter(self, other: "Subscription") -> bool:
        """Tell whether both want the same messages, whenever they were formed."""
        if self.expression_type != other.expression_type:
            return False
        if self.condition is not None:
            return self.expression == other.expression
        return self.tags == other.tags


def parse_subscription(
    topic: str, expression: str, expression_type: str = TAG, *, version_ms: int = 0
) -> Subscription:
    """Read an expression.

    Args:
        topic: What it is about.
        expression: Of type TAG: `*` or empty for all, else tags separated by `||`. Of type SQL92: a
            condition on properties.
        expression_type: `TAG`, which empty stands for too, or `SQL92`.
        version_ms: When it was formed.

    Raises:
        UsageError: The expression is too long, names no tag, or is no condition; or there is no
            such type.
        IllegalName: The topic is illegal.
    """
    check_topic(topic)
    if expression_type == SQL92:
        try:
            condition = compile_condition(expression)
        except UsageError as error:
            raise UsageError(f"subscription to {topic!r}: {error}") from None
        return Subscription(
            topic, expression, frozenset(), frozenset(), version_ms, SQL92, condition
        )
    if expression_type not in ("", TAG):
        raise UsageError(
            f"subscription to {topic!r}: type {expression_type!r} is neither {TAG} nor {SQL92}"
        )
    if len(expression) > EXPRESSION_CHARACTERS_MAX:
        raise UsageError(
            f"subscription to {topic!r}: the expression has {len(expression)} characters, "
            f"at most {EXPRESSION_CHARACTERS_MAX} are read"
        )
    text = trimmed(expression)
    if text in ("", ALL_TAGS):
        return Subscription(topic, ALL_TAGS, frozenset(), frozenset(), version_ms)
    tags = frozenset(tag for part in text.split("||") if (tag := trimmed(part)))
    if not tags:
        raise UsageError(f"subscription to {topic!r}: {expression!r} names no tag")
    return Subscription(topic, text, tags, frozenset(map(tag_code, tags)), version_ms)
