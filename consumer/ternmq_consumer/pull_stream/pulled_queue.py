"""One subscription of one queue, whichever member of its broker name it is read from."""

from typing import TYPE_CHECKING, Protocol

from ternmq_consumer.pull_stream.flow_control import CreditLedger, FlowControlWindow
from ternmq_model.errors import RefusedError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.subscription import Subscription
from ternmq_protos.v1 import messages_pb2 as messages

if TYPE_CHECKING:
    import asyncio


class PullReceiver(Protocol):
    """Takes what a subscription reads. Called on the event loop; must not wait."""

    def on_records(self, pulled: messages.PulledRecords) -> None:
        """Handle records, in the order of the queue; none if all records read were filtered out.

        Raises:
            CorruptRecord: They are not what they should be. They are read again after a pause.
        """
        ...

    def on_moved(self, offset: QueueOffset) -> None:
        """Handle the continuation at `offset` of a queue without a message at the read offset.

        Forwards when the messages have expired, backwards when the queue ends earlier.
        """
        ...

    def on_gone(self, error: RefusedError) -> None:
        """Handle the end of the subscription: the broker no longer has the queue.

        Should there be such a queue again, it is another one: no offset means there what it meant.
        """
        ...

    def on_refused(self, error: RefusedError) -> None:
        """Handle a refusal of the broker to let the queue be read. The request is repeated."""
        ...


class PulledQueueLink(Protocol):
    """The link that a subscription is read over: `PullLink`."""

    def write(self, request: messages.PullStreamRequest) -> None:
        """Send `request` on the present stream, if there is one, without waiting."""
        ...

    def take_over(self, pulled_queue: "PulledQueue") -> None:
        """Read a queue that nobody reads."""
        ...

    def give_up(self, pulled_queue: "PulledQueue") -> None:
        """Read a queue no more, which stays open."""
        ...

    def unsubscribe(self, pulled_queue: "PulledQueue") -> None:
        """Read a queue no more, for good. Safe to repeat."""
        ...


class QueueSubscriber(Protocol):
    """Subscribes to queues, whichever broker has them: `PullLinks`."""

    def subscribe(
        self,
        queue: MessageQueue,
        subscription: Subscription,
        start: QueueOffset,
        window: FlowControlWindow,
        receiver: PullReceiver,
    ) -> "PulledQueue":
        """Begin to read `queue` at `start`; `receiver` gets what is read."""
        ...


class PulledQueue:
    """One subscription of one queue. Made by `PullLink.subscribe` and owned by the link it is at.

    Attributes:
        queue: What is read.
        next_offset: Where the next reply begins.
        is_chosen: The reader chose `next_offset`, and no reply has come yet, by which a broker
            takes it.
        epoch: Of the broker's log, when it told of that offset, or first was told of it; 0 = not
            known. In a later epoch the log may have ended earlier, and other messages may have
            taken the offsets up to it.
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
        """The number on the wire; 0 while the broker does not know the subscription."""
        self.is_open = True
        self.failures = 0
        self.heard_at_ms = 0
        self.retry: asyncio.TimerHandle | None = None
        self._link = link

    def advance(self, next_offset: QueueOffset, epoch: int) -> None:
        """Record the offset at which the broker continues, and the epoch of its log."""
        self.next_offset, self.epoch, self.is_chosen = next_offset, epoch, False

    def release(self, message_count: int, record_bytes: int, span: int = 0) -> None:
        """Return credit to the broker.

        Args:
            message_count: Messages that this reader has finished with, or did not want.
            record_bytes: Length of their records.
            span: How far reading is ahead of committing.
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
        """Stop reading. No reply reaches the receiver any more. Safe to repeat."""
        self._link.unsubscribe(self)

    def go_to(self, link: PulledQueueLink) -> bool:
        """Read on over another link, from `next_offset` on. What is under way is dropped.

        Returns:
            Whether it was read over another one until now.
        """
        if not self.is_open or link is self._link:
            return False
        self._link.give_up(self)
        self._link = link
        link.take_over(self)
        return True
