"""First request of a send stream."""

from ternmq_producer.config import ProducerConfig
from ternmq_producer.send_stream.open_request import open_request


def test_open_request_names_the_producer_and_the_template_of_new_topics() -> None:
    config = ProducerConfig(topic_queues=3, template_topic="template")
    opened = open_request(config, "host@1", "group", "incarnation").open
    assert (opened.client_id, opened.producer_group) == ("host@1", "group")
    assert opened.incarnation == "incarnation"
    assert (opened.auto_create.template_topic, opened.auto_create.queues) == ("template", 3)


def test_open_request_without_new_topics_has_no_template() -> None:
    config = ProducerConfig(creates_topics=False)
    assert open_request(config, "host@1", "group", "i").open.auto_create.template_topic == ""
