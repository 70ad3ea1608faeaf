"""Name of a queue."""

from typing import NamedTuple


class MessageQueue(NamedTuple):
    """Queue of a topic on a broker. The order is topic, broker name, queue id."""

    topic: str
    """Name of the topic."""

    broker_name: str
    """Name of the broker, which a master and its slaves share."""

    queue_id: int
    """Number of the queue among the topic's queues on that broker, from 0."""

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"
