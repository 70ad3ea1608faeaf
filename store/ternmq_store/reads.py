"""Everything that is read of a store: queues, their messages, single records."""

from collections.abc import Sequence

from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_store.commit_log import CommitLog
from ternmq_store.consume_queue import ConsumeQueue
from ternmq_store.consume_queues import ConsumeQueues
from ternmq_store.dispatcher import Dispatcher
from ternmq_store.reader import ReadResult, read_queue, stored_at_ms


class Reads:
    """Reads what is dispatched, and changes nothing.

    Owned by `MessageStore`, on the store's thread.
    """

    def __init__(self, log: CommitLog, queues: ConsumeQueues, dispatcher: Dispatcher) -> None:
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher

    def queues(self) -> Sequence[tuple[str, int]]:
        """Return topic and queue id of every queue there is, sorted."""
        return sorted((queue.topic, queue.queue_id) for queue in self._queues)

    def next_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """Return the queue offset that the next message gets."""
        queue = self._queues.find(topic, queue_id)
        return queue.next_offset if queue else QueueOffset(0)

    def queue_range(self, topic: str, queue_id: int) -> tuple[QueueOffset, QueueOffset]:
        """Return the first message that can be read, and what comes behind the last one."""
        queue = self._queues.find(topic, queue_id)
        return (queue.min_offset, queue.end) if queue else (QueueOffset(0), QueueOffset(0))

    def last_stored_at_ms(self, topic: str, queue_id: int) -> int:
        """Return the store time of the queue's newest readable message; 0 if it has none."""
        queue = self._queues.find(topic, queue_id)
        return self._newest(queue) if queue else 0

    def newest_stored_at_ms(self) -> int:
        """Return the store time of the newest readable message of all; 0 if there is none."""
        return max(map(self._newest, self._queues), default=0)

    def _newest(self, queue: ConsumeQueue) -> int:
        unit = queue.last_unit()
        return stored_at_ms(self._log, unit.offset, self._dispatcher.offset) if unit else 0

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: QueueOffset,
        *,
        messages_max: int = 32,
        bytes_max: int = 262_144,
        tag_codes: frozenset[int] | None = None,
    ) -> ReadResult:
        """Return messages of a queue from `offset` on: copies of their records.

        The first one is taken however long it is. With `tag_codes`, a read looks at 800 messages
        at most and may find none. A read ends with the file it is in, of the queue or the log.

        Source: RocketMQ `DefaultMessageStore.getMessage`.
        """
        return read_queue(
            self._log,
            self._queues.find(topic, queue_id),
            offset,
            messages_max=messages_max,
            bytes_max=bytes_max,
            tag_codes=tag_codes,
        )

    def record_at(self, offset: PhysicalOffset, end: PhysicalOffset) -> bytes | None:
        """Return the record that begins at `offset` and ends by `end`; None if there is none."""
        record = self._log.record_at(offset, end)
        if record is None:
            return None
        file = self._log.files.at(offset)
        position = offset - file.base
        return bytes(file.view[position : position + record.header.total_bytes])
