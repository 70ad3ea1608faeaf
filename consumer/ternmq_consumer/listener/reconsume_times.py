"""Numbers of attempts of messages in orderly queues."""

from collections.abc import Sequence
from typing import NamedTuple

from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.redelivered_message import RedeliveredMessage
from ternmq_model.stored_message import StoredMessage


class _ReconsumedMessage(NamedTuple):
    queue_offset: QueueOffset
    times: int


class ReconsumeTimes:
    """Attempts of unfinished messages at one member, also after a queue is lost and taken over.

    Owned by `OrderlyConsumeService`. Only the first messages of an orderly queue have attempts, so
    a queue has at most as many entries as a hand-out has messages.
    """

    def __init__(self) -> None:
        self._tried: dict[MessageQueue, dict[str, _ReconsumedMessage]] = {}

    def apply(
        self, queue: MessageQueue, messages: Sequence[StoredMessage]
    ) -> Sequence[StoredMessage]:
        """Return the messages of a hand-out with the numbers of attempts before they were reread.

        Args:
            queue: Queue of the messages.
            messages: Messages of the hand-out.
        """
        tried = self._tried.get(queue)
        if tried is None:
            return messages
        for message_id, each in list(tried.items()):
            if each.queue_offset < messages[0].queue_offset:  # another member finished it
                del tried[message_id]
        found = list(messages)
        for index, message in enumerate(found):
            before = tried.get(message.message_id)
            if before is not None and before.times > message.reconsume_times:
                found[index] = RedeliveredMessage.of(message, reconsume_times=before.times)
        return found

    def note(
        self,
        queue: MessageQueue,
        messages: Sequence[StoredMessage],
        unfinished: Sequence[StoredMessage],
    ) -> None:
        """Store the attempts of the unfinished ones of `messages`, and drop those of the others."""
        tried = self._tried.setdefault(queue, {})
        if tried:
            for message in messages:
                tried.pop(message.message_id, None)
        for message in unfinished:
            if message.reconsume_times:
                tried[message.message_id] = _ReconsumedMessage(
                    message.queue_offset, message.reconsume_times
                )
        if not tried:
            del self._tried[queue]
