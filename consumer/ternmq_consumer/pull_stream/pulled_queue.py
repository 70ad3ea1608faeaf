"""Subscription of one queue, at any member of its broker name."""

from typing import TYPE_CHECKING, Protocol

from ternmq_consumer.pull_stream.flow_control import CreditLedger, FlowControlWindow
from ternmq_model.errors import RefusedError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.subscription import Subscription
from ternmq_protos.v1 import messages_pb2 as messages

if TYPE_CHECKING:
    from ternmq_runtime.timers import TimerHandle


class PullReceiver(Protocol):
    """Receiver of a subscription's replies. Called on the event loop; must not wait."""

    def on_records(self, pulled: messages.PulledRecords) -> int:
        """Handle records, in the order of the queue; none if the filter dropped all of them.

        Returns:
            Length of all records in bytes. Each access to the field of the reply is a copy.

        Raises:
            CorruptRecord: The records are corrupt. They are read again after a pause.
        """
        ...

    def on_moved(self, offset: QueueOffset) -> None:
        """Handle the correction of an offset without a message to `offset`.

        The new offset is higher if the messages were deleted, and lower if the queue ends earlier.
        """
        ...

    def on_gone(self, error: RefusedError) -> None:
        """Handle the end of the subscription: the broker no longer has the queue.

        A later queue with that name is another one, in which the offsets have no meaning.
        """
        ...

    def on_refused(self, error: RefusedError) -> None:
        """Handle the broker's refusal of the queue. The request is repeated."""
        ...


# A protocol, since `pull_link` imports this module: the class would close a circle of imports.
class PulledQueueLink(Protocol):
    """Link of a subscription: `PullLink`."""

    def write(self, request: messages.PullStreamRequest) -> None:
        """Send `request` on the open stream, if any, without waiting."""
        ...

    def take_over(self, pulled_queue: "PulledQueue") -> None:
        """Read a queue that no link reads."""
        ...

    def give_up(self, pulled_queue: "PulledQueue") -> None:
        """Stop reading a queue without closing it."""
        ...

    def unsubscribe(self, pulled_queue: "PulledQueue") -> None:
        """End a subscription. Safe to repeat."""
        ...


class QueueSubscriber(Protocol):
    """Subscribes to queues of all brokers: `PullLinks`."""

    def subscribe(
        self,
        queue: MessageQueue,
        subscription: Subscription,
        start: QueueOffset,
        window: FlowControlWindow,
        receiver: PullReceiver,
    ) -> "PulledQueue":
        """Read `queue` from `start` on and pass the replies to `receiver`."""
        ...


class PulledQueue:
    """Subscription of one queue. Made by `PullLink.subscribe` and owned by its present link.

    Attributes:
        queue: Name of the queue.
        next_offset: Begin of the next reply.
        is_chosen: The reader chose `next_offset`, and no reply has confirmed it yet.
        epoch: Epoch of the broker's log at the first reply or request with `next_offset`; 0 =
            unknown. The log of a later epoch may end earlier, with other messages at the offsets
            before `next_offset`.
    """

    def __init__(
        self,
        link: PulledQueueLink,
        queue: MessageQueue,
        subscription: Subscription,
        start: QueueOffset,
        window: FlowControlWindow,
        receiver: PullReceiver,
        epoch: int = 0,
    ) -> None:
        self.queue = queue
        self.next_offset = start
        self.is_chosen = True
        self.epoch = epoch
        self.subscription = subscription
        self.receiver = receiver
        self.ledger = CreditLedger(window)
        self.number = 0
        """Number on the wire; 0 = the broker does not know the subscription."""
        self.is_open = True
        self.failures = 0
        self.answered_at_ms = 0
        self.retry: TimerHandle | None = None
        self._link = link

    def advance(self, next_offset: QueueOffset, epoch: int) -> None:
        """Set the next offset and the epoch of the broker's log."""
        self.next_offset, self.epoch, self.is_chosen = next_offset, epoch, False

    def release(self, message_count: int, record_bytes: int, span: int = 0) -> None:
        """Return credit to the broker.

        Args:
            message_count: Number of finished or filtered messages.
            record_bytes: Length of their records, bytes.
            span: Offsets between reading and committing.
        """
        self.ledger.release(message_count, record_bytes)
        if self.number and (credit := self.ledger.due(span)):
            self._link.write(
                messages.PullStreamRequest(
                    credit=messages.PullCredit(
                        handle=self.number, bytes=credit.record_bytes, messages=credit.messages
                    )
                )
            )

    def close(self) -> None:
        """End the subscription. The receiver gets no later reply. Safe to repeat."""
        self._link.unsubscribe(self)

    def go_to(self, link: PulledQueueLink) -> bool:
        """Continue over another link at `next_offset`. Replies on their way are dropped.

        Returns:
            True = the link has changed.
        """
        if not self.is_open or link is self._link:
            return False
        self._link.give_up(self)
        self._link = link
        link.take_over(self)
        return True
