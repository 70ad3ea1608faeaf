"""In what the members of a group differ."""

from collections.abc import Sequence

import pytest

from ternmq_broker.groups.subscription_consistency import (
    TEXT_CHARACTERS_MAX,
    SubscriptionConsistency,
)
from ternmq_broker.state.clients import GroupMembership
from ternmq_model.subscription import SQL92, TAG, parse_subscription


def member(
    *wanted: tuple[str, str] | tuple[str, str, str], is_broadcasting: bool = False, begins: str = ""
) -> GroupMembership:
    subscriptions = {
        topic: parse_subscription(topic, text, kind[0] if kind else TAG, version_ms=len(wanted))
        for topic, text, *kind in wanted
    }
    return GroupMembership("g", is_broadcasting, begins, subscriptions)


def differences(*members: tuple[str, GroupMembership]) -> Sequence[str]:
    """Return in what members differ that came in this order."""
    consistency = SubscriptionConsistency()
    for client_id, membership in members:
        told = consistency.differences_with(client_id, membership)
        consistency.put(client_id, membership)
        assert consistency.differences("g") == told
    return consistency.differences("g")


ALIKE = [
    [],
    [member(("t", "*"))],
    [member(("t", "a || b")), member(("t", "b||a"))],
    [member(("t", "*")), member(("t", ""))],
    [member(("t", "*"), ("%RETRY%g", "*")), member(("t", "*"))],
    [member(("t", "*"), begins="CONSUME_FROM_LAST_OFFSET"), member(("t", "*"))],
    [member(("t", "x > 1", SQL92)), member(("t", "x > 1", SQL92))],
]


@pytest.mark.parametrize("members", ALIKE)
def test_members_that_want_the_same_messages_are_alike(members: list[GroupMembership]) -> None:
    assert differences(*((str(number), each) for number, each in enumerate(members))) == ()


DIFFERING = [
    ([member(("t", "a")), member(("t", "b"))], ["topic t: 'a' (m0), 'b' (m1)"]),
    ([member(("t", "a")), member(("t", "*"))], ["topic t: 'a' (m0), '*' (m1)"]),
    (
        [member(("t", "a")), member(("t", "a"), ("u", "*"))],
        ["topic u: not subscribed (m0), '*' (m1)"],
    ),
    (
        [member(("t", "a")), member(("u", "*"))],
        ["topic t: 'a' (m0), not subscribed (m1)", "topic u: not subscribed (m0), '*' (m1)"],
    ),
    ([member(("t", "a")), member(("t", "a", SQL92))], ["topic t: 'a' (m0), SQL92 'a' (m1)"]),
    (
        [member(("t", "*")), member(("t", "*"), is_broadcasting=True)],
        ["message model: CLUSTERING (m0), BROADCASTING (m1)"],
    ),
    (
        [member(("%RETRY%h", "a")), member(("%RETRY%h", "b"))],
        ["topic %RETRY%h: 'a' (m0), 'b' (m1)"],
    ),
    (
        [member(("t", "a")), *(member(("t", "b")) for _ in range(5))],
        ["topic t: 'a' (m0), 'b' (m1, m2, m3 and others)"],
    ),
]


@pytest.mark.parametrize(("members", "lines"), DIFFERING)
def test_differences_name_topic_filters_and_members(
    members: list[GroupMembership], lines: list[str]
) -> None:
    named = [(f"m{number}", each) for number, each in enumerate(members)]
    assert list(differences(*named[::-1])) == list(differences(*named)) == lines


def test_differences_name_only_some_of_many_topics_answers_and_characters() -> None:
    many = member(*((f"t{number}", "*") for number in range(9)))
    *named, last = differences(("a", many), ("b", member(("t0", "*"))))
    assert [line.partition(":")[0] for line in named] == ["topic t1", "topic t2", "topic t3"]
    assert last == "more topics"
    (line,) = differences(*((f"m{each}", member(("t", f"x{each}"))) for each in range(9)))
    assert line == "topic t: 'x0' (m0), 'x1' (m1), 'x2' (m2) and others"
    (line,) = differences(("a", member(("t", "x" * 4000))), ("b", member(("t", "y"))))
    assert len(line) < TEXT_CHARACTERS_MAX + 50


def test_members_are_alike_again_when_one_changes_or_leaves() -> None:
    consistency = SubscriptionConsistency()
    consistency.put("a", member(("t", "x")))
    consistency.put("b", member(("t", "y")))
    assert consistency.differences_with("b", member(("t", "x"))) == ()
    assert consistency.differences_with("c", member(("t", "x"))) != ()
    consistency.put("b", member(("t", "x")))
    assert consistency.differences("g") == ()
    consistency.put("b", member(("t", "y")))
    for _ in range(2):
        consistency.remove("a", "g")
    assert consistency.differences("g") == ()
    consistency.remove("b", "g")
    assert consistency.differences_with("c", member(("t", "z"))) == ()
