"""Queues of a pull consumer, and the turns of those with waiting records."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ternmq_consumer.config import PullConsumerConfig
from ternmq_consumer.pull.fetched_queue import DECODED_BYTES_MAX, FetchedQueue
from ternmq_consumer.pull_stream.flow_control import FlowControlWindow
from ternmq_model.errors import RefusedError, UsageError
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_model.subscription import Subscription

if TYPE_CHECKING:
    import pyarrow as pa

_JOINED_BYTES: Final = 256 << 10
"""Bytes of records after which a batch of columns takes no further reply: a join copies them."""


class PullQueues:
    """Queues by name. Queues with waiting records take turns. Owned by one pull consumer.

    Args:
        on_gone: Called with a queue that its broker no longer has. Its position is lost.
        on_refused: Called when a broker refuses a queue or its filter.

    Attributes:
        arrived: Event that wakes a waiting poll.
    """

    def __init__(
        self,
        config: PullConsumerConfig,
        on_gone: Callable[[FetchedQueue, RefusedError], None],
        on_refused: Callable[[RefusedError], None],
    ) -> None:
        self.arrived = asyncio.Event()
        self._config = config
        self._on_gone = on_gone
        self._on_refused = on_refused
        self._fetched: dict[MessageQueue, FetchedQueue] = {}
        self._paused: set[MessageQueue] = set()
        self._ready: deque[FetchedQueue] = deque()
        self._taken: dict[FetchedQueue, None] = {}
        """Queues with taken messages that are not settled."""

    def __len__(self) -> int:
        return len(self._fetched)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the records that the next calls take."""
        return sum(each.waiting_bytes for each in self._ready if each.queue not in self._paused)

    @property
    def all(self) -> list[FetchedQueue]:
        """All queues, in the order of their addition."""
        return list(self._fetched.values())

    @property
    def names(self) -> list[MessageQueue]:
        """Names of all queues, sorted."""
        return sorted(self._fetched)

    @property
    def paused(self) -> list[MessageQueue]:
        """Names of the paused queues, sorted."""
        return sorted(self._paused)

    def find(self, queue: MessageQueue) -> FetchedQueue | None:
        """Return the queue with the name `queue`; None = no such queue."""
        return self._fetched.get(queue)

    def get(self, queue: MessageQueue) -> FetchedQueue:
        """Return the queue with the name `queue`.

        Raises:
            UsageError: The queue is not assigned.
        """
        fetched = self._fetched.get(queue)
        if fetched is None:
            raise UsageError(f"{queue} is not assigned")
        return fetched

    def add(self, queue: MessageQueue, subscription: Subscription) -> FetchedQueue:
        """Add a new queue. Reading begins when it is started."""
        config = self._config
        fetched = FetchedQueue(
            queue,
            subscription,
            FlowControlWindow(config.pull_threshold_messages, config.pull_threshold_bytes),
            check_crc=config.check_crc,
            on_ready=self._offer,
            on_gone=self._on_gone,
            on_refused=self._on_refused,
        )
        self._fetched[queue] = fetched
        return fetched

    def remove(self, queue: MessageQueue) -> None:
        """Remove this queue and stop reading it. Safe to repeat."""
        fetched = self._fetched.pop(queue, None)
        self._paused.discard(queue)
        if fetched is not None:
            fetched.stop()
            self._taken.pop(fetched, None)

    def pause(self, queue: MessageQueue) -> None:
        """Suspend taking messages of this queue."""
        self.get(queue)
        self._paused.add(queue)

    def resume(self, queue: MessageQueue) -> None:
        """Resume taking messages of this queue."""
        fetched = self.get(queue)
        self._paused.discard(queue)
        if fetched.has_something:
            self._offer(fetched)

    def take(self, count_max: int) -> list[StoredMessage]:
        """Return waiting messages, at most `count_max`, queue by queue in turn.

        After an error behind messages the call returns those; a later call raises it.

        Raises:
            CorruptRecord: The next batch of a queue is corrupt. It is read again.
        """
        found: list[StoredMessage] = []
        while len(found) < count_max and (fetched := self._next_ready()) is not None:
            try:
                part = fetched.take(count_max - len(found))
            except Exception:
                self._note_failed(fetched, is_next=bool(found))
                if found:
                    break
                raise
            self._note_taken(fetched)
            found = found + part if found else part
        return found

    def take_columns(self, columns: Sequence[str]) -> "pa.RecordBatch | None":
        """Return waiting messages as rows with `columns`, queue by queue in turn; None = none.

        After an error behind messages the call returns those; a later call raises it.

        Raises:
            CorruptRecord: The next batch of a queue is corrupt. It is read again.
            MissingPackage: A compressed body needs a package. The batch stays.
        """
        from ternmq_consumer.pull import joint_columns
        from ternmq_model.columns.batches import BATCH_BYTES_MAX, join_batches

        found: list[pa.RecordBatch] = []
        record_bytes = row_bytes = 0
        # Few bytes of records may have long bodies: a join has at most 2 GiB of them.
        while (
            record_bytes < _JOINED_BYTES
            and row_bytes < BATCH_BYTES_MAX
            and (group := self._next_group())
        ):
            try:
                taken = joint_columns.take_columns(group, columns)
            except Exception:
                self._offer_first(group[1:])
                self._note_failed(group[0], is_next=bool(found))
                if found:
                    break
                raise
            self._offer_first(group[taken.queues :])
            for fetched in group[: taken.queues]:
                self._note_taken(fetched)
            if taken.batch.num_rows:
                found.append(taken.batch)
                record_bytes += taken.record_bytes
                row_bytes += taken.batch.nbytes
        return join_batches(found) if found else None

    def _next_group(self) -> list[FetchedQueue]:
        """Remove and return the next queues with one filter, as many as are decoded together."""
        group: list[FetchedQueue] = []
        left = DECODED_BYTES_MAX
        while left > 0 and (fetched := self._next_ready()) is not None:
            if group and fetched.filter_key != group[0].filter_key:
                self._offer_first([fetched])
                break
            group.append(fetched)
            left -= fetched.waiting_bytes
        return group

    def _next_ready(self) -> FetchedQueue | None:
        """Remove and return the next queue with messages to take."""
        while self._ready:
            fetched = self._ready.popleft()
            fetched.is_listed = False
            if fetched.has_something and fetched.queue not in self._paused:
                return fetched  # else sought, dropped or paused since it was listed
        return None

    def _note_taken(self, fetched: FetchedQueue) -> None:
        self._taken[fetched] = None
        if fetched.has_something:
            self._offer(fetched)

    def _note_failed(self, fetched: FetchedQueue, *, is_next: bool) -> None:
        """List a queue whose records could not be taken, unless they are read again."""
        if fetched.has_something:
            self._offer(fetched, is_next=is_next)

    def settle(self) -> None:
        """Mark all taken messages as handled."""
        for fetched in self._taken:
            fetched.settled = fetched.position
        self._taken.clear()

    def _offer_first(self, group: Sequence[FetchedQueue]) -> None:
        for fetched in reversed(group):
            self._offer(fetched, is_next=True)

    def _offer(self, fetched: FetchedQueue, *, is_next: bool = False) -> None:
        if not fetched.is_listed and fetched.queue not in self._paused:
            fetched.is_listed = True
            if is_next:
                self._ready.appendleft(fetched)
            else:
                self._ready.append(fetched)
            self.arrived.set()
