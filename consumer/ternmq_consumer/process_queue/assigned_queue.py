"""Queue of a push consumer, from its assignment until it is dropped."""

import asyncio
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ternmq_consumer.process_queue.process_queue import (
    Handout,
    MessageSeries,
    ProcessQueue,
    bytes_of,
)
from ternmq_consumer.process_queue.queue_locks import Lease
from ternmq_consumer.process_queue.running_info import ProcessQueueInfo
from ternmq_consumer.pull_stream.flow_control import FlowControlWindow
from ternmq_consumer.pull_stream.pulled_queue import PulledQueue, QueueSubscriber
from ternmq_model.arrays import read_int32s
from ternmq_model.errors import CorruptRecord, RefusedError
from ternmq_model.message_batch import decode_records
from ternmq_model.names import RETRY_PREFIX
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.redelivered_message import under_original_topic
from ternmq_model.stored_message import StoredMessage
from ternmq_model.subscription import Subscription
from ternmq_protos.v1 import messages_pb2 as messages


class AssignedQueue:
    """Owned queue: it receives records and returns credit for finished messages.

    Owned by the consumer's `PushAssignment`.

    Args:
        on_ready: Called when messages are waiting.
        on_restart: Called with the new offset when the queue ends before the read offset.
        on_gone: Called when the broker no longer has the queue. No message of it is handed out.
        lease: Lease of the queue's lock; None = the queue is not locked.
        in_order: True = after a change of the offset, reading waits until no listener works on
            messages of the queue.
        in_columns: True = the listener takes columns: no object is made for a message.
        wall_ms: Clock for the times in the report; None = no times.

    Attributes:
        in_hand: Unfinished messages; another object after a restart.
        is_listed: The dispatcher knows that messages are waiting.
    """

    def __init__(
        self,
        queue: MessageQueue,
        subscription: Subscription,
        start: QueueOffset,
        window: FlowControlWindow,
        *,
        on_ready: Callable[["AssignedQueue"], None],
        on_restart: Callable[[MessageQueue, QueueOffset], None],
        on_gone: Callable[["AssignedQueue"], None],
        on_refused: Callable[[RefusedError], None],
        lease: Lease | None = None,
        in_order: bool = False,
        in_columns: bool = False,
        wall_ms: Callable[[], int] | None = None,
    ) -> None:
        self.queue = queue
        self.lease = lease
        self.in_hand = ProcessQueue[StoredMessage](start)
        self.is_listed = False
        self._subscription = subscription
        self._in_columns = in_columns
        self._wall_ms = wall_ms
        self._pulled_at_ms = self._consumed_at_ms = 0
        self._is_retry = queue.topic.startswith(RETRY_PREFIX)
        self._window = window
        self._on_ready = on_ready
        self._on_restart = on_restart
        self._on_gone = on_gone
        self._on_refused = on_refused
        self._subscriber: QueueSubscriber | None = None
        self._pulled: PulledQueue | None = None
        self._idle = asyncio.Event()
        self._in_order = in_order
        self._draining: list[ProcessQueue[StoredMessage]] = []
        """Process queues from before a change of the offset, while a listener works on them."""
        self._must_wait = False
        """True = reading begins when `_draining` is empty."""

    def report(self) -> ProcessQueueInfo:
        """Return the state of the queue."""
        in_hand = self.in_hand
        return ProcessQueueInfo(
            self.queue,
            in_hand.commit_offset,
            in_hand.next_offset,
            in_hand.count,
            in_hand.record_bytes,
            is_locked=self.lease is not None and self.lease.holds,
            pulled_at_ms=self._pulled_at_ms,
            consumed_at_ms=self._consumed_at_ms,
        )

    def start(self, subscriber: QueueSubscriber) -> None:
        """Begin to read."""
        self._subscriber = subscriber
        self._pulled = subscriber.subscribe(
            self.queue, self._subscription, self.in_hand.next_offset, self._window, self
        )

    def stop(self) -> None:
        """Stop reading and handing out messages. Safe to repeat."""
        self.in_hand.dropped = True
        self._must_wait = False
        if self._pulled is not None:
            self._pulled.close()

    def is_busy(self) -> bool:
        """Return whether a listener works on messages of the queue."""
        return self.in_hand.running > 0 or bool(self._draining)

    async def idle(self) -> None:
        """Wait until no listener works on messages of the queue."""
        while self.is_busy():
            self._idle.clear()
            await self._idle.wait()

    def move(self, offset: QueueOffset) -> None:
        """Drop all unfinished messages and continue at `offset`."""
        before = self.in_hand
        self.stop()
        if before.running:
            self._draining.append(before)
        self.in_hand = ProcessQueue[StoredMessage](offset)
        if self._subscriber is None:
            return
        if self._in_order and self._draining:
            self._must_wait = True
        else:
            self.start(self._subscriber)

    def finish(
        self,
        in_hand: ProcessQueue[StoredMessage],
        handout: Handout[StoredMessage],
        unfinished: Sequence[StoredMessage],
    ) -> tuple[int, int]:
        """End a hand-out of `in_hand`. Args and result are those of `ProcessQueue.finish`."""
        done = in_hand.finish(handout, unfinished)
        if self._wall_ms is not None:
            self._consumed_at_ms = self._wall_ms()
        self._release(in_hand, *done)
        if not in_hand.running:
            self._end_draining(in_hand)
            self._idle.set()
        return done

    def settle(
        self,
        in_hand: ProcessQueue[StoredMessage],
        handout: Handout[StoredMessage],
        unfinished: Sequence[StoredMessage],
    ) -> tuple[int, int]:
        """Finish a part of a hand-out. Args and result are those of `ProcessQueue.settle`."""
        done = in_hand.settle(handout, unfinished)
        self._release(in_hand, *done)
        return done

    def on_records(self, pulled: messages.PulledRecords) -> int:
        """Add records to the queue. See `PullReceiver`."""
        next_offset = QueueOffset(pulled.next_offset)
        if not pulled.record_sizes:
            self.in_hand.add([], 0, next_offset)
            return 0
        sizes = read_int32s(pulled.record_sizes)
        records = pulled.records
        batch = self._decode(records, sizes)
        if (
            not self.in_hand.next_offset
            <= batch[0].queue_offset
            <= batch[-1].queue_offset
            < (next_offset)
        ):
            raise CorruptRecord(
                PhysicalOffset(batch[0].physical_offset),
                f"queue offsets {batch[0].queue_offset} to {batch[-1].queue_offset} were not"
                f" requested: {self.in_hand.next_offset} to {next_offset}",
            )
        batch_bytes = len(records)
        if self._wall_ms is not None:
            self._pulled_at_ms = self._wall_ms()
        if self._subscription.tags:
            # The broker compares only hash codes, and different tags may have equal ones.
            wanted = self._wanted(batch)
            if len(wanted) < len(batch):
                wanted_bytes = bytes_of(wanted)
                if self._pulled is not None:
                    self._pulled.release(len(batch) - len(wanted), batch_bytes - wanted_bytes)
                batch, batch_bytes = wanted, wanted_bytes
        if self._is_retry:
            batch = [under_original_topic(message) for message in batch]
        self.in_hand.add(batch, batch_bytes, next_offset)
        if batch:
            self._on_ready(self)
        return len(records)

    def _decode(self, records: bytes, sizes: NDArray[np.int32]) -> Sequence[StoredMessage]:
        if self._in_columns and not self._is_retry:  # retries are few, and have another topic
            from ternmq_consumer.process_queue.message_rows import decode_rows

            return decode_rows(records, sizes, self.queue)
        return decode_records(records, sizes, self.queue)

    def _wanted(self, batch: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        """Return the messages with a wanted tag."""
        if isinstance(batch, MessageSeries):
            return batch.tagged(self._subscription.tags)
        wants = self._subscription.wants
        return [message for message in batch if wants(message.tags)]

    def on_moved(self, offset: QueueOffset) -> None:
        """Continue at `offset`. See `PullReceiver`."""
        if offset >= self.in_hand.next_offset:
            self.in_hand.add([], 0, offset)
            return
        # The broker has lost the end of the queue. Other messages will have these offsets, so the
        # unfinished messages are dropped. Those below the new end are read again.
        offset = min(offset, self.in_hand.commit_offset)
        self._on_restart(self.queue, offset)
        self.move(offset)

    def on_refused(self, error: RefusedError) -> None:
        """Report the refusal and wait. See `PullReceiver`."""
        self._on_refused(error)

    def on_gone(self, error: RefusedError) -> None:
        """Stop handing out messages of the queue. See `PullReceiver`."""
        self.stop()
        self._on_gone(self)

    def _end_draining(self, in_hand: ProcessQueue[StoredMessage]) -> None:
        if in_hand in self._draining:
            self._draining.remove(in_hand)
        if self._must_wait and not self._draining and self._subscriber is not None:
            self._must_wait = False
            self.start(self._subscriber)

    def _release(self, in_hand: ProcessQueue[StoredMessage], count: int, record_bytes: int) -> None:
        if in_hand is self.in_hand and self._pulled is not None and not in_hand.dropped:
            self._pulled.release(count, record_bytes, in_hand.span)
