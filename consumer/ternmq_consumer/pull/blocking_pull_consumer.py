"""Blocking pull consumer, for synchronous callers."""

from collections.abc import Callable, Sequence

from ternmq_client.blocking_client import BlockingClient, blocking, on_loop
from ternmq_client.config import ClientConfig, resolve_client
from ternmq_consumer.config import PullConsumerConfig
from ternmq_consumer.pull.pull_assignment import RebalanceCallback
from ternmq_consumer.pull.pull_consumer import PullConsumer
from ternmq_consumer.subscriptions import Subscriptions
from ternmq_model.queue import MessageQueue
from ternmq_remoting.environment import Environment, EnvironmentSource
from ternmq_runtime.blocking_pool import BlockingPool

BlockingCallback = Callable[[list[MessageQueue]], None]
"""Function that receives the queues that this member gets or loses, sorted."""


class BlockingPullConsumer(BlockingClient[PullConsumer]):
    """`PullConsumer` without `await`: `with BlockingPullConsumer() as consumer`.

    The event loop runs in a thread of its own. Arguments, results and errors are those of
    `PullConsumer`, but a seek is complete when its call returns. Any thread may call the methods,
    one thread at a time.
    """

    def __init__(
        self,
        group: str = "",
        *,
        nameserver: str | Sequence[str] | None = None,
        config: PullConsumerConfig | None = None,
        client: ClientConfig | None = None,
        client_config: ClientConfig | None = None,
        env: Environment | EnvironmentSource | None = None,
    ) -> None:
        chosen = resolve_client(nameserver, client, deprecated=client_config)
        super().__init__(PullConsumer(group, config=config, client=chosen, env=env))

    queues = blocking(PullConsumer.queues)
    assign = on_loop(PullConsumer.assign)
    unsubscribe = blocking(PullConsumer.unsubscribe)
    assigned = blocking(PullConsumer.assigned)
    assignment = on_loop(PullConsumer.assignment)
    pause = on_loop(PullConsumer.pause)
    resume = on_loop(PullConsumer.resume)
    paused = on_loop(PullConsumer.paused)
    seek = blocking(PullConsumer.seek, returns=None)
    seek_to_begin = blocking(PullConsumer.seek_to_begin, returns=None)
    seek_to_end = blocking(PullConsumer.seek_to_end, returns=None)
    seek_to_time = blocking(PullConsumer.seek_to_time, returns=None)
    poll = blocking(PullConsumer.poll)
    poll_columns = blocking(PullConsumer.poll_columns)
    position = on_loop(PullConsumer.position)
    reply = blocking(PullConsumer.reply)
    commit = blocking(PullConsumer.commit)
    committed = blocking(PullConsumer.committed)
    begin_offsets = blocking(PullConsumer.begin_offsets)
    end_offsets = blocking(PullConsumer.end_offsets)
    offsets_for_times = blocking(PullConsumer.offsets_for_times)

    def subscribe(
        self,
        topics: Subscriptions,
        *,
        on_assigned: BlockingCallback | None = None,
        on_revoked: BlockingCallback | None = None,
    ) -> None:
        """Join the group and read this member's share of the queues of `topics`.

        The callbacks run in threads of their own. They may call this consumer, except `poll` and
        `unsubscribe`.
        """
        self._run(
            self._client.subscribe(
                topics, on_assigned=_in_thread(on_assigned), on_revoked=_in_thread(on_revoked)
            )
        )


def _in_thread(callback: BlockingCallback | None) -> RebalanceCallback | None:
    """Return an async callback that calls `callback` in a thread, so that it may wait."""
    if callback is None:
        return None

    async def call(queues: list[MessageQueue]) -> None:
        # With `asyncio.to_thread` a callback that hangs would keep the interpreter from ending.
        thread = BlockingPool(1)
        try:
            await thread.run(callback, queues)
        finally:
            await thread.close(wait_s=0)

    return call
