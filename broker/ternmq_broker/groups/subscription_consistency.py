"""Consistency of subscriptions: members of a group that subscribe differently. Pure.

Each queue is read by one member, which passes over what it does not want. So where members want
different messages, some reach nobody.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import Final, NamedTuple, TypeAlias

from ternmq_broker.state.clients import GroupMembership
from ternmq_model.names import RETRY_PREFIX
from ternmq_model.subscription import Subscription

NAMED_MAX: Final = 3
"""Topics that members disagree about, answers to each, and members of each answer, that are named.
The others are not counted either: a text that changes with each member would be news to all."""

TEXT_CHARACTERS_MAX: Final = 200
"""Limit of one answer, such as a long list of tags."""

_MODEL: Final = ""
"""The message model stands where topics do, before all of them."""

SubscriptionSet: TypeAlias = frozenset[tuple[str, str]]
"""Subscriptions of one member: topics, and an expression for each. Equal ones are alike."""


def subscription_set_of(membership: GroupMembership) -> SubscriptionSet:
    """Return the subscriptions of a member.

    Tags in another order are the same. The group's retry topic does not count: only push consumers
    subscribe to it. Nor does where members begin: it matters to queues that are new to a group.
    """
    retry_topic = RETRY_PREFIX + membership.group
    wanted = {
        (topic, _text(subscription))
        for topic, subscription in membership.subscriptions.items()
        if topic != retry_topic
    }
    wanted.add((_MODEL, "BROADCASTING" if membership.is_broadcasting else "CLUSTERING"))
    return frozenset(wanted)


class _AlikeMembers(NamedTuple):
    """Members with equal subscriptions."""

    subscriptions: SubscriptionSet
    names: set[str]
    """Client ids of the members; never empty."""


class SubscriptionConsistency:
    """Subscriptions of the members of each group. Owned by `SessionManager`.

    Learning of one member costs what that member says, however many others there are.
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
        """Return the differences between the members of a group; see `differences`."""
        return differences({each.subscriptions: each.names for each in self._kinds_of(group)})

    def differences_with(self, client_id: str, membership: GroupMembership) -> Sequence[str]:
        """Return the differences that there would be with this membership."""
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
    """Return the differences between the members of a group, a line each; empty = none.

    The same of the same members, in whatever order they came.

    Args:
        kinds: Client ids of the members that want the same.
    """
    if len(kinds) < 2:
        return ()
    told = sorted(
        (nsmallest(NAMED_MAX + 1, names), dict(subscriptions))
        for subscriptions, names in kinds.items()
    )
    in_all = frozenset[tuple[str, str]].intersection(*kinds)
    lines: list[str] = []
    for topic in sorted({topic for subscriptions in kinds for topic, _ in subscriptions - in_all}):
        if len(lines) == NAMED_MAX:
            return (*lines, "more topics")
        answers: dict[str, list[str]] = {}
        for names, subscriptions in told:
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
