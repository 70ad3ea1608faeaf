"""The producer that applications use."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from ternmq_client.config import ClientConfig, checked_config, resolve_client
from ternmq_client.instance import ClientInstance
from ternmq_client.interceptors import SendInterceptor
from ternmq_client.tracing.tracer import Tracer
from ternmq_model.arguments import check_interceptors, check_seconds
from ternmq_model.errors import ClosedError, TernError
from ternmq_model.message import Message, SendResult
from ternmq_model.names import check_group
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_producer.batch.atomic_batch import check_batch, check_messages
from ternmq_producer.batch.bulk import Bulk, SendResults
from ternmq_producer.batch.pending_send import RECORD_EXTRA_BYTES
from ternmq_producer.config import ProducerConfig
from ternmq_producer.queue_selection.selectors import QueueSelector
from ternmq_producer.send.message_sender import MessageSender, closed_error
from ternmq_producer.send.request_reply import RequestFutures
from ternmq_producer.send.send_interception import SendInterception
from ternmq_producer.send_statistics import SendStatistics
from ternmq_remoting.environment import Environment
from ternmq_runtime.lifecycle import Lifecycle

if TYPE_CHECKING:
    from ternmq_client.tracing.trace_interceptors import SendTraces
    from ternmq_model.clock import Clock

logger = logging.getLogger(__name__)

_ENQUEUED_PER_TURN: Final = 256
"""After so many `enqueue` calls that had no need to wait, the loop gets a turn: else nothing would
be sent until the buffer is full."""

_NO_MESSAGE: Final = Message("", b"")

_SLICE_BYTES: Final = 256 << 10
_SLICE_MESSAGES_MAX: Final = 2048
"""Most that is prepared of a `send_many` in one go, while the broker works on the part before."""


class Producer(Lifecycle):
    """Sends messages, in the shape `async with Producer("group") as producer:`.

    Every send goes over one open stream for each broker. What is sent while earlier messages
    travel forms the next batch by itself; one message alone leaves at once.

    A message without a sharding key goes to the topic's queues in turn, and to another broker when
    one fails. Messages of one sharding key, and those for which the caller chose the queue, stay on
    their queue and in their order.

    Used on the event loop that entered it, by any number of tasks. Leaving the block waits for what
    is under way, at most the send timeout; also when it is left because it was cancelled. Of what
    has no answer then, the log tells the number. A broker that hangs takes 1 s more.

    Args:
        group: Name of the producer group.
        nameserver: `HOST:PORT`, several separated by `;` or `,`, or a sequence of such. None = as
            in `client`.
        config: How to send.
        client: How to find and talk to services.
        interceptors: Called before and after every send, in their order and then backwards.
        env: The seams. None = the real world.

    Raises:
        IllegalName: The group's name is illegal.
        ConfigError: A NameServer's address is, an argument has another type, or `nameserver` and
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
        env: Environment | None = None,
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

    async def _open(self, stack: AsyncExitStack) -> None:
        """Open the producer. No service need be reachable before the first send."""
        if self._sender is not None:
            raise ClosedError("the producer is already open")
        await stack.enter_async_context(self.client)
        self.client.sessions.put_producer(self.group)
        self._clock = self.client.env.clock
        self._loop = asyncio.get_running_loop()
        interceptors = self._interceptors
        if self.client.config.trace:
            tracer = await stack.enter_async_context(Tracer(self.client, self.group, "PRODUCE"))
            self.traces = tracer.of_sends()
            interceptors = (*interceptors, self.traces)
        if interceptors:
            self._interception = SendInterception(self.group, interceptors, self._clock)
        self._sender = MessageSender(self.group, self.config, self.client)
        self._request_futures = RequestFutures(self.client, self._sender)
        stack.callback(self._request_futures.close)
        stack.push_async_callback(self._close)

    async def _close(self) -> None:
        """Refuse new messages, and wait for the answers to those under way.

        Also when the block was cancelled: so a program ends that is told to by a signal. Cancelling
        once more gives up what is under way.
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
            message: Not to be changed until it is answered.
            queue: Where to; else by `selector`, by the sharding key, or in turn. Not both.
            selector: Chooses among the queues of the topic, which come sorted.
            timeout_s: Instead of the configured one. Covers waiting for room and all attempts.

        Returns:
            Its place. With a status other than SEND_OK it is stored and not (yet) confirmed.

        Raises:
            IllegalMessage: It breaks a limit; nothing was sent.
            IllegalName: So does the topic.
            TopicNotFound: No broker has the topic or would create it.
            TernError: The last attempt's error. `may_have_happened` tells whether it may be stored.
        """
        sender = self._open_sender(message)
        if self._interception is not None:
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
        sent, after = self._interception.before(message)
        try:
            future = await self._submitted(sent, queue, selector, timeout_s)
        except TernError as error:
            after(error)
            raise

        def report(done: "asyncio.Future[SendResult]") -> None:
            if done.cancelled():
                return
            error = done.exception()
            if error is None:
                after(done.result())
            elif isinstance(error, TernError):
                after(error)

        future.add_done_callback(report)
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

        Waits only for the topic's route and for room in the buffer. It is tried as often as any
        other; that it failed for good shows in `statistics().one_way_failures` alone.

        Args:
            message: Not to be changed hereafter.
            queue: Where to; else by `selector`, by the sharding key, or in turn. Not both.
            selector: Chooses among the queues of the topic, which come sorted.

        Raises:
            TernError: It could not even be queued. That does not count as a failure.
        """
        sender = self._open_sender(message)
        submit = self._submitted if self._interception is None else self._intercepted
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

        They are one topic's, none is delayed, and their records have at most 4 MiB together. They
        are not compressed. `send_many` is for messages that need not stay together.

        Cancelling stops the waiting: the batch may be sent all the same.

        Args:
            messages: At least one. Not to be changed until they are answered.
            queue: Where to; else by `selector`, which sees the first message, by their sharding
                key, or in turn.
            selector: Chooses among the queues of the topic, which come sorted.
            timeout_s: Instead of the configured one.

        Returns:
            The place of each message, in their order.

        Raises:
            IllegalMessage: They cannot be one batch; nothing was sent.
            TernError: As `send`, for all of them.
        """
        sender = self._open_sender()
        check_messages(messages)

        async def send(sent: Sequence[Message]) -> list[SendResult]:
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

        if self._interception is not None:
            return await self._interception.send_batch(messages, send)
        return await send(messages)

    async def request(
        self,
        message: Message,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
    ) -> StoredMessage:
        """Send `message` and return what a consumer replies to it.

        The consumer answers with `reply`. Cancelling stops the waiting; a reply that comes later is
        dropped.

        Args:
            message: The request. Its consumer sees it as any other message.
            timeout_s: For sending and for the reply together. None = the configured one.
            queue: As for `send`.
            selector: As for `send`.

        Raises:
            RequestTimedOut: No reply came in time; the request may have been consumed.
            TernError: It could not be sent, as `send` says.
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
        """True while a broker can be reached: for health checks and circuit breakers. Asks nobody.

        False while none of the brokers of the topics sent to could be reached when it was tried
        last, while no NameServer tells where they are, and when the producer is not open. True
        before the first send, since nobody was tried. Brokers are tried within about 1 s of a
        connection's end and then about each second, whether or not anything is sent; one that
        does not answer adds `connect_timeout_s`.
        """
        return self._sender is not None and self._sender.is_connected()

    def statistics(self) -> SendStatistics:
        """Return how sending went since the producer was opened, broker by broker.

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

        Waits only for the topic's route and for room in the buffer, so that one task can have many
        messages under way. Await the future, or look at it later: an error that nobody asks for is
        reported by asyncio when the future is dropped; those of messages that are under way when
        the producer is left, are counted in one line of the log.

        Cancelling this call sends nothing. Cancelling the future drops the message if it still can.

        Args:
            message: Not to be changed until it is answered.
            queue: Where to; else by `selector`, by the sharding key, or in turn. Not both.
            selector: Chooses among the queues of the topic, which come sorted.
            timeout_s: Instead of the configured one.

        Raises:
            TernError: As `send` does, when the message could not even be queued.
        """
        sender = self._open_sender(message)
        if self._interception is not None:
            future = await self._intercepted(message, queue, selector, timeout_s)
            await asyncio.sleep(0)
            return future
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
        """Send `messages` and return where each was stored, in their order.

        The fastest way: one answer for many. They may go to several queues and brokers; messages
        with a sharding key keep their order. They are not one transaction: some may fail.

        Cancelling stops the waiting: the messages may be sent all the same. The log says how many
        had no answer.

        Args:
            messages: Of any topics, any number. Not to be changed until they are answered.
            timeout_s: Instead of the configured one. It holds for each part of the list, and a
                part is at most 256 KiB of bodies and 2,048 messages. So a list that fits into
                `buffer_bytes` takes about as long as one message at most, and a longer one that
                time again for each further `buffer_bytes`, while its brokers are away. While
                nobody tells the topic's route, each part takes it.

        Raises:
            SendManyFailed: Some were not stored, or nobody knows; its `results` say which.
            IllegalMessage: `messages` is no sequence of messages; nothing was sent.
        """
        check_messages(messages)
        if self._interception is not None:
            return await self._interception.send_many(
                messages, lambda sent: self._send_many(sent, timeout_s)
            )
        return await self._send_many(messages, timeout_s)

    async def _send_many(self, messages: Sequence[Message], timeout_s: float | None) -> SendResults:
        sender = self._open_sender()
        count = len(messages)
        done: asyncio.Future[None] = self._loop.create_future()
        bulk = Bulk(count, done)
        timeout_ms = self._timeout_ms if timeout_s is None else _milliseconds(timeout_s)
        try:
            with sender.buffer.entering():
                start = 0
                while start < count:
                    room_for = _SLICE_BYTES // (len(messages[start].body) + RECORD_EXTRA_BYTES)
                    size = min(max(room_for, 1), _SLICE_MESSAGES_MAX)
                    part = messages[start : start + size]
                    await sender.submit_part(bulk, part, start, timeout_ms)
                    start += len(part)
                    await asyncio.sleep(0)  # let it leave before the next part is prepared
            if count:
                await done
        except asyncio.CancelledError:
            logger.warning(
                "send_many was cancelled group=%s messages=%s without_answer=%s: may be stored",
                self.group,
                count,
                bulk.left,
            )
            raise
        finally:
            bulk.abandon()
        return bulk.results()

    @property
    def buffered_bytes(self) -> int:
        """Memory that waiting and unanswered messages take, at most `buffer_bytes`."""
        return 0 if self._sender is None else self._sender.buffer.used_bytes

    async def flush(self) -> None:
        """Wait until everything sent so far, and meanwhile, has its answer. Cancelling is safe."""
        if self._sender is not None:
            await self._open_sender().buffer.emptied()

    def _open_sender(self, message: Message = _NO_MESSAGE) -> MessageSender:
        """Return what sends `message`.

        Raises:
            ClosedError: The producer is not open, or its process has forked this one since.
            UsageError: It was opened on another event loop.
            IllegalMessage: `message` is none.
        """
        if self._sender is None:
            raise closed_error()
        self._check_owner()
        if message.__class__ is not Message:
            check_messages((message,))
        return self._sender


def _milliseconds(timeout_s: float) -> int:
    """Return a timeout in milliseconds.

    Raises:
        UsageError: It is no number of seconds.
    """
    return round(check_seconds("timeout_s", timeout_s) * 1000)
