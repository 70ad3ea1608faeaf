"""Subscriptions to topics, in the forms of users and of the wire contract."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, TypeGuard

from ternmq_model.arguments import is_kind
from ternmq_model.errors import UsageError
from ternmq_model.subscription import ALL_TAGS, Expression, Subscription, parse_subscription
from ternmq_protos.v1 import messages_pb2 as messages

logger = logging.getLogger(__name__)

SubscriptionExpression: TypeAlias = str | Expression
"""Tags, such as `*` or `eu || jp`; or a condition on properties: `sql("amount > 100")`."""

Subscriptions: TypeAlias = (
    str | Subscription | Mapping[str, SubscriptionExpression] | Sequence[Subscription]
)
"""A topic; or expressions by topic; or subscriptions."""


def subscription_to(
    topic: str, wanted: SubscriptionExpression, *, version_ms: int = 0
) -> Subscription:
    """Return the subscription to `topic` that `wanted` describes.

    Raises:
        IllegalName: The topic's name is illegal.
        UsageError: The expression is malformed.
    """
    if not is_kind(wanted, str, Expression):
        raise UsageError(
            f"subscription to {topic!r}: {wanted!r} must be tags, such as 'eu || jp', "
            "'*' for all messages, or a condition: sql(\"amount > 100\")"
        )
    text, kind = (wanted, "") if isinstance(wanted, str) else wanted
    subscription = parse_subscription(topic, text, kind, version_ms=version_ms)
    condition = subscription.condition
    if condition is not None and condition.ignored_from is not None:
        logger.warning(
            "text after a condition is ignored topic=%s condition=%r ignored=%r",
            topic,
            text[: condition.ignored_from],
            text[condition.ignored_from :],
        )
    return subscription


def subscriptions_by_topic(topics: Subscriptions) -> dict[str, Subscription]:
    """Return the subscriptions that `topics` describes, by topic.

    Raises:
        IllegalName: A topic's name is illegal.
        UsageError: There is no topic, a topic twice, a value of another type, or a malformed
            expression.
    """
    given: object = topics
    if isinstance(topics, str):
        wanted = [subscription_to(topics, ALL_TAGS)]
    elif isinstance(topics, Subscription):
        wanted = [topics]
    elif isinstance(topics, Mapping):
        wanted = [subscription_to(topic, each) for topic, each in topics.items()]
    elif is_kind(given, Sequence) and all(is_kind(each, Subscription) for each in topics):
        wanted = list(topics)
    else:
        names = [name for name in given if isinstance(name, str)] if _is_several(given) else []
        several = ", ".join(f"{name!r}: '*'" for name in names) or "'orders': '*', 'bills': 'eu'"
        raise UsageError(
            f"topics={given!r}: must be one topic, such as {(names or ['orders'])[0]!r}, "
            f"or tags or a condition by topic: {{{several}}}"
        )
    by_topic = {subscription.topic: subscription for subscription in wanted}
    if not wanted or len(by_topic) < len(wanted):
        raise UsageError("a consumer needs at least one topic, and each topic once")
    return by_topic


def _is_several(given: object) -> TypeGuard[Iterable[object]]:
    return isinstance(given, list | tuple | set | frozenset)


def subscription_message(subscription: Subscription) -> messages.Subscription:
    """Return the subscription as a message of the wire contract."""
    return messages.Subscription(
        topic=subscription.topic,
        expression_type=subscription.expression_type,
        expression=subscription.expression,
        version_ms=subscription.version_ms,
    )
