"""Which topics hold users' messages."""

import pytest

from ternmq_store.scan.user_topics import is_light, is_user_topic


@pytest.mark.parametrize("topic", ["flights", "rmq", "RETRY", "a_REPLY_TOPICS"])
def test_topic_made_by_users_is_read(topic: str) -> None:
    assert is_user_topic(topic)


@pytest.mark.parametrize(
    "topic",
    [
        "%RETRY%group", "%DLQ%group", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel_timer", "TBW102",
        "RMQ_SYS_ANYTHING", "DefaultCluster_REPLY_TOPIC", "%LMQ%light", "OFFSET_MOVED_EVENT",
    ],
)  # fmt: skip
def test_topics_of_brokers_and_groups_are_not_user_topics(topic: str) -> None:
    assert not is_user_topic(topic)
    assert is_light(topic) is (topic == "%LMQ%light")
