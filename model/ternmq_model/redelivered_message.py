"""Redelivered messages in the form for listeners."""

from ternmq_model import properties as names
from ternmq_model.stored_message import StoredMessage


class RedeliveredMessage(StoredMessage):
    """Stored message under its original topic, with the number of attempts so far.

    `queue` and `queue_offset` are those of the record that was read, which may lie in a retry
    topic's queue. The class is separate so that first deliveries cost no more.

    Source: RocketMQ `DefaultMQPushConsumerImpl.resetRetryAndNamespace`.
    """

    __slots__ = ("_reconsume_times", "_topic")

    _reconsume_times: int
    _topic: str

    @property
    def topic(self) -> str:
        """Topic that the producer sent the message to."""
        return self._topic

    @property
    def reconsume_times(self) -> int:
        """Number of redeliveries to the group, also those unknown to the broker."""
        return self._reconsume_times

    @classmethod
    def of(
        cls, message: StoredMessage, *, topic: str = "", reconsume_times: int | None = None
    ) -> "RedeliveredMessage":
        """Return `message` under another topic, or with other attempts; by default with its own."""
        copy = cls.at(message._batch, message._begin, message.queue, message.queue_offset)
        copy._topic = topic or message.topic
        copy._reconsume_times = (
            message.reconsume_times if reconsume_times is None else reconsume_times
        )
        return copy


def under_original_topic(message: StoredMessage) -> StoredMessage:
    """Return a message of a retry topic under its original topic."""
    topic = message.properties.get(names.RETRY_TOPIC, "")
    return RedeliveredMessage.of(message, topic=topic) if topic else message


def tried_again(message: StoredMessage) -> StoredMessage:
    """Return `message` with one more attempt."""
    return RedeliveredMessage.of(message, reconsume_times=message.reconsume_times + 1)
