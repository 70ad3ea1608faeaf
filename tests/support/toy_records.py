"""What toy brokers keep, and the names of their queues."""

from dataclasses import dataclass

TOPIC = "flights"
RETRY_QUEUE = -1


@dataclass(frozen=True)
class ToyRecord:
    """One stored message."""

    data: bytes
    tag: str
    stored_at_ms: int = 1


@dataclass
class ToyHandle:
    """One subscription of a pull stream."""

    queue_id: int
    offset: int
    expression: str
    bytes_left: int
    messages_left: int


def queue_key(topic: str, queue_id: int) -> int:
    """Return what stands for a queue in a toy broker's tables."""
    return queue_id if topic == TOPIC else RETRY_QUEUE
