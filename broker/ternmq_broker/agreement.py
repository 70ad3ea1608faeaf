"""Whether the members of a group subscribe alike. Pure.

Each queue is read by one member, which passes over what it does not want. So where members want
different messages, some reach nobody.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Final

from ternmq_broker.clients import GroupMembership
from ternmq_model.names import RETRY_PREFIX
from ternmq_model.subscription import Subscription

NAMED_MAX: Final = 3
"""Members that say one thing, and topics that they disagree about, which are named; the others are
counted."""


def differences(group: str, members: Iterable[tuple[str, GroupMembership]]) -> Sequence[str]:
    """Return in what the members of a group differ, a line each; empty = they are alike.

    Tags in another order are the same. The group's retry topic does not count: only push consumers
    subscribe to it. Nor does where members begin: it matters to queues that are new to a group.

    Args:
        group: Its name.
        members: Client ids, and what each says.
    """
    told = sorted(members, key=lambda each: each[0])
    models = _answers((name, *_model(each)) for name, each in told)
    lines = [f"message model: {', '.join(models)}"] if len(models) > 1 else []
    topics = {topic for _, each in told for topic in each.subscriptions} - {RETRY_PREFIX + group}
    differing: list[str] = []
    for topic in sorted(topics):
        answers = _answers((name, *_filter(each.subscriptions.get(topic))) for name, each in told)
        if len(answers) > 1:
            differing.append(f"topic {topic}: {', '.join(answers)}")
    lines += differing[:NAMED_MAX]
    if len(differing) > NAMED_MAX:
        lines.append(f"{len(differing) - NAMED_MAX} more topics")
    return lines


def _answers(given: Iterable[tuple[str, Hashable, str]]) -> list[str]:
    """Return a text for each different answer, with the members that give it.

    Args:
        given: Member, what it answers, and how that is written.
    """
    names: dict[Hashable, list[str]] = {}
    texts: dict[Hashable, str] = {}
    for name, answer, text in given:
        names.setdefault(answer, []).append(name)
        texts.setdefault(answer, text)
    return [f"{texts[answer]} ({_some(members)})" for answer, members in names.items()]


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _model(membership: GroupMembership) -> tuple[Hashable, str]:
    text = "BROADCASTING" if membership.is_broadcasting else "CLUSTERING"
    return text, text


def _filter(subscription: Subscription | None) -> tuple[Hashable, str]:
    """Return what is wanted of a topic, and how it is written."""
    if subscription is None:
        return None, "not subscribed"
    text = repr(subscription.expression)
    if subscription.condition is not None:
        return subscription.expression, f"{subscription.expression_type} {text}"
    return subscription.tags, text
