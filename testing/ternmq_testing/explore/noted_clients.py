"""Clients of an exploration: those of an application, which the journal hears of."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from inspect import isawaitable
from typing import Any

from ternmq_consumer.pull.pull_consumer import PullConsumer
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_consumer.subscriptions import Subscriptions
from ternmq_model.stored_message import StoredMessage
from ternmq_model.transaction import Resolution, TransactionResult
from ternmq_producer.transactions.transaction_producer import TransactionProducer
from ternmq_testing.explore.journal import Journal


class NotedTransactionProducer(TransactionProducer):
    """Transaction producer whose outcomes are noted."""

    def __init__(self, journal: Journal, group: str, *, check: Any, **options: Any) -> None:
        async def noted(message: StoredMessage) -> Resolution:
            returned = check(message)
            resolution: Resolution = await returned if isawaitable(returned) else returned
            journal.resolved(message.message_id, resolution, by="check")
            return resolution

        super().__init__(group, check=noted if callable(check) else check, **options)
        self._journal = journal

    async def send(self, *args: Any, **options: Any) -> TransactionResult:
        """Send. See `TransactionProducer.send`."""
        result = await super().send(*args, **options)
        self._journal.ended(result)
        return result


class NotedPullConsumer(PullConsumer):
    """Pull consumer whose messages and commits are noted."""

    def __init__(self, journal: Journal, group: str, **options: Any) -> None:
        super().__init__(group, **options)
        self._journal = journal

    async def poll(self, **options: Any) -> list[StoredMessage]:
        """Wait for messages. See `PullConsumer.poll`."""
        messages = await super().poll(**options)
        self._journal.got(self._group, messages)
        return messages

    async def commit(self) -> bool:
        """Store the positions. See `PullConsumer.commit`."""
        is_stored = await super().commit()
        outcome = "" if is_stored else ": not stored"
        self._journal.note(f"group {self._group} committed its positions{outcome}")
        return is_stored


class NotedPushConsumer(PushConsumer):
    """Push consumer whose iteration is noted; an interceptor notes the calls of its listener.

    Args:
        on_open: Called with the consumer when it has joined; returns what is awaited before it
            leaves.
    """

    def __init__(
        self,
        journal: Journal,
        on_open: Callable[["NotedPushConsumer"], Callable[[], Awaitable[None]]],
        group: str,
        topics: Subscriptions,
        **options: Any,
    ) -> None:
        super().__init__(group, topics, **options)
        self._journal, self._on_open = journal, on_open

    async def _open(self, stack: AsyncExitStack) -> None:
        await super()._open(stack)
        stack.push_async_callback(self._on_open(self))

    @property
    def client_id(self) -> str:
        """Id of the client, by which brokers know the member."""
        return self._client.client_id

    def __aiter__(self) -> AsyncIterator[StoredMessage]:
        """Iterate over the messages. See `PushConsumer.__aiter__`."""
        return _NotedIterator(super().__aiter__(), self._journal, self._group)


class _NotedIterator:
    def __init__(
        self, messages: AsyncIterator[StoredMessage], journal: Journal, group: str
    ) -> None:
        self._messages, self._journal, self._group = messages, journal, group

    def __aiter__(self) -> "_NotedIterator":
        return self

    async def __anext__(self) -> StoredMessage:
        message = await anext(self._messages)
        self._journal.got(self._group, [message])
        return message
