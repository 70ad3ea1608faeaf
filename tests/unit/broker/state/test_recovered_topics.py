from ternmq_broker.state.recovered_topics import found_topics
from ternmq_model.names import HALF_TOPIC, SCHEDULE_TOPIC
from ternmq_model.route import TopicConfig


def test_topic_with_queues_and_no_entry_gets_one_with_all_of_them() -> None:
    queues = [("orders", 0), ("orders", 3), ("bills", 0), ("bills", 1)]
    assert found_topics(queues, ["bills"]) == [TopicConfig("orders", 4, 4)]
    assert found_topics(queues, ["bills", "orders"]) == []


def test_system_topics_need_no_entry_but_group_topics_do() -> None:
    queues = [(SCHEDULE_TOPIC, 2), (HALF_TOPIC, 0), ("%RETRY%readers", 0), ("%DLQ%readers", 0)]
    found = [config.topic for config in found_topics(queues, [])]
    assert found == ["%DLQ%readers", "%RETRY%readers"]
