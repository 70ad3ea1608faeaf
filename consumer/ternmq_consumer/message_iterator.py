"""`async for message in consumer`."""

from ternmq_consumer.listener.consume_dispatcher import Dispatcher
from ternmq_consumer.listener.consume_request import Work
from ternmq_model.stored_message import StoredMessage


class MessageIterator:
    """Gives messages one by one; each is finished when the next one is asked for.

    Owned by one consumer. One task at a time may iterate.
    """

    _work: Work | None

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._work = None
        self._messages: list[StoredMessage] = []
        self._next = 0
        """Place of the message to give next; the one before it is in the application's hands."""

    def __aiter__(self) -> "MessageIterator":
        return self

    async def __anext__(self) -> StoredMessage:
        """Finish the message given last and return the next one, waiting for it.

        Cancelling is safe: the message given last is finished, and no other one was taken.
        """
        place = self._next
        if place < len(self._messages) and self._work is not None and self._work.may_go_on:
            self._next = place + 1
            return self._messages[place]
        self._end_work()
        self._work = work = await self._dispatcher.next()
        self._messages = work.handout.messages
        self._next = 1
        return self._messages[0]

    def settle(self) -> None:
        """Let what is finished be committed. The message given last is not."""
        self._settle(self._next - 1)

    def finish_present(self) -> None:
        """Let the message given last count as finished, too."""
        self._settle(self._next)

    def end(self) -> None:
        """Give the messages back that are not finished, the one given last among them."""
        self.settle()
        work, self._work = self._work, None
        if work is not None:
            work.assigned.finish(work.in_hand, work.handout, self._messages)
        self._messages = []
        self._next = 0

    def _settle(self, finished: int) -> None:
        """Note that the first `finished` messages of the hand-out are finished."""
        work = self._work
        if work is None or finished <= 0:
            return
        if finished >= len(self._messages):
            self._end_work()
            return
        left = self._messages[finished:]
        self._dispatcher.settle(work, left)
        self._messages = left
        self._next -= finished

    def _end_work(self) -> None:
        """Finish all that was given. What is left of a dropped queue is its next owner's; of one
        whose lock is not confirmed it comes again."""
        work, self._work = self._work, None
        if work is not None:
            left = self._messages[self._next :]
            self._dispatcher.finish(work, left)
            if left and not work.is_dropped:
                self._dispatcher.again(work, 0.0)
        self._messages = []
        self._next = 0
