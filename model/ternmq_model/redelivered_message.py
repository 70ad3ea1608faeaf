"""A message that a group takes again, as its listener is to see it."""

from ternmq_model import properties as names
from ternmq_model.stored_message import StoredMessage


class RedeliveredMessage(StoredMessage):
    """A stored message under the topic it was first sent to, with the attempts made so far.

    `queue` and `queue_offset` stay those of the record that was read: of a retry topic's queue,
    when it comes from there. A class of its own, so that messages that come for the first time
    cost nothing more.

    Source: RocketMQ `DefaultMQPushConsumerImpl.resetRetryAndNamespace`.
    """

    __slots__ = ("_reconsume_times", "_topic")

    _reconsume_times: int
    _topic: str

    @property
    def topic(self) -> str:
        """The topic that its producer sent it to."""
        return self._topic

    @property
    def reconsume_times(self) -> int:
        """Number of times that its group has taken it again, attempts unknown to the broker too."""
        return self._reconsume_times

    @classmethod
    def of(
        cls, message: StoredMessage, *, topic: str = "", reconsume_times: int | None = None
    ) -> "RedeliveredMessage":
        """Return `message` under another topic, or with other attempts; by default with its own."""
        copy = cls(
            message._batch,
            message._begin,
            message._body_at,
            message._body_end,
            message._end,
            message.queue,
            message.queue_offset,
        )
        copy._topic = topic or message.topic
        copy._reconsume_times = (
            message.reconsume_times if reconsume_times is None else reconsume_times
        )
        return copy


def under_original_topic(message: StoredMessage) -> StoredMessage:
    """Return a message of a retry topic under the topic that it was first sent to."""
    topic = message.properties.get(names.RETRY_TOPIC, "")
    return RedeliveredMessage.of(message, topic=topic) if topic else message


def tried_again(message: StoredMessage) -> StoredMessage:
    """Return `message` with one attempt more."""
    return RedeliveredMessage.of(message, reconsume_times=message.reconsume_times + 1)
