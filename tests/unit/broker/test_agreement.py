"""In what the members of a group differ."""

import pytest

from ternmq_broker.agreement import differences
from ternmq_broker.clients import GroupMembership
from ternmq_model.subscription import SQL92, TAG, parse_subscription


def member(
    *wanted: tuple[str, str] | tuple[str, str, str], is_broadcasting: bool = False, begins: str = ""
) -> GroupMembership:
    subscriptions = {
        topic: parse_subscription(topic, text, kind[0] if kind else TAG, version_ms=len(wanted))
        for topic, text, *kind in wanted
    }
    return GroupMembership("g", is_broadcasting, begins, subscriptions)


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
    assert differences("g", ((str(number), each) for number, each in enumerate(members))) == []


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
        ["topic t: 'a' (m0), 'b' (m1, m2, m3 and 2 more)"],
    ),
]


@pytest.mark.parametrize(("members", "lines"), DIFFERING)
def test_differences_name_topic_filters_and_members(
    members: list[GroupMembership], lines: list[str]
) -> None:
    named = [(f"m{number}", each) for number, each in enumerate(members)]
    assert differences("g", named[::-1]) == lines


def test_differences_of_many_topics_are_counted() -> None:
    many = member(*((f"t{number}", "*") for number in range(9)))
    *named, last = differences("g", [("a", many), ("b", member(("t0", "*")))])
    assert [line.partition(":")[0] for line in named] == ["topic t1", "topic t2", "topic t3"]
    assert last == "5 more topics"
