"""Records that a pull consumer has read ahead of one queue, and the application's position."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ternmq_consumer.process_queue.running_info import ProcessQueueInfo
from ternmq_consumer.pull_stream.flow_control import FlowControlWindow
from ternmq_consumer.pull_stream.pulled_queue import PulledQueue, QueueSubscriber
from ternmq_model.arrays import INT32_BYTES, read_int32s
from ternmq_model.errors import CorruptRecord, RefusedError
from ternmq_model.message_batch import decode_records
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.record.format import read_physical_offset, read_queue_offset
from ternmq_model.stored_message import StoredMessage
from ternmq_model.subscription import Subscription
from ternmq_protos.v1 import messages_pb2 as messages

DECODED_BYTES_MAX: Final = 4 << 20
"""Most bytes of several replies that are decoded as one batch of columns. A decoder's calls cost a
millisecond for any number of rows: a reply of 512 KiB alone takes twice as long for each row."""


class FetchedBatch(NamedTuple):
    """Records of one reply, not decoded."""

    records: bytes
    record_sizes: bytes
    next_offset: QueueOffset


class FetchedQueue:
    """Assigned queue of a pull consumer: a `PullReceiver`. Owned by that consumer.

    Records are decoded when the application takes them, so reading ahead stays cheap.

    Args:
        check_crc: True = the checksum of every body is verified.
        on_ready: Called when records are waiting.
        on_gone: Called when the broker no longer has the queue. The position is lost then.
        on_refused: Called when the broker refuses the queue or the filter.

    Attributes:
        position: Offset of the next message to take; None = unknown.
        settled: Position behind the last handled message.
        polled_to: Offset behind the last message that the application got; None = it got none.
        is_listed: The consumer knows that records are waiting.
        check_crc: See the argument.
        is_leaving: The queue is being given away and is not read any more, also after a seek.
    """

    def __init__(
        self,
        queue: MessageQueue,
        subscription: Subscription,
        window: FlowControlWindow,
        *,
        check_crc: bool,
        on_ready: Callable[["FetchedQueue"], None],
        on_gone: Callable[["FetchedQueue", RefusedError], None],
        on_refused: Callable[[RefusedError], None],
    ) -> None:
        self.queue = queue
        self.position: QueueOffset | None = None
        self.settled: QueueOffset | None = None
        self.polled_to: QueueOffset | None = None
        self.is_listed = False
        self.is_leaving = False
        self._subscription = subscription
        self._window = window
        self.check_crc = check_crc
        self._on_ready = on_ready
        self._on_gone = on_gone
        self._on_refused = on_refused
        self._subscriber: QueueSubscriber | None = None
        self._pulled: PulledQueue | None = None
        self._batches: deque[FetchedBatch] = deque()
        self._decoded: list[StoredMessage] = []
        self._taken = 0
        """Messages taken from `_decoded`, the messages of the first batch."""

    @property
    def has_something(self) -> bool:
        """True while records are waiting."""
        return bool(self._batches)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the waiting records."""
        return sum(len(each.records) for each in self._batches)

    @property
    def tags(self) -> frozenset[str]:
        """Wanted tags; empty = all messages."""
        return self._subscription.tags

    @property
    def filter_key(self) -> tuple[str, frozenset[str]]:
        """Broker and tags: records of queues with equal ones can be decoded together."""
        return self.queue.broker_name, self.tags

    @property
    def is_reading(self) -> bool:
        """True between `start` and `stop`."""
        return self._pulled is not None

    def place(self, offset: QueueOffset) -> None:
        """Set the position to `offset` without reading."""
        self.position = self.settled = offset
        self.polled_to = None

    def start(self, subscriber: QueueSubscriber, offset: QueueOffset) -> None:
        """Read from `offset` on, without older records. A leaving queue gets only the position."""
        self.stop()
        self._subscriber = subscriber
        self.place(offset)
        if self.is_leaving:
            return
        self._pulled = subscriber.subscribe(
            self.queue, self._subscription, offset, self._window, self
        )

    def stop(self) -> None:
        """Stop reading and drop the records that are waiting. Safe to repeat."""
        if self._pulled is not None:
            self._pulled.close()
            self._pulled = None
        self._batches.clear()
        self._decoded = []
        self._taken = 0

    def take(self, count_max: int) -> list[StoredMessage]:
        """Return the next messages, at most `count_max`, and move the position past them.

        Returns:
            Messages of one batch. An empty list does not mean the end: the filter may drop a whole
            batch.

        Raises:
            CorruptRecord: The next batch is corrupt. It is read again; the position stays.
        """
        assert self._batches, "there is something to take"
        batch = self._batches[0]
        if not self._decoded:
            self._decoded = self._decode(batch)
        begin, end = self._taken, self._taken + count_max
        part = self._decoded[begin:end] if begin or end < len(self._decoded) else self._decoded
        if end < len(self._decoded):
            self._taken = end
            self.position = QueueOffset(part[-1].queue_offset + 1)
        else:
            self._batches.popleft()
            self._decoded = []
            self._taken = 0
            self.position = batch.next_offset
        if self._pulled is not None:
            part_bytes = int(read_int32s(batch.record_sizes)[begin:end].sum())
            self._pulled.release(len(part), part_bytes)
        if self.tags:
            wants = self._subscription.wants
            part = [message for message in part if wants(message.tags)]
        if part:
            self.polled_to = QueueOffset(part[-1].queue_offset + 1)
        return part

    def waiting_within(self, bytes_max: int) -> list[FetchedBatch]:
        """Return the first batches with at most `bytes_max` bytes of records, without taken ones.

        The first batch of all is returned even if it is longer.
        """
        if self._taken:
            self._drop_first(self._taken)
        found: list[FetchedBatch] = []
        for batch in self._batches:
            bytes_max -= len(batch.records)
            if found and bytes_max < 0:
                break
            found.append(batch)
        return found

    def pass_records(self, count: int) -> None:
        """Move the position past the first `count` waiting records, and release them."""
        self._decoded = []
        record_bytes, left = 0, count
        while left:
            batch = self._batches[0]
            all_sizes = read_int32s(batch.record_sizes)
            sizes = all_sizes[:left]
            part_bytes = int(sizes.sum())
            if len(sizes) == len(all_sizes):
                self._batches.popleft()
                self.position = batch.next_offset
            else:
                last = read_queue_offset(batch.records, part_bytes - int(sizes[-1]))
                self._drop_first(len(sizes))
                self.position = QueueOffset(last + 1)
            record_bytes += part_bytes
            left -= len(sizes)
        self.polled_to = self.position
        if self._pulled is not None:
            self._pulled.release(count, record_bytes)

    def is_answered(self, below: QueueOffset | None) -> bool:
        """Return whether all that the application got is below `below`."""
        return self.polled_to is None or (below is not None and below >= self.polled_to)

    def report(self, answered: QueueOffset | None) -> ProcessQueueInfo:
        """Return the state of a queue with a position.

        Args:
            answered: Offset below which the application has answered for all messages.
        """
        assert self.position is not None, "its reading has begun"
        lowest, polled = self.position, 0
        if not self.is_answered(answered):
            assert self.polled_to is not None, "something is not answered"
            lowest = answered or QueueOffset(0)
            polled = self.polled_to - lowest
        sizes = sum(len(each.record_sizes) for each in self._batches)
        return ProcessQueueInfo(
            self.queue,
            commit_offset=lowest,
            read_offset=self._batches[-1].next_offset if self._batches else self.position,
            messages=sizes // INT32_BYTES - self._taken + polled,
            record_bytes=self.waiting_bytes,
        )

    def on_records(self, pulled: messages.PulledRecords) -> int:
        """Add records to the queue. See `PullReceiver`."""
        next_offset, records = QueueOffset(pulled.next_offset), b""
        if pulled.record_sizes:
            records = pulled.records
            self._batches.append(FetchedBatch(records, pulled.record_sizes, next_offset))
            self._on_ready(self)
        elif self._batches:
            self._batches[-1] = self._batches[-1]._replace(next_offset=next_offset)
        else:
            self.position = next_offset
        return len(records)

    def on_moved(self, offset: QueueOffset) -> None:
        """Continue at `offset`. See `PullReceiver`."""
        if self._batches and offset >= self._batches[-1].next_offset:
            self._batches[-1] = self._batches[-1]._replace(next_offset=offset)
        elif self._batches and self.position is not None:
            # The queue ends before some of the waiting records: these no longer exist.
            self._read_again(min(offset, self.position))
        else:
            self.position = offset
            self.settled = offset if self.settled is None else min(offset, self.settled)

    def on_refused(self, error: RefusedError) -> None:
        """Report the refusal to the consumer. See `PullReceiver`."""
        self._on_refused(error)

    def on_gone(self, error: RefusedError) -> None:
        """Drop the records that are waiting and the position. See `PullReceiver`."""
        self.stop()
        self.position = self.settled = self.polled_to = None
        self._on_gone(self, error)

    def _decode(self, batch: FetchedBatch) -> list[StoredMessage]:
        sizes = read_int32s(batch.record_sizes)
        try:
            found = decode_records(batch.records, sizes, self.queue, check_crc=self.check_crc)
            self.check_offsets([batch])
        except CorruptRecord:
            self.read_again()
            raise
        return found

    def check_offsets(self, batches: Sequence[FetchedBatch]) -> None:
        """Raise `CorruptRecord` unless each batch has the queue offsets behind the one before."""
        position = self.position
        for records, sizes, next_offset in batches:
            first = read_queue_offset(records, 0)
            last = read_queue_offset(records, len(records) - int(read_int32s(sizes)[-1]))
            if position is None or not position <= first <= last < next_offset:
                raise CorruptRecord(
                    read_physical_offset(records),
                    f"queue offsets {first} to {last} were not requested: {position} to "
                    f"{next_offset}",
                )
            position = next_offset

    def read_again(self) -> None:
        """Drop the waiting records, and read them again. The position stays."""
        assert self.position is not None, "reading has begun"
        self._read_again(self.position)

    def _read_again(self, offset: QueueOffset) -> None:
        """Drop what is waiting, and read again from `offset` on. Nothing is settled by it."""
        settled, polled_to = self.settled, self.polled_to
        if self._subscriber is not None:
            self.start(self._subscriber, offset)
        if settled is not None:
            self.settled = min(offset, settled)
        if polled_to is not None:
            self.polled_to = min(offset, polled_to)

    def _drop_first(self, count: int) -> None:
        """Remove the first `count` records of the first batch, which have been taken."""
        batch = self._batches[0]
        length = int(read_int32s(batch.record_sizes)[:count].sum())
        self._batches[0] = batch._replace(
            records=batch.records[length:],
            record_sizes=batch.record_sizes[count * INT32_BYTES :],
        )
        self._decoded = []
        self._taken = 0
