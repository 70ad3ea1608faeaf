"""Iteration over the messages of a consumer without a listener: `async for message in consumer`."""

from typing import TYPE_CHECKING

from ternmq_consumer.listener.consume_dispatcher import ConsumeDispatcher
from ternmq_consumer.listener.consume_request import ConsumeRequest
from ternmq_model.stored_message import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Sequence


class MessageIterator:
    """Iterator over messages. A message is finished when the next one is requested.

    Owned by one consumer. Only one task may iterate at a time.
    """

    _request: ConsumeRequest | None

    def __init__(self, dispatcher: ConsumeDispatcher) -> None:
        self._dispatcher = dispatcher
        self._request = None
        self._messages: Sequence[StoredMessage] = ()
        self._next = 0
        """Index of the next message. The application has the message before it."""

    def __aiter__(self) -> "MessageIterator":
        return self

    async def __anext__(self) -> StoredMessage:
        """Finish the last message and wait for the next one.

        Cancelling is safe: the last message is finished, and no other message is taken.
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
        """Finish the returned messages except the last one, so that they can be committed."""
        self._settle(self._next - 1)

    def finish_present(self) -> None:
        """Mark the last message as finished too."""
        self._settle(self._next)

    def end(self) -> StoredMessage | None:
        """Return unfinished messages, the last one included, to the dispatcher.

        Returns:
            The last message that the application has got; None = it is finished, or there is none.
        """
        self.settle()
        present = self._messages[0] if self._next else None
        request, self._request = self._request, None
        if request is not None:
            request.assigned.finish(request.in_hand, request.handout, self._messages)
        self._messages = ()
        self._next = 0
        return present

    def _settle(self, finished: int) -> None:
        """Finish the first `finished` messages of the hand-out."""
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
        """Finish the returned messages and end the hand-out.

        Its other messages go to the next owner of a dropped queue, or are handed out again when the
        lock of the queue is confirmed.
        """
        request, self._request = self._request, None
        if request is not None:
            left = self._messages[self._next :]
            self._dispatcher.finish(request, left)
            if left and not request.is_dropped:
                self._dispatcher.again(request, 0.0)
        self._messages = ()
        self._next = 0
