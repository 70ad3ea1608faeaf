"""The messages of one hand-out on their way through a listener, and their outcome so far.

Source: RocketMQ `ConsumeMessageConcurrentlyService.ConsumeRequest`.
"""

from dataclasses import dataclass, field

from ternmq_consumer.process_queue.assigned_queue import AssignedQueue
from ternmq_consumer.process_queue.process_queue import Handout, ProcessQueue
from ternmq_model.stored_message import StoredMessage


@dataclass(slots=True, eq=False)
class ConsumeRequest:
    """A hand-out on its way through a listener.

    Written by the one worker that has it, which may be a thread. The loop reads it meanwhile, and
    sets `is_over` to be rid of the worker.
    """

    assigned: AssignedQueue
    in_hand: ProcessQueue[StoredMessage]
    """The one it was taken from; the queue may have restarted since."""

    handout: Handout[StoredMessage]

    index: int = 0
    """The message that the listener has, counted in the hand-out; of a batch: 0, for all. Set
    before the worker asks whether it may go on, so whoever sets `is_over` and then reads this knows
    the last message that may have reached the listener."""

    is_batch: bool = False
    """The listener has all messages at once."""

    is_over: bool = False
    """Given up: nobody wants to know any more what comes of it."""

    failed: list[StoredMessage] = field(default_factory=list[StoredMessage])
    """Messages that the listener wants again, by offset."""

    levels: list[int] = field(default_factory=list[int])
    """Delay levels of `failed`, one for each: as in `ReconsumeLater.delay_level`."""

    unreached: list[StoredMessage] = field(default_factory=list[StoredMessage])
    """Messages that never reached the listener; all behind those of `failed`."""

    error: Exception | None = None
    """The first thing that the listener raised."""

    suspend_s: float | None = None
    """Rest of an orderly queue; None = as the settings say."""

    began_at_ms: int = 0
    """Time at which the message at `seen_index` was handed over, or first seen; monotonic, ms."""

    seen_index: int = 0

    @property
    def is_dropped(self) -> bool:
        """Loss of the queue: another member owns the queue by now."""
        return self.in_hand.dropped

    @property
    def may_go_on(self) -> bool:
        """The listener may be called, now."""
        if self.in_hand.dropped or self.is_over:
            return False
        lease = self.assigned.lease
        return lease is None or lease.holds

    @property
    def unfinished(self) -> list[StoredMessage]:
        """Messages that failed and messages that never reached the listener, by offset."""
        return [*self.failed, *self.unreached] if self.unreached else self.failed

    def fail(self, message: StoredMessage, level: int) -> None:
        """Record that the listener failed `message`."""
        self.failed.append(message)
        self.levels.append(level)
