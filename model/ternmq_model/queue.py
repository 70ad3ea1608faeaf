"""The name of one queue."""

from typing import NamedTuple


class MessageQueue(NamedTuple):
    """One queue of one topic on one broker. Sorts by topic, then broker name, then queue id."""

    topic: str
    """The topic's name."""

    broker_name: str
    """The name of its broker, which a master and its slaves share."""

    queue_id: int
    """Its number among the topic's queues on that broker, from 0."""

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"
