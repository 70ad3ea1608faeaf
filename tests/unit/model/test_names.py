"""Legal names."""

from collections.abc import Callable

import pytest

from ternmq_model.errors import IllegalName
from ternmq_model.names import (
    check_group,
    check_new_name,
    check_topic,
    group_order,
    is_broker_group,
    is_send_forbidden,
    is_system_group,
    is_system_topic,
    topic_order,
)


@pytest.mark.parametrize(
    "name", ["T", "%RETRY%g", "a|b", "A-b_9", "a.b", "a..b.", "%RETRY%a.b", "x" * 127]
)
def test_legal_topics_are_returned(name: str) -> None:
    assert check_topic(name) == name


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a/b", ".", "..", ".a", "../a", "é", "a\n", "x" * 128, "a\x00"]
)
def test_illegal_topics_are_named(name: str) -> None:
    with pytest.raises(IllegalName, match="topic"):
        check_topic(name)


@pytest.mark.parametrize("check", [check_topic, check_group])
def test_error_of_an_illegal_name_says_what_is_allowed(check: Callable[[str], str]) -> None:
    with pytest.raises(
        IllegalName, match=r"only letters \(a-z, A-Z\), digits and % \| _ -; .*dots"
    ):
        check("a b")


def test_new_name_has_dots_only_where_the_broker_takes_them() -> None:
    for allows_dots in (True, False):
        check_new_name("topic", "a_b", allows_dots=allows_dots)
    check_new_name("topic", "a.b", allows_dots=True)
    with pytest.raises(IllegalName, match=r"'a\.b'.*digits and % \| _ -.*dots_in_names_allowed"):
        check_new_name("topic", "a.b", allows_dots=False)


def test_lists_end_with_topics_of_groups_and_then_of_the_system() -> None:
    names = ["%DLQ%g", "%RETRY%g", "RMQ_SYS_TRACE_TOPIC", "TBW102", "Zoo", "flights", "a.b"]
    assert sorted(names, key=topic_order) == [
        *("Zoo", "a.b", "flights", "%DLQ%g", "%RETRY%g", "RMQ_SYS_TRACE_TOPIC", "TBW102")
    ]
    assert sorted(["TOOLS_CONSUMER", "z"], key=group_order) == ["z", "TOOLS_CONSUMER"]


def test_group_names_are_shorter_than_topic_names() -> None:
    assert check_group("g" * 120)
    with pytest.raises(IllegalName, match="group"):
        check_group("g" * 121)


def test_names_made_from_a_group_are_topics() -> None:
    assert check_topic("%RETRY%" + "g" * 120)
    assert check_topic("%DLQ%" + "g" * 120)


def test_system_topics_are_known() -> None:
    assert is_system_topic("TBW102")
    assert is_system_topic("rmq_sys_anything")
    assert not is_system_topic("flights")


def test_system_topics_are_closed_to_clients() -> None:
    for topic in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "TBW102", "rmq_sys_x"):
        assert is_send_forbidden(topic)
    for topic in ("flights", "BenchmarkTest", "%RETRY%g"):
        assert not is_send_forbidden(topic)


@pytest.mark.parametrize(
    ("group", "is_system", "is_brokers"),
    [
        ("CID_RMQ_SYS_TRANS", True, True),
        ("SCHEDULE_CONSUMER", True, True),
        ("TOOLS_CONSUMER", True, False),
        ("TOOLS_DEAD_LETTERS", True, False),
        ("readers", False, False),
        ("cid_rmq_sys_trans", False, False),
    ],
)
def test_system_and_broker_groups_are_known_by_name(
    group: str, is_system: bool, is_brokers: bool
) -> None:
    assert is_system_group(group) == is_system
    assert is_broker_group(group) == is_brokers
