"""Iteration over the messages of a consumer without a listener: `async for message in consumer`."""

from ternmq_consumer.listener.consume_dispatcher import ConsumeDispatcher
from ternmq_consumer.listener.consume_request import ConsumeRequest
from ternmq_model.stored_message import StoredMessage


class MessageIterator:
    """Gives messages one by one; each is finished when the next one is asked for.

    Owned by one consumer. One task at a time may iterate.
    """

    _request: ConsumeRequest | None

    def __init__(self, dispatcher: ConsumeDispatcher) -> None:
        self._dispatcher = dispatcher
        self._request = None
        self._messages: list[StoredMessage] = []
        self._next = 0
        """Index of the message to give next; the one before it is in the application's hands."""

    def __aiter__(self) -> "MessageIterator":
        return self

    async def __anext__(self) -> StoredMessage:
        """Finish the message given last and return the next one, waiting for it.

        Cancelling is safe: the message given last is finished, and no other one was taken.
        """
        index = self._next
        if index < len(self._messages) and self._request is not None and self._request.may_go_on:
            self._next = index + 1
            return self._messages[index]
        self._end_request()
        self._request = request = await self._dispatcher.next()
        self._messages = request.handout.messages
        self._next = 1
        return self._messages[0]

    def settle(self) -> None:
        """Release finished messages for commit, without the message yielded last."""
        self._settle(self._next - 1)

    def finish_present(self) -> None:
        """Count the message yielded last as finished, too."""
        self._settle(self._next)

    def end(self) -> None:
        """Return unfinished messages to the dispatcher, the one yielded last among them."""
        self.settle()
        request, self._request = self._request, None
        if request is not None:
            request.assigned.finish(request.in_hand, request.handout, self._messages)
        self._messages = []
        self._next = 0

    def _settle(self, finished: int) -> None:
        """Record that the first `finished` messages of the hand-out are finished."""
        request = self._request
        if request is None or finished <= 0:
            return
        if finished >= len(self._messages):
            self._end_request()
            return
        left = self._messages[finished:]
        self._dispatcher.settle(request, left)
        self._messages = left
        self._next -= finished

    def _end_request(self) -> None:
        """Finish the messages that were returned.

        The others of a dropped queue go to its next owner; those of a queue whose lock is not
        confirmed are handed out again.
        """
        request, self._request = self._request, None
        if request is not None:
            left = self._messages[self._next :]
            self._dispatcher.finish(request, left)
            if left and not request.is_dropped:
                self._dispatcher.again(request, 0.0)
        self._messages = []
        self._next = 0
