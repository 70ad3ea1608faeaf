"""The pull consumer for synchronous callers."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ternmq_client.blocking import BlockingFace
from ternmq_client.config import ClientConfig
from ternmq_consumer.config import PullConsumerConfig
from ternmq_consumer.pull import POLL_MESSAGES_MAX, PullConsumer
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_model.subscription import ALL_TAGS

T = TypeVar("T")


class BlockingPullConsumer(BlockingFace[PullConsumer]):
    """`PullConsumer` without `await`: `with BlockingPullConsumer() as consumer`.

    An event loop in a thread of its own does the work. Arguments, results and errors are those of
    `PullConsumer`. Any thread may call it, one at a time.
    """

    def __init__(
        self,
        group: str = "",
        *,
        nameserver: str | Sequence[str] | None = None,
        config: PullConsumerConfig | None = None,
        client_config: ClientConfig | None = None,
    ) -> None:
        super().__init__(
            PullConsumer(group, nameserver=nameserver, config=config, client_config=client_config)
        )

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of `topic` that may be read, sorted."""
        return self._run(self._client.queues(topic))

    def assign(self, queues: Iterable[MessageQueue], expression: str = ALL_TAGS) -> None:
        """Read these queues and no others."""
        wanted = list(queues)
        self._do(lambda: self._client.assign(wanted, expression))

    def assignment(self) -> list[MessageQueue]:
        """Return the assigned queues, sorted."""
        return self._do(self._client.assignment)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Let the next message of `queue` be the one at `offset`, or the first after it."""
        self._do(lambda: self._client.seek(queue, offset))

    def seek_to_first(self, *queues: MessageQueue) -> None:
        """Go to the oldest message of these queues; of all that are assigned if none is named."""
        self._run(self._client.seek_to_first(*queues))

    def seek_to_last(self, *queues: MessageQueue) -> None:
        """Go behind the newest message of these queues; of all assigned ones if none is named."""
        self._run(self._client.seek_to_last(*queues))

    def poll(
        self, *, timeout_s: float = 1.0, messages_max: int = POLL_MESSAGES_MAX
    ) -> list[StoredMessage]:
        """Return the next messages of the assigned queues, waiting for the first one."""
        return self._run(self._client.poll(timeout_s=timeout_s, messages_max=messages_max))

    def position(self, queue: MessageQueue) -> QueueOffset | None:
        """Return the offset of the next message; None before the first `poll` has found it out."""
        return self._do(lambda: self._client.position(queue))

    def commit(self) -> bool:
        """Tell the brokers all positions that they do not have yet."""
        return self._run(self._client.commit())

    def committed(self, queue: MessageQueue) -> QueueOffset | None:
        """Return the group's offset as the broker has it; None = never committed."""
        return self._run(self._client.committed(queue))

    def min_offset(self, queue: MessageQueue) -> QueueOffset:
        """Return the offset of the oldest message of `queue`."""
        return self._run(self._client.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> QueueOffset:
        """Return the offset that the next message of `queue` will have."""
        return self._run(self._client.max_offset(queue))

    def _do(self, function: Callable[[], T]) -> T:
        """Call `function` on the loop, which alone may touch the consumer."""

        async def call() -> T:
            return function()

        return self._run(call())
