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
"""Names of the two types of expressions in requests and files."""


class Expression(NamedTuple):
    """Filter expression without a topic. `sql` returns one for a condition."""

    text: str
    expression_type: str = TAG


def sql(condition: str) -> Expression:
    """Return an SQL92 condition on a message's properties, for the subscriptions of a consumer.

    Args:
        condition: Text such as `amount > 100 AND region IN ('eu', 'us')`; see
            docs/howto/filter.md.

    Raises:
        UsageError: The text is no condition. The error has the position.
    """
    if not is_kind(condition, str):
        raise UsageError(f"SQL92: {condition!r} must be a condition as a string")
    compile_condition(condition)
    return Expression(condition, SQL92)


@dataclass(frozen=True, slots=True)
class Subscription:
    """Topic with the filter of its messages. Made by `parse_subscription`."""

    topic: str
    """Name of the topic."""

    expression: str
    """Text of the expression; `*` = all messages."""

    tags: frozenset[str]
    """Tags of matching messages; empty = all tags. `condition` may exclude more messages."""

    codes: frozenset[int]
    """Hash codes of the tags, for units of consume queues. Different tags may have equal codes."""

    version_ms: int = 0
    """Time of the subscription's creation, Unix ms. A newer subscription replaces an older one."""

    expression_type: str = TAG
    """`TAG` or `SQL92`."""

    condition: Condition | None = field(default=None, compare=False, repr=False)
    """Parsed expression of the type SQL92; None = tags."""

    @property
    def tag_codes(self) -> frozenset[int] | None:
        """Tag codes to filter by; None = all messages."""
        return self.codes or None

    def wants(self, tag: str) -> bool:
        """Return whether a message with this tag may match."""
        return not self.tags or tag in self.tags

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Return whether a message with these properties matches."""
        if self.condition is not None:
            return self.condition.matches(properties)
        return self.wants(properties.get(TAGS, ""))

    def has_same_filter(self, other: "Subscription") -> bool:
        """Return whether both have equal filters, independent of their versions."""
        if self.expression_type != other.expression_type:
            return False
        if self.condition is not None:
            return self.expression == other.expression
        return self.tags == other.tags


def parse_subscription(
    topic: str, expression: str, expression_type: str = TAG, *, version_ms: int = 0
) -> Subscription:
    """Parse the expression of a subscription.

    Args:
        topic: Name of the topic.
        expression: Type TAG: `*` or empty for all messages, else tags separated by `||`. Type
            SQL92: condition on properties.
        expression_type: `TAG` or `SQL92`; empty = `TAG`.
        version_ms: Time of the creation, Unix ms.

    Raises:
        UsageError: The expression is too long, has no tag or is no condition; or the type is
            unknown.
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
