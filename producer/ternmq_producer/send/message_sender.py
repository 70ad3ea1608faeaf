"""Sender of messages: it chooses a queue for each and hands it to the link of its broker."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress

import numpy as np

from ternmq_client.instance import ClientInstance
from ternmq_model.byte_column import ByteColumn
from ternmq_model.errors import ClosedError, IllegalName, TernError
from ternmq_model.message import Message, SendResult
from ternmq_model.message_id import UniqueKeys, ip_bytes
from ternmq_model.names import check_topic, is_send_forbidden
from ternmq_model.queue import MessageQueue
from ternmq_producer.batch.bulk import Bulk, BulkSlots
from ternmq_producer.batch.pending_send import Pending, PendingBatch
from ternmq_producer.batch.result_sinks import ResultSink
from ternmq_producer.batch.send_buffer import SendBuffer
from ternmq_producer.batch.send_errors import timed_out
from ternmq_producer.batch.send_metrics import SendMetrics
from ternmq_producer.config import ProducerConfig
from ternmq_producer.queue_selection.fault_strategy import FaultStrategy
from ternmq_producer.queue_selection.reachability import BrokerReachability
from ternmq_producer.queue_selection.selectors import QueueSelector, chosen_queue, is_ordered
from ternmq_producer.queue_selection.topic_publish_info import QueueFinder, TopicPublishInfo
from ternmq_producer.send.body_compression import BodyCompressor, is_compressed_off_loop
from ternmq_producer.send.ticket_queue import Ticket, TicketQueues
from ternmq_producer.send_statistics import SendStatistics
from ternmq_producer.send_stream.broker_link import BrokerLink

logger = logging.getLogger(__name__)


class MessageSender:
    """Topics, links and buffer of an open producer, which owns the sender."""

    def __init__(self, group: str, config: ProducerConfig, client: ClientInstance) -> None:
        self.group = group
        self.config = config
        self.client = client
        self.buffer = SendBuffer(config.buffer_bytes)
        self.metrics = None if client.telemetry is None else SendMetrics(client.telemetry)
        self.incarnation = f"{client.env.random.getrandbits(64):016x}"
        """Identity of the producer's streams among others with the same client id."""

        self.is_open = True
        """True while messages are accepted."""

        self._closing: list[TernError] | None = None
        """Errors since closing began."""

        self.one_way_failures = 0
        self.late_replies = 0
        self.compressor = BodyCompressor(config, client.env.blocking)
        self._compress_from = self.compressor.from_bytes
        self.publish_infos: dict[str, TopicPublishInfo] = {}
        self._finder = QueueFinder(client, config)
        self.tickets = TicketQueues()
        self._links: dict[str, BrokerLink] = {}
        self.fault_strategy = FaultStrategy(config, client.env, self._links)
        self.answered = self.fault_strategy.answered
        self.failed = self.fault_strategy.failed
        self.rested = self.fault_strategy.rested
        self._reachability = BrokerReachability(client, self.publish_infos, self._links)
        self.is_connected = self._reachability.is_connected
        self._looking = client.tasks.spawn(self._reachability.run(), "look for brokers")
        self._keys: UniqueKeys | None = None
        self.clock = client.env.clock
        self._timers = client.env.timers
        client.routes.add_listener(self._on_route)

    async def finish(self) -> None:
        """Wait until every message has its answer, at most the send timeout.

        Errors from now on are counted for one line of the log, since no caller may ask for them.
        """
        self._closing = []
        with suppress(TimeoutError):
            async with asyncio.timeout(self.config.send_timeout_s):
                await self.buffer.emptied()

    def close(self) -> None:
        """Refuse new messages, and fail every one that has no answer yet."""
        self.is_open = False
        self.publish_infos.clear()
        error = ClosedError("the producer was closed before the answer came")
        self._looking.cancel()
        self.fault_strategy.close()
        self.buffer.close()
        links = list(self._links.values())
        self._links.clear()
        for link in links:
            link.fail_all(error)
        if self._closing:
            maybe_stored = sum(each.may_have_happened for each in self._closing)
            logger.warning(
                "producer closed without all answers group=%s messages=%s maybe_stored=%s",
                self.group,
                len(self._closing),
                maybe_stored,
            )

    def fail(self, pending: Pending, error: TernError) -> None:
        """Answer `pending` with `error`, unless it has an answer."""
        sink = pending.sink
        if sink.done():
            return
        sink.set_exception(error)
        if self.metrics is not None:
            self.metrics.failed(pending, error)
        if self._closing is not None:
            self._closing += [error] * len(pending)
            if isinstance(sink, asyncio.Future):
                sink.exception()  # so asyncio does not report each when it is dropped

    def unique_keys(self, born_host: bytes) -> UniqueKeys:
        """Return the generator of the producer's unique keys.

        Args:
            born_host: Address and port of this client as a broker sees them. The address of the
                first call goes into all keys.
        """
        if self._keys is None:
            self._keys = UniqueKeys(
                address=ip_bytes(born_host),
                process_id=os.getpid(),
                salt=self.client.env.random.getrandbits(32),
            )
        return self._keys

    def count_one_way(self, answer: "asyncio.Future[SendResult]") -> None:
        """Count a one-way message that was not stored."""
        if answer.exception() is not None:
            self.one_way_failures += 1

    def statistics(self) -> SendStatistics:
        """Return the counters since the producer was opened."""
        return SendStatistics(
            brokers=self.fault_strategy.sends(),
            one_way_failures=self.one_way_failures,
            late_replies=self.late_replies,
            buffered_bytes=self.buffer.used_bytes,
        )

    def is_reachable(self, topic: str) -> bool:
        """Return whether a broker of `topic` could be reached at the last attempt."""
        publish_info = self._known_publish_info(topic)
        return publish_info is not None and publish_info.is_reachable

    def send_again(self, pending: Sequence[Pending], *, avoid: str, delay_s: float) -> None:
        """Send unordered messages again that broker `avoid` did not store.

        Args:
            pending: Messages without an order.
            avoid: Broker name; queues of other brokers come first.
            delay_s: Wait before the retry where all queues are those of `avoid`.
        """
        resting: list[Pending] = []
        for one in pending:
            publish_info = self._known_publish_info(one.topic.decode())
            if publish_info is not None:
                one.queue = publish_info.queues[self.fault_strategy.next_but(publish_info, avoid)]
            if one.queue.broker_name == avoid and delay_s:
                resting.append(one)
            else:
                self.link(one.queue.broker_name).add(one)
        if resting:
            self._timers.call_later(delay_s, self._send_rested, resting)

    def _send_rested(self, pending: list[Pending]) -> None:
        for one in pending:
            if self._links:
                self.link(one.queue.broker_name).add(one)
            else:
                self.buffer.give_back(one.record_bytes)
                self.fail(one, ClosedError("the producer was closed"))

    def submit_now(
        self,
        sink: ResultSink,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        started_ms: int,
        deadline_ms: int,
        ticket: Ticket | None = None,
    ) -> bool:
        """Pass `message` to its link; return False when it must wait.

        A message waits for a route, for its ticket, for buffer space, or for its compression.
        """
        try:
            publish_info = self.publish_infos.get(message.topic)
        except TypeError:  # such as a list: `submit` raises the error about the topic
            return False
        if publish_info is None:
            return False
        is_in_order = is_ordered(message, queue, selector)
        if is_in_order and not self.tickets.admits(message.topic, ticket):
            return False
        if self.config.fail_fast and not publish_info.is_reachable:
            return False  # `submit` fails, and lets others run first
        properties = publish_info.properties_of(message)
        body = message.body
        sys_flag = 0
        if len(body) >= self._compress_from:
            if is_compressed_off_loop(message, queue, selector):
                return False
            body, sys_flag = self.compressor.compress(body)
        size = publish_info.overhead_bytes + len(body) + len(properties)
        if not self.buffer.take_now(size):
            return False
        if queue is None and selector is None and not is_in_order:
            # Most messages: no call and no tuple for each.
            index = publish_info.next()
            link = publish_info.links[index]
            if link.is_avoided:
                index = self.fault_strategy.next_index(publish_info)
                link = publish_info.links[index]
            queue = publish_info.queues[index]
        else:
            queue, link = self._choose(message, publish_info, queue, selector, size)
        link.add_row(
            (sink, publish_info.topic, body, properties, queue, is_in_order, size,
             started_ms, deadline_ms, message.flag, sys_flag)
        )  # fmt: skip
        return True

    async def submit(
        self,
        sink: ResultSink,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        started_ms: int,
        deadline_ms: int,
        ticket: Ticket | None = None,
    ) -> None:
        """Pass `message` to its link once it has a route, its turn and buffer space."""
        message.encoded_properties()  # an illegal message fails without a request
        with self.buffer.entering(), ExitStack() as stack:
            is_in_order = is_ordered(message, queue, selector)
            if is_in_order and ticket is None:
                ticket = stack.enter_context(self.tickets.join(message.topic))
            publish_info = await self.publish_info(message.topic, deadline_ms)
            properties = publish_info.properties_of(message)
            body, sys_flag = message.body, 0
            if len(body) >= self._compress_from:
                if is_compressed_off_loop(message, queue, selector):
                    body, sys_flag = await self.compressor.compress_off_loop(body)
                else:
                    body, sys_flag = self.compressor.compress(body)
            size = publish_info.overhead_bytes + len(body) + len(properties)
            await self.reserve(size, deadline_ms, ticket)
            queue, link = self._choose(message, publish_info, queue, selector, size)
            link.add_row(
                (sink, publish_info.topic, body, properties, queue, is_in_order, size,
                 started_ms, deadline_ms, message.flag, sys_flag)
            )  # fmt: skip

    async def submit_batch(
        self,
        bulk: Bulk,
        messages: Sequence[Message],
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        deadline_ms: int,
    ) -> None:
        """Pass a checked batch to its link once it has a route, its turn and buffer space."""
        first = messages[0]
        for message in messages:
            message.encoded_properties()
        with self.buffer.entering(), ExitStack() as stack:
            is_in_order = is_ordered(first, queue, selector)
            ticket = stack.enter_context(self.tickets.join(first.topic)) if is_in_order else None
            publish_info = await self.publish_info(first.topic, deadline_ms)
            properties, sizes = publish_info.encoded(messages)
            total = int(sizes.sum())
            await self.reserve(total, deadline_ms, ticket)
            queue, link = self._choose(first, publish_info, queue, selector, total)
            link.add(
                PendingBatch(
                    BulkSlots(bulk, np.arange(len(messages))),
                    publish_info.topic,
                    ByteColumn.listed([message.body for message in messages]),
                    properties,
                    np.array([message.flag for message in messages]),
                    (queue,),
                    np.zeros(len(messages), dtype=np.int64),
                    sizes,
                    self.clock.monotonic_ms(),
                    deadline_ms,
                    is_atomic=True,
                    is_ordered=is_in_order,
                )
            )

    def _choose(
        self,
        message: Message,
        publish_info: TopicPublishInfo,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        size: int,
    ) -> tuple[MessageQueue, BrokerLink]:
        """Return the queue of `message` and its link; on an error, free `size` bytes."""
        if queue is None and selector is None:
            if message.sharding_key:
                index = publish_info.index_of_key(message.sharding_key)
            else:
                index = self.fault_strategy.next_index(publish_info)
            return publish_info.queues[index], publish_info.links[index]
        try:
            queue = chosen_queue(message, publish_info.queues, queue, selector)
            return queue, self.link(queue.broker_name)
        except BaseException:
            self.buffer.give_back(size)
            raise

    async def reserve(self, size: int, deadline_ms: int, ticket: Ticket | None = None) -> None:
        """Reserve `size` bytes of the buffer once `ticket` is first and they are free."""
        if ticket is not None and not ticket.is_set():
            async with self._until(deadline_ms, "earlier messages that wait"):
                await ticket.wait()
        async with self._until(deadline_ms, "buffer space"):
            await self.buffer.take(size)
        if not self.is_open:  # closed at the moment when the bytes became free
            self.buffer.give_back(size)
            raise closed_error()

    async def publish_info(self, topic: str, deadline_ms: int) -> TopicPublishInfo:
        """Return the publish info of `topic`, asking for the route when it is unknown."""
        publish_info = self.publish_infos.get(topic)
        if publish_info is not None:
            if self.config.fail_fast and not publish_info.is_reachable:
                await asyncio.sleep(0)  # a caller that retries at once must not stop the loop
                publish_info.check_reachable()
            return publish_info
        check_topic(topic)
        if is_send_forbidden(topic):
            raise IllegalName("topic", topic, "only brokers may write to it")
        try:
            queues = await self._finder.find(topic, deadline_ms)
        except TernError as error:
            self._reachability.note(topic, error)
            await asyncio.sleep(0)  # a known route without a master is no wait
            raise
        if not self.is_open:
            raise closed_error()
        return self._make_publish_info(topic, queues)

    def _known_publish_info(self, topic: str) -> TopicPublishInfo | None:
        """Return the publish info of `topic` by the cached route, which may be newer."""
        publish_info = self.publish_infos.get(topic)
        if publish_info is None and (route := self.client.routes.cached(topic)) is not None:
            queues = route.write_queues()
            return self._make_publish_info(topic, queues) if queues else None
        return publish_info

    def _make_publish_info(self, topic: str, queues: Sequence[MessageQueue]) -> TopicPublishInfo:
        publish_info = TopicPublishInfo(topic, queues, self.client.env.random.getrandbits(31))
        publish_info.links = [self.link(queue.broker_name) for queue in queues]
        for link in publish_info.links:
            link.look()
        self.publish_infos[topic] = publish_info
        return publish_info

    def link(self, broker_name: str) -> BrokerLink:
        """Return the link to `broker_name`, created on first use."""
        link = self._links.get(broker_name)
        if link is None:
            link = self._links[broker_name] = BrokerLink(broker_name, self)
            self.client.tasks.spawn(link.run(), f"send to {broker_name}")
        return link

    def _on_route(self, topic: str) -> None:
        """Replace the publish info of `topic` after a change of its route."""
        had_queues = self.publish_infos.pop(topic, None) is not None
        had_queues |= self._reachability.is_lost(topic)
        if had_queues and self._known_publish_info(topic) is None:
            self._reachability.lose(topic)

    @asynccontextmanager
    async def _until(self, deadline_ms: int, what: str) -> AsyncGenerator[None]:
        """Limit the block, before the message is sent, to the time before `deadline_ms`."""
        try:
            left_ms = deadline_ms - self.clock.monotonic_ms()
            async with self._timers.timeout(max(0, left_ms) / 1000):
                yield
        except TimeoutError:
            raise timed_out(what) from None


def closed_error() -> ClosedError:
    """Return the error of a producer that is not open."""
    return ClosedError("the producer is not open: use it inside `async with`")
