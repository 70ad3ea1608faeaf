"""Topics and records of a toy broker, in memory."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping

from ternmq_model.properties import encode_properties
from ternmq_model.queue import MessageQueue
from ternmq_model.record.format import encode_record
from ternmq_model.stored_message import StoredMessage, decode_single
from tests.support.records import BORN_HOST, STORE_HOST

TOPIC = "flights"


class ToyLog:
    """The topics of one broker, and a list of records for each queue.

    Attributes:
        topics: Numbers of queues. Routes and readers know no other topics; records of others are
            stored all the same.
        queues: Records; the place in the list is the offset.
        min_offsets: Below it records have expired.
        changed: Set, and replaced by another one, when readers are to look again.
    """

    def __init__(self, name: str, queues: int) -> None:
        self.name = name
        self.topics = {TOPIC: queues}
        self.queues: defaultdict[MessageQueue, list[bytes]] = defaultdict(list)
        self.min_offsets: defaultdict[MessageQueue, int] = defaultdict(int)
        self.changed = asyncio.Event()
        self._bytes = 0

    @property
    def bodies(self) -> list[bytes]:
        """The body of every record, by queue, then in order."""
        return [each.body for queue in sorted(self.queues) for each in self.messages(queue)]

    def queues_of(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic, none of one that does not exist."""
        return [MessageQueue(topic, self.name, n) for n in range(self.topics.get(topic, 0))]

    def messages(self, queue: MessageQueue) -> list[StoredMessage]:
        """Return the messages of a queue, in order."""
        return [decode_single(record, self.name) for record in self.queues[queue]]

    def append(self, queue_id: int, body: bytes, tag: str = "", *, stored_at_ms: int = 1) -> int:
        """Store a message of `TOPIC` and return its offset."""
        offset = len(self.queues[MessageQueue(TOPIC, self.name, queue_id)])
        properties = {"UNIQ_KEY": f"{self.name}-{queue_id}-{offset}"}
        if tag:
            properties["TAGS"] = tag
        self.store(TOPIC, queue_id, body, properties, stored_at_ms=stored_at_ms)
        return offset

    def store(
        self, topic: str, queue_id: int, body: bytes, properties: Mapping[str, str], **fields: int
    ) -> tuple[int, int]:
        """Store a record and return its offsets in the queue and in the log.

        Args:
            topic: The record's topic.
            queue_id: The record's queue.
            body: As it lies on disk.
            properties: In their order.
            fields: Other numbers of the record.
        """
        records = self.queues[MessageQueue(topic, self.name, queue_id)]
        offset, begin = len(records), self._bytes
        record = encode_record(
            topic=topic.encode(),
            queue_id=queue_id,
            body=body,
            properties=encode_properties(properties),
            born_host=BORN_HOST,
            store_host=STORE_HOST,
            queue_offset=offset,
            physical_offset=begin,
            **({"born_at_ms": 1, "stored_at_ms": 1} | fields),
        )
        records.append(record)
        self._bytes += len(record)
        self.wake()
        return offset, begin

    def wake(self) -> None:
        """Let readers look again."""
        self.changed.set()
        self.changed = asyncio.Event()
