"""The pull consumer for synchronous callers."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from ternmq_client.blocking_client import BlockingClient
from ternmq_client.config import ClientConfig, resolve_client
from ternmq_consumer.config import PullConsumerConfig
from ternmq_consumer.pull.pull_assignment import RebalanceCallback
from ternmq_consumer.pull.pull_consumer import POLL_MESSAGES_MAX, PullConsumer
from ternmq_consumer.subscriptions import SubscriptionExpression, Subscriptions
from ternmq_model.message import SendResult
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_model.subscription import ALL_TAGS
from ternmq_runtime.blocking_pool import BlockingPool

T = TypeVar("T")

BlockingCallback = Callable[[list[MessageQueue]], None]
"""Takes queues, sorted, that were given to this member, or are taken from it."""


class BlockingPullConsumer(BlockingClient[PullConsumer]):
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
        client: ClientConfig | None = None,
        client_config: ClientConfig | None = None,
    ) -> None:
        chosen = resolve_client(nameserver, client, deprecated=client_config)
        super().__init__(PullConsumer(group, config=config, client=chosen))

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of `topic` that may be read, sorted."""
        return self._run(self._client.queues(topic))

    def assign(
        self, queues: Iterable[MessageQueue], expression: SubscriptionExpression = ALL_TAGS
    ) -> None:
        """Read these queues and no others."""
        is_wrong = isinstance(queues, str | MessageQueue)  # `assign` says what to write
        wanted = queues if is_wrong else list(queues)
        self._do(lambda: self._client.assign(wanted, expression))

    def subscribe(
        self,
        topics: Subscriptions,
        *,
        on_assigned: BlockingCallback | None = None,
        on_revoked: BlockingCallback | None = None,
    ) -> None:
        """Join the group, and read this member's share of the queues of `topics` from now on.

        The callbacks are called in threads of their own, and may use this consumer, except to poll
        or to unsubscribe.
        """
        self._run(
            self._client.subscribe(
                topics, on_assigned=_in_thread(on_assigned), on_revoked=_in_thread(on_revoked)
            )
        )

    def unsubscribe(self) -> None:
        """Give every queue up, telling `on_revoked`, and leave the group. Safe to repeat."""
        self._run(self._client.unsubscribe())

    def assigned(self) -> None:
        """Wait until this member owns its first share of the queues, which may be none."""
        self._run(self._client.assigned())

    def assignment(self) -> list[MessageQueue]:
        """Return the assigned queues, sorted."""
        return self._do(self._client.assignment)

    def pause(self, *queues: MessageQueue) -> None:
        """Let `poll` return nothing of these queues, until `resume`. They stay assigned."""
        self._do(lambda: self._client.pause(*queues))

    def resume(self, *queues: MessageQueue) -> None:
        """Take back `pause`. One that is not paused stays as it is."""
        self._do(lambda: self._client.resume(*queues))

    def paused(self) -> list[MessageQueue]:
        """Return the paused queues, sorted."""
        return self._do(self._client.paused)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Let the next message of `queue` be the one at `offset`, or the first after it."""
        self._wait(lambda: self._client.seek(queue, offset))

    def seek_to_begin(self, *queues: MessageQueue) -> None:
        """Go to the oldest message of these queues; of all that are assigned if none is named."""
        self._wait(lambda: self._client.seek_to_begin(*queues))

    def seek_to_end(self, *queues: MessageQueue) -> None:
        """Go behind the newest message of these queues; of all assigned ones if none is named."""
        self._wait(lambda: self._client.seek_to_end(*queues))

    def seek_to_time(self, at_ms: int, *queues: MessageQueue) -> None:
        """Go to the first message stored at `at_ms` (Unix milliseconds) or later, else the end."""
        self._wait(lambda: self._client.seek_to_time(at_ms, *queues))

    def poll(
        self, *, timeout_s: float = 1.0, messages_max: int = POLL_MESSAGES_MAX
    ) -> list[StoredMessage]:
        """Return the next messages of the assigned queues, waiting for the first one."""
        return self._run(self._client.poll(timeout_s=timeout_s, messages_max=messages_max))

    def position(self, queue: MessageQueue) -> QueueOffset | None:
        """Return the offset of the next message; None before the first `poll` has found it out."""
        return self._do(lambda: self._client.position(queue))

    def reply(
        self,
        request: StoredMessage,
        body: bytes,
        *,
        properties: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Answer a request. See `PullConsumer.reply`."""
        return self._run(
            self._client.reply(request, body, properties=properties, timeout_s=timeout_s)
        )

    def commit(self) -> bool:
        """Tell the brokers all positions that they do not have yet."""
        return self._run(self._client.commit())

    def committed(self, queue: MessageQueue) -> QueueOffset | None:
        """Return the group's offset as the broker has it; None = never committed."""
        return self._run(self._client.committed(queue))

    def begin_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, QueueOffset]:
        """Return the offset of the oldest message of each queue."""
        return self._run(self._client.begin_offsets(list(queues)))

    def end_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, QueueOffset]:
        """Return the offset that the next message of each queue will have."""
        return self._run(self._client.end_offsets(list(queues)))

    def offsets_for_times(
        self, times_ms: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, QueueOffset]:
        """Return the offset of the first message stored at a time or later, else the end."""
        return self._run(self._client.offsets_for_times(dict(times_ms)))

    def _do(self, function: Callable[[], T]) -> T:
        """Call `function` on the loop, which alone may touch the consumer."""

        async def call() -> T:
            return function()

        return self._run(call())

    def _wait(self, begin: Callable[[], Awaitable[T]]) -> T:
        """Begin something on the loop, and return what it comes to."""

        async def call() -> T:
            return await begin()

        return self._run(call())


def _in_thread(callback: BlockingCallback | None) -> RebalanceCallback | None:
    """Return what calls `callback` where it may wait for the loop, which goes on meanwhile."""
    if callback is None:
        return None

    async def call(queues: list[MessageQueue]) -> None:
        # Not `asyncio.to_thread`: a callback that hangs would keep the interpreter from ending.
        thread = BlockingPool(1)
        try:
            await thread.run(callback, queues)
        finally:
            await thread.close(wait_s=0)

    return call
