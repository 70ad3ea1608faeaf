"""Request of a listener call: messages of one hand-out, and their outcome.

Source: RocketMQ `ConsumeMessageConcurrentlyService.ConsumeRequest`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ternmq_consumer.process_queue.assigned_queue import AssignedQueue
from ternmq_consumer.process_queue.process_queue import Handout, ProcessQueue
from ternmq_model.stored_message import StoredMessage


@dataclass(slots=True, eq=False)
class ConsumeRequest:
    """Hand-out on its way through a listener.

    Only the worker, which may be a thread, writes the request. The loop reads it meanwhile and sets
    `is_over` to stop the worker.
    """

    assigned: AssignedQueue
    in_hand: ProcessQueue[StoredMessage]
    """Process queue of the hand-out. The queue may have another one after a restart."""

    handout: Handout[StoredMessage]

    index: int = 0
    """Index of the message at the listener, or of the first one of its batch. The worker sets it
    before it reads `is_over`. So after setting `is_over` the loop reads here the last message that
    may have reached the listener."""

    is_batch: bool = False
    """True = the listener has all messages from `index` on at once, or the first of them."""

    is_over: bool = False
    """True = the request is given up, and its result is ignored."""

    failed: list[StoredMessage] = field(default_factory=list[StoredMessage])
    """Failed messages, in the order of their offsets."""

    levels: list[int] = field(default_factory=list[int])
    """Delay level of each message in `failed`, as in `ReconsumeLater.delay_level`."""

    unreached: Sequence[StoredMessage] = ()
    """Messages that did not reach the listener, all behind those of `failed`."""

    error: Exception | None = None
    """First error of the listener."""

    suspend_s: float | None = None
    """Pause of an orderly queue, s; None = `suspend_s` of the settings."""

    began_at_ms: int = 0
    """Time of the first check with the message at `seen_index` at the listener, monotonic ms."""

    seen_index: int = 0

    @property
    def is_dropped(self) -> bool:
        """True after the loss of the queue to another member."""
        return self.in_hand.dropped

    @property
    def may_go_on(self) -> bool:
        """True while the listener may be called."""
        if self.in_hand.dropped or self.is_over:
            return False
        lease = self.assigned.lease
        return lease is None or lease.holds

    @property
    def unfinished(self) -> Sequence[StoredMessage]:
        """Failed and unreached messages, in the order of their offsets."""
        return [*self.failed, *self.unreached] if self.unreached else self.failed

    def fail(self, message: StoredMessage, level: int) -> None:
        """Record that the listener failed `message`."""
        self.failed.append(message)
        self.levels.append(level)
