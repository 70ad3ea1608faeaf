"""Consistency of subscriptions: members of a group that subscribe differently. Pure.

Each queue is read by one member, which skips messages outside its subscription. So messages reach
no member when the subscriptions of a group differ.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import Final, NamedTuple, TypeAlias

from ternmq_broker.state.clients import GroupMembership
from ternmq_model.names import RETRY_PREFIX
from ternmq_model.subscription import Subscription

NAMED_MAX: Final = 3
"""Limit on the topics of a text, on the subscriptions to each topic, and on the members of each.
The text contains no count of the others: it would change, and be sent, with each member."""

TEXT_CHARACTERS_MAX: Final = 200
"""Limit on the text of one subscription, such as a long list of tags."""

_MODEL: Final = ""
"""Pseudo-topic of the message model, sorted before all topics."""

SubscriptionSet: TypeAlias = frozenset[tuple[str, str]]
"""Topics of one member with an expression each. Members with equal sets subscribe alike."""


def subscription_set_of(membership: GroupMembership) -> SubscriptionSet:
    """Return the subscriptions of a member.

    The order of tags does not count. Neither does the group's retry topic, to which only push
    consumers subscribe, nor the offset at which members begin, which matters only to new queues.
    """
    retry_topic = RETRY_PREFIX + membership.group
    subscriptions = {
        (topic, _text(subscription))
        for topic, subscription in membership.subscriptions.items()
        if topic != retry_topic
    }
    subscriptions.add((_MODEL, "BROADCASTING" if membership.is_broadcasting else "CLUSTERING"))
    return frozenset(subscriptions)


class _AlikeMembers(NamedTuple):
    """Members with equal subscriptions."""

    subscriptions: SubscriptionSet
    names: set[str]
    """Client ids of the members; never empty."""


class SubscriptionConsistency:
    """Subscriptions of the members of each group. Owned by `SessionManager`.

    A change of one member costs time for its own subscriptions, not for those of other members.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, dict[SubscriptionSet, _AlikeMembers]] = {}
        """Members with equal subscriptions, by group and subscriptions."""
        self._kind_of: dict[tuple[str, str], _AlikeMembers] = {}
        """Members with the subscriptions of a client, by group and client id."""

    def put(self, client_id: str, membership: GroupMembership) -> None:
        """Record the present subscriptions of a member."""
        group, subscriptions = membership.group, subscription_set_of(membership)
        self.remove(client_id, group)
        kind = self._kinds.setdefault(group, {}).setdefault(
            subscriptions, _AlikeMembers(subscriptions, set())
        )
        kind.names.add(client_id)
        self._kind_of[group, client_id] = kind

    def remove(self, client_id: str, group: str) -> None:
        """Remove a member. Safe to repeat."""
        kind = self._kind_of.pop((group, client_id), None)
        if kind is None:
            return
        kind.names.remove(client_id)
        if not kind.names:
            del self._kinds[group][kind.subscriptions]
        if not self._kinds[group]:
            del self._kinds[group]

    def differences(self, group: str) -> Sequence[str]:
        """Return the differences between the members of a group, one line each; empty = none."""
        return differences({each.subscriptions: each.names for each in self._kinds_of(group)})

    def differences_with(self, client_id: str, membership: GroupMembership) -> Sequence[str]:
        """Return the differences that a group would have with this membership."""
        subscriptions, alone = subscription_set_of(membership), {client_id}
        kinds = self._kinds_of(membership.group)
        if all(each.subscriptions == subscriptions or each.names == alone for each in kinds):
            return ()
        names = {each.subscriptions: each.names - alone for each in kinds if each.names != alone}
        names[subscriptions] = names.get(subscriptions, set()) | alone
        return differences(names)

    def _kinds_of(self, group: str) -> Collection[_AlikeMembers]:
        return self._kinds.get(group, {}).values()


def differences(kinds: Mapping[SubscriptionSet, Collection[str]]) -> Sequence[str]:
    """Return the differences between the members of a group, one line each; empty = none.

    The order in which members joined does not count.

    Args:
        kinds: Client ids of the members, by their subscriptions.
    """
    if len(kinds) < 2:
        return ()
    by_name = sorted(
        (nsmallest(NAMED_MAX + 1, names), dict(subscriptions))
        for subscriptions, names in kinds.items()
    )
    in_all = frozenset[tuple[str, str]].intersection(*kinds)
    lines: list[str] = []
    for topic in sorted({topic for subscriptions in kinds for topic, _ in subscriptions - in_all}):
        if len(lines) == NAMED_MAX:
            return (*lines, "more topics")
        answers: dict[str, list[str]] = {}
        for names, subscriptions in by_name:
            answers.setdefault(subscriptions.get(topic, "not subscribed"), []).extend(names)
        texts = [f"{_cut(text)} ({_some(sorted(names))})" for text, names in answers.items()]
        lines.append(f"{f'topic {topic}' if topic else 'message model'}: {_some(texts)}")
    return tuple(lines)


def _some(texts: Iterable[str]) -> str:
    named = list(texts)
    return ", ".join(named[:NAMED_MAX]) + (" and others" if len(named) > NAMED_MAX else "")


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARACTERS_MAX else text[:TEXT_CHARACTERS_MAX] + "…"


def _text(subscription: Subscription) -> str:
    """Return a text of a subscription, equal for equal subscriptions."""
    if subscription.condition is not None:
        return f"{subscription.expression_type} {subscription.expression!r}"
    return repr(" || ".join(sorted(subscription.tags)) or "*")
