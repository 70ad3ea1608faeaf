from ternmq_pipeline.options.topics import Assign, Subscribe, SubscribePattern, chosen_topics
from tests.support.planning import A0

KNOWN = [
    *("TopicA", "TopicB", "%RETRY%group", "%DLQ%group", "SCHEDULE_TOPIC_XXXX"),
    *("RMQ_SYS_TRANS_HALF_TOPIC", "TBW102", "rmq_sys_x", "DefaultCluster_REPLY_TOPIC"),
]


def test_names_select_the_topics_that_exist() -> None:
    assert chosen_topics(Subscribe(("TopicB", "TopicZ")), KNOWN) == ["TopicB"]
    assert chosen_topics(Subscribe(("%DLQ%group",)), KNOWN) == ["%DLQ%group"]
    assert chosen_topics(Assign((A0,)), KNOWN) == ["TopicA"]


def test_pattern_selects_user_topics_by_default() -> None:
    everything = SubscribePattern(".*")
    assert chosen_topics(everything, KNOWN) == ["TopicA", "TopicB"]
    with_system = chosen_topics(everything, KNOWN, include_system=True)
    assert with_system == [
        *("DefaultCluster_REPLY_TOPIC", "SCHEDULE_TOPIC_XXXX", "TBW102", "TopicA", "TopicB"),
        "rmq_sys_x",
    ]


def test_pattern_matches_the_whole_name() -> None:
    assert chosen_topics(SubscribePattern("Topic"), KNOWN) == []
    assert chosen_topics(SubscribePattern("TopicA|TopicB"), KNOWN) == ["TopicA", "TopicB"]
