"""The producer that applications use."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from ternmq_client.config import ClientConfig, checked_config, resolve_client
from ternmq_client.instance import ClientInstance
from ternmq_client.interceptors import SendInterceptor
from ternmq_client.telemetry.send_spans import SendSpans
from ternmq_client.tracing.tracer import Tracer
from ternmq_model.arguments import check_interceptors, check_seconds
from ternmq_model.errors import ClosedError, TernError
from ternmq_model.message import Message, SendResult
from ternmq_model.names import check_group
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_producer.batch.atomic_batch import check_batch, check_messages
from ternmq_producer.batch.bulk import Bulk, SendResults
from ternmq_producer.batch.column_results import ColumnResults
from ternmq_producer.columns.message_columns import MessageColumns
from ternmq_producer.config import ProducerConfig
from ternmq_producer.queue_selection.selectors import QueueSelector
from ternmq_producer.send.many_messages import send_columns, send_messages
from ternmq_producer.send.message_sender import MessageSender, closed_error
from ternmq_producer.send.request_reply import RequestFutures
from ternmq_producer.send.send_interception import SendInterception
from ternmq_producer.send_statistics import SendStatistics
from ternmq_remoting.environment import Environment, EnvironmentSource
from ternmq_runtime.lifecycle import Lifecycle

if TYPE_CHECKING:
    from ternmq_client.tracing.trace_interceptors import SendTraces
    from ternmq_model.clock import Clock

_ENQUEUED_PER_TURN: Final = 512
"""Number of `enqueue` calls without a wait after which the loop gets a turn. Without turns nothing
would be sent before the buffer is full; with 256 a broker spent a fifth more on each message."""

_NO_MESSAGE: Final = Message("", b"")


class Producer(Lifecycle):
    """Sends messages, in the shape `async with Producer("group") as producer:`.

    Every send goes over one open stream for each broker. Messages sent while earlier ones travel
    form the next batch; a single message leaves at once.

    A message without a sharding key goes to the topic's queues in turn, and to another broker when
    one fails. Messages of one sharding key, and those for which the caller chose the queue, stay on
    their queue and in their order.

    Any number of tasks may use the producer, on the event loop that entered the block. The end of
    the block, also a cancelled one, waits for the answers to sent messages, at most the send
    timeout, and 1 s more for a broker that hangs. The log counts messages without an answer.

    Args:
        group: Name of the producer group.
        nameserver: `HOST:PORT`, several separated by `;` or `,`, or a sequence of these. None = the
            one in `client`.
        config: Settings of the producer.
        client: Settings of the connections.
        interceptors: Interceptors, called in order before every send and in reverse after it.
        env: Clock, network and threads. None = the operating system's.

    Raises:
        IllegalName: The group's name is illegal.
        ConfigError: An address is illegal, an argument has another type, or `nameserver` and
            `client` name different NameServers.
    """

    def __init__(
        self,
        group: str,
        *,
        nameserver: str | Sequence[str] | None = None,
        config: ProducerConfig | None = None,
        client: ClientConfig | None = None,
        interceptors: Sequence[SendInterceptor] = (),
        env: Environment | EnvironmentSource | None = None,
    ) -> None:
        self.group = check_group(group)
        self.config = checked_config("config", config, ProducerConfig)
        self.client = ClientInstance(resolve_client(nameserver, client), env=env)
        self._clock: Clock
        self._loop: asyncio.AbstractEventLoop
        self._timeout_ms = round(self.config.send_timeout_s * 1000)
        self._sender: MessageSender | None = None
        self._interceptors = check_interceptors(interceptors, "before_send", "after_send")
        self._interception: SendInterception | None = None
        self._request_futures: RequestFutures | None = None
        self._without_turn = 0
        self.traces: SendTraces | None = None
        self.spans: SendSpans | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        """Open the producer. No service need be reachable before the first send."""
        if self._sender is not None:
            raise ClosedError("the producer is already open")
        await stack.enter_async_context(self.client)
        self.client.sessions.put_producer(self.group)
        self._clock = self.client.env.clock
        self._loop = asyncio.get_running_loop()
        interceptors = (*self._interceptors, *self.client.env.send_interceptors)
        if self.client.config.trace:
            tracer = await stack.enter_async_context(Tracer(self.client, self.group, "PRODUCE"))
            self.traces = tracer.of_sends()
            interceptors = (*interceptors, self.traces)
        if self.client.telemetry is not None:
            self.spans = SendSpans(self.client.telemetry)
        if interceptors or self.spans is not None:
            self._interception = SendInterception(self.group, interceptors, self._clock, self.spans)
        self._sender = MessageSender(self.group, self.config, self.client)
        self._request_futures = RequestFutures(self.client, self._sender)
        stack.callback(self._request_futures.close)
        stack.push_async_callback(self._close)

    async def _close(self) -> None:
        """Refuse new messages, and wait for the answers to those under way.

        A cancelled block waits too: so a program ends after a signal. A second cancellation drops
        the messages under way.
        """
        sender, self._sender = self._sender, None
        assert sender is not None, "was opened"
        try:
            await sender.finish()
        finally:
            sender.close()
            self.client.sessions.remove_producer(self.group)

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send `message` and return where it was stored.

        Cancelling stops the waiting: the message may be sent all the same.

        Args:
            message: Message, not to be changed until it is answered.
            queue: Queue of the message; else `selector`, the sharding key or round robin chooses.
                Excludes `selector`.
            selector: Function that chooses among the sorted queues of the topic.
            timeout_s: Time limit that replaces `send_timeout_s`, for buffer space and all attempts.

        Returns:
            Place of the message. A status other than SEND_OK means stored and not (yet) confirmed.

        Raises:
            IllegalMessage: The message breaks a limit; nothing was sent.
            IllegalName: The topic's name is illegal; nothing was sent.
            TopicNotFound: No broker has the topic or would create it.
            TernError: The last attempt's error. `may_have_happened`: the message may be stored.
        """
        sender = self._open_sender(message)
        if self._interception is not None and self._interception.takes():
            return await (await self._intercepted(message, queue, selector, timeout_s))
        timeout_ms = self._timeout_ms if timeout_s is None else _milliseconds(timeout_s)
        now_ms = self._clock.monotonic_ms()
        end_ms = now_ms + timeout_ms
        future: asyncio.Future[SendResult] = self._loop.create_future()
        if not sender.submit_now(future, message, queue, selector, now_ms, end_ms):
            await sender.submit(future, message, queue, selector, now_ms, end_ms)
        return await future

    async def _intercepted(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        timeout_s: float | None,
    ) -> "asyncio.Future[SendResult]":
        """Queue `message` between its interceptors, and return the future of its answer."""
        assert self._interception is not None, "there are interceptors"
        sent, after = self._interception.before_one(message)
        try:
            future = await self._submitted(sent, queue, selector, timeout_s)
        except BaseException as error:
            after(error if isinstance(error, TernError) else None)
            raise
        self._interception.watch(future, after)
        return future

    async def _submitted(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        timeout_s: float | None,
    ) -> "asyncio.Future[SendResult]":
        """Queue `message` without interceptors, and return the future of its answer."""
        sender = self._open_sender()
        future: asyncio.Future[SendResult] = self._loop.create_future()
        timeout_ms = self._timeout_ms if timeout_s is None else _milliseconds(timeout_s)
        now_ms = self._clock.monotonic_ms()
        end_ms = now_ms + timeout_ms
        if not sender.submit_now(future, message, queue, selector, now_ms, end_ms):
            await sender.submit(future, message, queue, selector, now_ms, end_ms)
        return future

    async def send_one_way(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
    ) -> None:
        """Queue `message` for sending, without an answer.

        The call waits only for the topic's route and for buffer space. The message has as many
        attempts as any other; `statistics().one_way_failures` counts those that failed for good.

        Args:
            message: Message, not to be changed hereafter.
            queue: Queue of the message; else `selector`, the sharding key or round robin chooses.
                Excludes `selector`.
            selector: Function that chooses among the sorted queues of the topic.

        Raises:
            TernError: The message could not be queued, which does not count as a failure.
        """
        sender = self._open_sender(message)
        is_intercepted = self._interception is not None and self._interception.takes()
        submit = self._intercepted if is_intercepted else self._submitted
        future = await submit(message, queue, selector, None)
        future.add_done_callback(sender.count_one_way)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult]:
        """Send `messages` as one: all are stored, next to each other in one queue, or none is.

        A batch has one topic, no delayed message, and at most 4 MiB of records. Its bodies are not
        compressed. `send_many` is for messages that need not stay together.

        Cancelling stops the waiting: the batch may be sent all the same.

        Args:
            messages: Messages, at least one, not to be changed until they are answered.
            queue: Queue of the batch; else `selector`, which gets the first message, their sharding
                key or round robin chooses.
            selector: Function that chooses among the sorted queues of the topic.
            timeout_s: Time limit that replaces `send_timeout_s`.

        Returns:
            Places of the messages, in order.

        Raises:
            IllegalMessage: The messages cannot be one batch; nothing was sent.
            TernError: The error of `send`, for all messages.
        """
        sender = self._open_sender()
        check_messages(messages)

        async def send(messages: Sequence[Message]) -> list[SendResult]:
            sent = messages[:]  # a slice of traced messages has their contexts
            check_batch(sent)
            timeout_ms = self._timeout_ms if timeout_s is None else _milliseconds(timeout_s)
            deadline_ms = self._clock.monotonic_ms() + timeout_ms
            done: asyncio.Future[None] = self._loop.create_future()
            bulk = Bulk(len(sent), done)
            try:
                await sender.submit_batch(bulk, sent, queue, selector, deadline_ms)
                await done
            finally:
                bulk.abandon()
            if bulk.errors:
                raise bulk.errors[0]
            return list(bulk.results())

        batch = list(messages)  # any sequence, such as a deque, which has no slices
        if self._interception is not None:
            return await self._interception.send_batch(batch, send)
        return await send(batch)

    async def request(
        self,
        message: Message,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
    ) -> StoredMessage:
        """Send `message` and return the reply of a consumer.

        The consumer answers with `reply`. Cancelling stops the waiting; a later reply is dropped.

        Args:
            message: Request, which its consumer reads like any other message.
            timeout_s: Time limit for the send and the reply together. None = `send_timeout_s`.
            queue: Queue of the message, the same as for `send`.
            selector: Function that chooses a queue, the same as for `send`.

        Raises:
            RequestTimedOut: No reply came in time; the request may have been consumed.
            TernError: The request could not be sent; see `send`.
        """
        if self._request_futures is None:
            raise closed_error()
        self._open_sender(message)
        message.check_kinds()
        seconds = self.config.send_timeout_s
        if timeout_s is not None:
            seconds = check_seconds("timeout_s", timeout_s)

        async def send(sent: Message, left_s: float) -> None:
            await self.send(sent, queue=queue, selector=selector, timeout_s=left_s)

        return await self._request_futures.request(message, send, timeout_s=seconds)

    @property
    def is_connected(self) -> bool:
        """True while a broker can be reached: for health checks and circuit breakers. No request.

        False while no broker of the topics sent to could be reached at the last attempt, while no
        NameServer returns their addresses, and when the producer is not open. True before the first
        send. The producer tries brokers within about 1 s of a connection's end and then about each
        second, with or without sends; a broker that does not answer adds `connect_timeout_s`.
        """
        return self._sender is not None and self._sender.is_connected()

    def statistics(self) -> SendStatistics:
        """Return the counters of sends since the producer was opened, broker by broker.

        Raises:
            ClosedError: The producer is not open.
        """
        return self._open_sender().statistics()

    async def enqueue(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> "asyncio.Future[SendResult]":
        """Queue `message` for sending, and return the future of its answer.

        The call waits only for the topic's route and for buffer space, so that one task can have
        many messages under way. Await the future at once or later: asyncio reports an error that no
        caller asks for when the future is dropped. Errors of messages that are under way at the end
        of the block are counted in one line of the log.

        Cancelling this call sends nothing. Cancelling the future drops a message that still waits.

        Args:
            message: Message, not to be changed until it is answered.
            queue: Queue of the message; else `selector`, the sharding key or round robin chooses.
                Excludes `selector`.
            selector: Function that chooses among the sorted queues of the topic.
            timeout_s: Time limit that replaces `send_timeout_s`.

        Raises:
            TernError: The message could not be queued; see `send`.
        """
        sender = self._open_sender(message)
        if self._interception is not None and self._interception.takes():
            future = await self._intercepted(message, queue, selector, timeout_s)
            self._without_turn += _ENQUEUED_PER_TURN if self._interception.has_interceptors else 1
        else:
            timeout_ms = self._timeout_ms if timeout_s is None else _milliseconds(timeout_s)
            now_ms = self._clock.monotonic_ms()
            end_ms = now_ms + timeout_ms
            future = self._loop.create_future()
            if not sender.submit_now(future, message, queue, selector, now_ms, end_ms):
                await sender.submit(future, message, queue, selector, now_ms, end_ms)
                return future
            self._without_turn += 1
        if self._without_turn >= _ENQUEUED_PER_TURN:
            self._without_turn = 0
            await asyncio.sleep(0)
        return future

    async def send_many(
        self, messages: Sequence[Message], *, timeout_s: float | None = None
    ) -> SendResults:
        """Send `messages` and return the place of each, in order.

        The fastest way to send: one answer for many messages, on several queues and brokers.
        Messages with a sharding key keep their order. They are no transaction: some may fail.

        Cancelling stops the waiting: the messages may be sent all the same. The log has the number
        of messages without an answer.

        Args:
            messages: Messages of any topics, not to be changed until they are answered.
            timeout_s: Time limit that replaces `send_timeout_s`, for each part of the list from its
                begin: at most 512 KiB of bodies and 2,048 messages. While brokers are away, a list
                that fits into `buffer_bytes` takes about the limit of one message, and a longer
                list that time again for each further `buffer_bytes`. While no NameServer returns
                the topic's route, each part takes the limit.

        Raises:
            SendManyFailed: Some messages were not stored, or may not have been; `results` has the
                outcome of each.
            IllegalMessage: `messages` is no sequence of messages; nothing was sent.
        """
        check_messages(messages)
        if self._interception is not None:
            return await self._interception.send_many(
                messages, lambda sent: self._send_many(sent, timeout_s)
            )
        return await self._send_many(messages, timeout_s)

    async def _send_many(self, messages: Sequence[Message], timeout_s: float | None) -> SendResults:
        timeout_ms = self._timeout_ms if timeout_s is None else _milliseconds(timeout_s)
        return (await send_messages(self._open_sender(), messages, timeout_ms)).results()

    async def send_columns(
        self,
        topic: str,
        bodies: Any,
        *,
        tags: Any = None,
        keys: Any = None,
        properties: Any = None,
        sharding_keys: Any = None,
        queue_ids: Any = None,
        timeout_s: float | None = None,
    ) -> ColumnResults:
        """Send a message for each row of columns, and return the results as arrays.

        `send_many` without an object for each message. Messages with a sharding key or a queue id
        keep their order. No transaction: illegal rows are refused, others may fail, and the rest is
        stored. With interceptors or traces, each legal row becomes a `Message` for them.

        Cancelling stops the waiting: the messages may be sent all the same.

        Args:
            topic: Topic of all messages.
            bodies: Bodies, not to be changed until the call ends: an Arrow array of binary values
                or strings, a list of bytes, or a tuple of a buffer and the offsets between which
                the bodies lie, one more than bodies. Or an Arrow `RecordBatch` or `Table`, or a
                data frame, with the columns `body`, `tags`, `keys`, `properties`, `shardingKey` and
                `queueId`, all but the first optional, of the types in Spark; others are ignored,
                and beside `queueOffset`, as in `poll_columns`, `queueId` too.
            tags: Tag of all messages, or a column of tags. Columns are Arrow arrays, lists or numpy
                arrays, with a null or None for rows without a value.
            keys: Column with the key of each message, or a list of its keys.
            properties: Properties of all messages, or a column of maps. An Arrow map with
                `UNIQ_KEY` is that of a read message: properties of clients and brokers are left
                out, and without `sharding_keys` its `__SHARDINGKEY` is the sharding key.
            sharding_keys: Sharding key of all messages, or a column of sharding keys.
            queue_ids: Queue id of all messages, or a column; refused if several brokers have it.
            timeout_s: Time limit that replaces `send_timeout_s`, for each part. See `send_many`.

        Raises:
            SendColumnsFailed: Some messages were not stored, or may not be; `results` has all.
            UsageError: A column has another type or length, or bad UTF-8; nothing was sent.
            IllegalName: The topic's name is illegal; nothing was sent.
        """
        columns = MessageColumns(
            topic, bodies, tags=tags, keys=keys, properties=properties,
            sharding_keys=sharding_keys, queue_ids=queue_ids,
        )  # fmt: skip
        return await self.send_encoded(columns, timeout_s)

    async def send_encoded(self, columns: MessageColumns, timeout_s: float | None) -> ColumnResults:
        """Send the messages of `columns` as `send_columns` does."""
        timeout_ms = self._timeout_ms if timeout_s is None else _milliseconds(timeout_s)
        return await send_columns(self._open_sender(), columns, timeout_ms, self._interception)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of waiting and unanswered messages, at most `buffer_bytes`."""
        return 0 if self._sender is None else self._sender.buffer.used_bytes

    async def flush(self) -> None:
        """Wait until every message sent before or meanwhile has its answer. Cancelling is safe."""
        if self._sender is not None:
            await self._open_sender().buffer.emptied()

    def _open_sender(self, message: Message = _NO_MESSAGE) -> MessageSender:
        """Return the sender, after checks of the owner and of the type of `message`."""
        if self._sender is None:
            raise closed_error()
        self._check_owner()
        self.client.check_owned()
        if message.__class__ is not Message:
            check_messages((message,))
        return self._sender


def _milliseconds(timeout_s: float) -> int:
    return round(check_seconds("timeout_s", timeout_s) * 1000)
