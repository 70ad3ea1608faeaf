"""Legal names."""

import pytest

from ternmq_model.errors import IllegalName
from ternmq_model.names import (
    check_group,
    check_topic,
    is_broker_group,
    is_send_forbidden,
    is_system_group,
    is_system_topic,
)


@pytest.mark.parametrize("name", ["T", "%RETRY%g", "a|b", "A-b_9", "x" * 127])
def test_legal_topics_are_returned(name: str) -> None:
    assert check_topic(name) == name


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a/b", "..", "a.b", "é", "a\n", "x" * 128, "a\x00"]
)
def test_illegal_topics_are_named(name: str) -> None:
    with pytest.raises(IllegalName, match="topic"):
        check_topic(name)


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
