"""The name of one queue."""

from typing import NamedTuple


class MessageQueue(NamedTuple):
    """One queue of one topic on one broker. Sorts by topic, then broker name, then queue id."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"
