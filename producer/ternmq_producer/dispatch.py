"""Which queue and broker each message goes to, and handing it over to that broker's link."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from ternmq_client.instance import ClientInstance
from ternmq_model.errors import (
    ClosedError,
    IllegalMessage,
    IllegalName,
    RequestTimedOut,
    TernError,
    Unreachable,
    UsageError,
    refusal,
)
from ternmq_model.message import Message
from ternmq_model.message_id import UniqueKeys
from ternmq_model.names import check_topic, is_send_forbidden
from ternmq_model.queue import MessageQueue
from ternmq_model.record import BODY_BYTES_MAX
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import Permission, TopicRoute
from ternmq_producer.broker_link import BrokerLink
from ternmq_producer.buffer import Buffer
from ternmq_producer.bulk import Bulk, BulkSlot
from ternmq_producer.config import ProducerConfig
from ternmq_producer.pending import RECORD_EXTRA_BYTES, Pending, Sink, renewed
from ternmq_producer.queue_picker import QueuePicker
from ternmq_producer.spread import spread

QueueSelector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Chooses the queue of a message among those of its topic, which come sorted."""

_TAGS_REMEMBERED_MAX: Final = 1024

_PART_BYTES_MAX: Final = 4 << 20
"""Messages that are larger together are taken one by one, as the buffer finds room."""


class Target(QueuePicker):
    """One topic: its queues and the links that lead to them. Owned by the producer."""

    def __init__(self, topic: str, queues: Sequence[MessageQueue], start: int) -> None:
        super().__init__(queues, start=start)
        self.topic = topic.encode()
        self.overhead_bytes = RECORD_EXTRA_BYTES + len(self.topic)
        self.links: list[BrokerLink] = []
        """The link of each queue."""

        self._properties_by_tag: dict[str, bytes] = {}

    def properties_of(self, message: Message) -> bytes:
        """Check `message`, which is for this topic, and return its properties, encoded.

        Most messages have a tag and nothing else, and there are few tags: those are remembered.

        Raises:
            IllegalMessage: It breaks a limit.
        """
        body = message.body
        tags = message.tags
        if body.__class__ is not bytes or tags.__class__ is not str or message.flag:
            check_fields(message)
        if (
            message.properties
            or message.keys
            or message.sharding_key
            or message.delay_level
            or message.deliver_at_ms
            or message.deliver_after_ms
            or len(body) > BODY_BYTES_MAX
            or message.__class__ is not Message
        ):
            return message.encoded_properties()
        properties = self._properties_by_tag.get(tags)
        if properties is None:
            properties = message.encoded_properties()
            if len(self._properties_by_tag) < _TAGS_REMEMBERED_MAX:
                self._properties_by_tag[tags] = properties
        return properties


def check_fields(message: Message) -> None:
    """Refuse what a record cannot hold.

    Raises:
        IllegalMessage: The body is not `bytes`, the tag is not one string, or the flag does not
            fit into 32 bits.
    """
    if message.body.__class__ is not bytes:  # whoever does not check types learns it here
        kind = type(message.body).__name__
        raise IllegalMessage(f"message for {message.topic!r}: body is {kind}, must be bytes")
    if message.tags.__class__ is not str:
        raise IllegalMessage(f"message for {message.topic!r}: tags is one tag, as a string")
    if not -(1 << 31) <= message.flag < 1 << 31:
        raise IllegalMessage(f"message for {message.topic!r}: flag {message.flag} is not 32 bits")


class Dispatch:
    """Everything of a producer that is open: topics, links, memory. Owned by it.

    Args:
        group: Name of the producer group.
        config: How to send.
        client: Open.
    """

    def __init__(self, group: str, config: ProducerConfig, client: ClientInstance) -> None:
        self.group = group
        self.config = config
        self.client = client
        self.buffer = Buffer(config.buffer_bytes)
        self.incarnation = f"{client.env.random.getrandbits(64):016x}"
        """Tells this producer's streams from those of any other with its client id."""

        self.is_open = True
        """Takes messages."""

        self._targets: dict[str, Target] = {}
        self._links: dict[str, BrokerLink] = {}
        self._keys: UniqueKeys | None = None
        self._clock = client.env.clock
        self._loop = asyncio.get_running_loop()
        client.routes.add_listener(self._on_route)

    def close(self) -> None:
        """Take no more messages. Those under way go on."""
        self.is_open = False
        self._targets.clear()

    def abandon(self) -> None:
        """Answer everything that still has no answer: the producer waits no more."""
        error = ClosedError("the producer was closed before the answer came")
        links, self._links = self._links, {}
        for link in links.values():
            link.fail_all(error)

    def unique_keys(self, born_host: bytes) -> UniqueKeys:
        """Return the maker of this producer's keys.

        Args:
            born_host: This client's address as a broker sees it, with its port. The first one
                goes into all keys.
        """
        if self._keys is None:
            self._keys = UniqueKeys(
                address=born_host[:-4],
                process_id=os.getpid(),
                salt=self.client.env.random.getrandbits(32),
            )
        return self._keys

    def dispatch_again(self, pending: Sequence[Pending], *, avoid: str, delay_s: float) -> None:
        """Send messages again that broker `avoid` did not take. Called by its link.

        Args:
            pending: None of them is ordered.
            avoid: Another broker's queues come first.
            delay_s: How long to wait if there are only queues of `avoid`.
        """
        resting: list[Pending] = []
        for one in pending:
            target = self._targets.get(one.topic.decode())
            if target is not None:
                one.queue = target.queues[
                    target.next_where(lambda queue: self._is_better(queue, avoid))
                ]
            if one.queue.broker_name == avoid and delay_s:
                resting.append(one)
            else:
                self.link(one.queue.broker_name).add(one)
        if resting:
            self._loop.call_later(delay_s, self._dispatch_rested, resting)

    def _dispatch_rested(self, pending: list[Pending]) -> None:
        for one in pending:
            if self._links:
                self.link(one.queue.broker_name).add(one)
            else:
                self.buffer.give_back(one.record_bytes)
                if not one.sink.done():
                    one.sink.set_exception(ClosedError("the producer was closed"))

    def _is_better(self, queue: MessageQueue, avoid: str) -> bool:
        link = self._links.get(queue.broker_name)
        return queue.broker_name != avoid and (link is None or not link.is_down)

    def place_now(
        self,
        sink: Sink,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        started_ms: int,
        deadline_ms: int,
    ) -> bool:
        """Hand `message` to its link; False when that must wait for a route or for room."""
        target = self._targets.get(message.topic)
        if target is None:
            return False
        properties = target.properties_of(message)
        size = target.overhead_bytes + len(message.body) + len(properties)
        if not self.buffer.take_now(size):
            return False
        self._hand_over(
            sink, message, target, properties, size, queue, selector, started_ms, deadline_ms
        )
        return True

    async def place(
        self,
        sink: Sink,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        started_ms: int,
        deadline_ms: int,
    ) -> None:
        """Hand `message` to its link as soon as there is a route and room."""
        message.encoded_properties()  # an illegal message fails without asking anybody
        async with self._until(deadline_ms, "its topic's route"):
            target = await self._target(message.topic)
        properties = target.properties_of(message)
        size = target.overhead_bytes + len(message.body) + len(properties)
        async with self._until(deadline_ms, "room in the buffer"):
            await self.buffer.take(size)
        self._hand_over(
            sink, message, target, properties, size, queue, selector, started_ms, deadline_ms
        )

    def _hand_over(
        self,
        sink: Sink,
        message: Message,
        target: Target,
        properties: bytes,
        size: int,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        started_ms: int,
        deadline_ms: int,
    ) -> None:
        """Choose the queue and give the message to its link; give `size` back on an error."""
        is_ordered = True
        if queue is None and selector is None:
            if message.sharding_key:
                index = target.index_of_key(message.sharding_key)
            else:
                is_ordered = False
                index = self._next_index(target)
            queue = target.queues[index]
            link = target.links[index]
        else:
            try:
                queue = self._chosen(message, target, queue, selector)
                link = self.link(queue.broker_name)
            except BaseException:
                self.buffer.give_back(size)
                raise
        link.add(
            Pending(
                sink,
                message,
                target.topic,
                properties,
                queue,
                is_ordered,
                size,
                started_ms,
                deadline_ms,
            )
        )

    def _chosen(
        self,
        message: Message,
        target: Target,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
    ) -> MessageQueue:
        """Return the queue that the caller chose."""
        if selector is not None:
            queue = selector(target.queues, message)
        assert queue is not None, "given or selected"
        if queue.topic != message.topic or not 0 <= queue.queue_id < 1 << 31:
            raise UsageError(f"a message for {message.topic!r} cannot go to {queue}")
        return queue

    def _next_index(self, target: Target) -> int:
        """Return the next queue of the round, best one whose broker is not down."""
        index = target.next()
        if target.links[index].is_down:
            return target.next_where(lambda queue: self._is_better(queue, ""))
        return index

    async def place_part(
        self, bulk: Bulk, part: Sequence[Message], start: int, timeout_ms: int
    ) -> None:
        """Hand `part`, which begins at message `start`, to its links once there is room.

        What goes wrong is the answer to the messages concerned.
        """
        now_ms = self._clock.monotonic_ms()
        plain = await self._plain(part, now_ms + timeout_ms)
        if plain is None:
            for index, message in enumerate(part, start):
                slot = BulkSlot(bulk, index)
                end_ms = now_ms + timeout_ms
                try:
                    if not self.place_now(slot, message, None, None, now_ms, end_ms):
                        now_ms = self._clock.monotonic_ms()
                        end_ms = now_ms + timeout_ms
                        await self.place(slot, message, None, None, now_ms, end_ms)
                except TernError as error:
                    slot.set_exception(error)
            return
        target, properties, sizes = plain
        try:
            async with self._until(now_ms + timeout_ms, "room in the buffer"):
                await self.buffer.take(sum(sizes))
        except RequestTimedOut as error:
            for index in range(start, start + len(part)):
                bulk.put(index, renewed(error, may_have_happened=False))
            return
        now_ms = self._clock.monotonic_ms()
        slices = spread(
            bulk,
            target,
            part,
            properties,
            sizes,
            first=self._next_index(target),
            start=start,
            started_ms=now_ms,
            deadline_ms=now_ms + timeout_ms,
        )
        target.skip(len(part) - 1)
        for index, one in slices:
            target.links[index].add_slice(one)

    async def _plain(
        self, part: Sequence[Message], deadline_ms: int
    ) -> tuple[Target, list[bytes], list[int]] | None:
        """Return what the fast road needs; None when some of `part` is not for it.

        That is: another topic, a sharding key, an illegal message, far too many bytes, no route.
        """
        topic = part[0].topic
        for message in part:
            if message.sharding_key or message.topic != topic:
                return None
        try:
            target = self._targets.get(topic)
            if target is None:
                async with self._until(deadline_ms, "its topic's route"):
                    target = await self._target(topic)
            properties_of = target.properties_of
            properties = [properties_of(message) for message in part]
        except TernError:
            return None
        overhead = target.overhead_bytes
        sizes = [
            overhead + len(message.body) + len(some)
            for message, some in zip(part, properties, strict=True)
        ]
        return None if sum(sizes) > _PART_BYTES_MAX else (target, properties, sizes)

    async def _target(self, topic: str) -> Target:
        """Return the queues of `topic` with their links, asking for its route at need."""
        target = self._targets.get(topic)
        if target is not None:
            return target
        check_topic(topic)
        if is_send_forbidden(topic):
            raise IllegalName("topic", topic, "brokers alone write to it")
        config = self.config
        route = await self.client.routes.route_to_write(
            topic,
            template=config.template_topic if config.creates_topics else None,
            queues_max=config.topic_queues,
        )
        if not self.is_open:
            raise closed_error()
        queues = route.write_queues()
        if not queues:
            raise _no_queues(route)
        target = Target(topic, queues, self.client.env.random.getrandbits(31))
        target.links = [self.link(queue.broker_name) for queue in queues]
        self._targets[topic] = target
        return target

    def link(self, broker_name: str) -> BrokerLink:
        """Return the way to `broker_name`, made at the first need."""
        link = self._links.get(broker_name)
        if link is None:
            link = self._links[broker_name] = BrokerLink(broker_name, self)
            self.client.tasks.spawn(link.run(), f"send to {broker_name}")
        return link

    def _on_route(self, topic: str) -> None:
        """Look at the queues of `topic` anew: its route has changed."""
        self._targets.pop(topic, None)

    @asynccontextmanager
    async def _until(self, deadline_ms: int, what: str) -> AsyncGenerator[None]:
        """Limit the block, in which nothing is sent yet, to the time before `deadline_ms`."""
        try:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            async with asyncio.timeout(max(0, left_ms) / 1000):
                yield
        except TimeoutError:
            error = RequestTimedOut(f"not sent: timed out while waiting for {what}")
            error.may_have_happened = False
            raise error from None


def closed_error() -> ClosedError:
    """Return what a producer raises that is not open."""
    return ClosedError("the producer is not open: use it inside `async with`")


def _no_queues(route: TopicRoute) -> TernError:
    """Return why nothing can be sent to a topic that exists."""
    if any(Permission.WRITE in data.permissions and data.write_queues for data in route.queues):
        return Unreachable(f"topic {route.topic}: none of its brokers has a master at present")
    return refusal(ResponseCode.NO_PERMISSION, f"topic {route.topic}: may not be written")
