"""What a reader wants of a topic: tags, and how a broker and a client test them.

Source: RocketMQ `FilterAPI`, `SubscriptionData`.
"""

from dataclasses import dataclass

from ternmq_model.errors import UsageError
from ternmq_model.names import check_topic
from ternmq_model.properties import tag_code

ALL_TAGS = "*"
EXPRESSION_CHARACTERS_MAX = 4096


@dataclass(frozen=True, slots=True)
class Subscription:
    """One topic with the tags that are wanted; no tags = all messages."""

    topic: str
    expression: str
    tags: frozenset[str]
    codes: frozenset[int]
    """What the broker compares with a consume queue's unit; several tags may share one."""

    version_ms: int = 0
    """When it was formed; a newer one replaces an older one."""

    @property
    def tag_codes(self) -> frozenset[int] | None:
        """The codes to filter by; None = take everything."""
        return self.codes or None

    def wants(self, tag: str) -> bool:
        """Tell whether a message with this very tag is wanted."""
        return not self.tags or tag in self.tags


def parse_subscription(topic: str, expression: str, *, version_ms: int = 0) -> Subscription:
    """Read a tag expression: `*` or empty for all, else tags separated by `||`.

    Raises:
        UsageError: The expression is too long or names no tag.
        IllegalName: The topic is illegal.
    """
    check_topic(topic)
    if len(expression) > EXPRESSION_CHARACTERS_MAX:
        raise UsageError(
            f"subscription to {topic!r}: the expression has {len(expression)} characters, "
            f"at most {EXPRESSION_CHARACTERS_MAX} are read"
        )
    text = expression.strip()
    if text in ("", ALL_TAGS):
        return Subscription(topic, ALL_TAGS, frozenset(), frozenset(), version_ms)
    tags = frozenset(tag for part in text.split("||") if (tag := part.strip()))
    if not tags:
        raise UsageError(f"subscription to {topic!r}: {expression!r} names no tag")
    return Subscription(topic, text, tags, frozenset(map(tag_code, tags)), version_ms)
