"""Messages that come again, as a listener sees them."""

from ternmq_model.queue import MessageQueue
from ternmq_model.redelivered_message import tried_again, under_original_topic
from tests.support.handed_out import message_at

RETRIES = MessageQueue("%RETRY%g", "b", 0)


def test_retried_message_appears_under_its_own_topic_and_real_queue() -> None:
    stored = message_at(
        3, queue=RETRIES, properties="RETRY_TOPIC\x01orders\x02TAGS\x01a\x02", reconsume_times=2
    )
    message = under_original_topic(stored)
    assert message.topic == "orders"
    assert message.queue == RETRIES
    assert (message.queue_offset, message.reconsume_times) == (3, 2)
    assert (message.tags, message.body, message.message_id) == ("a", b"body", "id-3")
    assert (message.physical_offset, message.record_bytes) == (3000, stored.record_bytes)


def test_message_that_never_had_another_topic_keeps_its_own() -> None:
    stored = message_at(3, queue=RETRIES)
    assert under_original_topic(stored) is stored


def test_each_attempt_counts_and_the_topic_stays() -> None:
    message = under_original_topic(
        message_at(0, queue=RETRIES, properties="RETRY_TOPIC\x01orders\x02", reconsume_times=2)
    )
    again = tried_again(tried_again(message))
    assert (again.topic, again.reconsume_times) == ("orders", 4)
    assert again.header.reconsume_times == 2
