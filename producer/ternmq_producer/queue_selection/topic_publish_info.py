"""Publish info of a topic: its queues, their links, and the properties of its messages.

Source: RocketMQ `TopicPublishInfo`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from ternmq_client.instance import ClientInstance
from ternmq_client.single_flight import SingleFlight
from ternmq_model.arrays import Ints
from ternmq_model.byte_column import ByteColumn
from ternmq_model.errors import TernError, Unreachable, refusal
from ternmq_model.message import NO_KEYS, NO_PROPERTIES, Message
from ternmq_model.properties import java_hash
from ternmq_model.queue import MessageQueue
from ternmq_model.record.format import BODY_BYTES_MAX
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import Permission, TopicRoute
from ternmq_producer.batch.pending_send import RECORD_EXTRA_BYTES
from ternmq_producer.batch.send_errors import renewed, timed_out
from ternmq_producer.config import ProducerConfig

if TYPE_CHECKING:
    from ternmq_producer.send_stream.broker_link import BrokerLink

_KEYS_REMEMBERED_MAX: Final = 65_536
"""Hashes of sharding keys in memory; hashing one takes as long as encoding its message."""

_TAGS_REMEMBERED_MAX: Final = 1024
_MASTER_PAUSE_S: Final = 0.25


class TopicPublishInfo:
    """Queues of one topic, the round over them, and their links. Owned by the producer.

    Args:
        topic: Name of the topic.
        queues: Queues, at least one, sorted: so all producers map a key to the same queue.
        start: First queue of the round. Random, or all producers would begin at the first broker.
    """

    def __init__(self, topic: str, queues: Sequence[MessageQueue], start: int) -> None:
        self.topic = topic.encode()
        self.overhead_bytes = RECORD_EXTRA_BYTES + len(self.topic)
        self.queues = tuple(queues)
        self.links: list[BrokerLink] = []
        """Link of each queue."""

        self._count = len(self.queues)
        self._next_index = start % self._count
        self._index_by_key: dict[str, int] = {}
        self._properties_by_tag: dict[str, bytes] = {}

    def next(self) -> int:
        """Return the index of the next queue of the round."""
        index = self._next_index
        self._next_index = index + 1 if index + 1 < self._count else 0
        return index

    def next_where(self, is_fit: Callable[[MessageQueue], bool]) -> int:
        """Return the index of the next fit queue of the round, or of the next one if none is fit.

        Source:
            RocketMQ `TopicPublishInfo.selectOneMessageQueue`.
        """
        for _ in range(self._count):
            index = self.next()
            if is_fit(self.queues[index]):
                return index
        return self.next()

    def skip(self, count: int) -> int:
        """Return the index of the next queue, and advance the round by `count` messages."""
        index = self._next_index
        self._next_index = (index + count) % self._count
        return index

    def index_of_key(self, sharding_key: str) -> int:
        """Return the index of the queue of `sharding_key`.

        Source:
            RocketMQ `SelectMessageQueueByHash`.
        """
        index = self._index_by_key.get(sharding_key)
        if index is None:
            if len(self._index_by_key) >= _KEYS_REMEMBERED_MAX:
                self._index_by_key.clear()
            index = abs(java_hash(sharding_key)) % self._count
            self._index_by_key[sharding_key] = index
        return index

    @property
    def is_reachable(self) -> bool:
        """True while a broker of the topic could be reached at the last attempt."""
        return any(not link.is_away for link in self.links)

    def check_reachable(self) -> None:
        """Raise `Unreachable` when no broker of the topic can be reached."""
        if not self.is_reachable:
            topic = self.topic.decode()
            raise Unreachable(f"topic {topic}: none of its brokers can be reached at present")

    def properties_of(self, message: Message) -> bytes:
        """Check `message`, which is for this topic, and return its properties, encoded.

        Most messages have a tag and nothing else, and there are few tags: their properties are
        cached.

        Raises:
            IllegalMessage: The message breaks a limit.
        """
        body = message.body
        tags = message.tags
        if (
            body.__class__ is not bytes
            or tags.__class__ is not str
            or message.flag.__class__ is not int
            or message.flag
            or message.properties is not NO_PROPERTIES
            or message.keys is not NO_KEYS
            or message.sharding_key
            or message.delay_level
            or message.deliver_at_ms
            or message.deliver_after_ms
            or message.cancels
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

    def encoded(self, messages: Sequence[Message]) -> tuple[ByteColumn, Ints]:
        """Return the properties of each message, encoded, and the most bytes of its record.

        Raises:
            IllegalMessage: A message breaks a limit.
        """
        properties = ByteColumn.listed([self.properties_of(message) for message in messages])
        body_bytes = [len(message.body) for message in messages]
        return properties, properties.sizes + np.array(body_bytes) + self.overhead_bytes


class QueueFinder:
    """Finder of the queues of topics, once for all sends that wait for the same topic.

    While no broker of a topic has a master, its route is asked again as long as a send waits: a
    master may return, or a slave may be promoted. Owned by one producer.
    """

    def __init__(self, client: ClientInstance, config: ProducerConfig) -> None:
        self._client = client
        self._config = config
        self._asking = SingleFlight[str, Sequence[MessageQueue]](client.tasks)
        self._waiting = Counter[str]()
        self._reasons: dict[str, TernError] = {}
        """Errors that prevent sends at present, by topic."""

    async def find(self, topic: str, deadline_ms: int) -> Sequence[MessageQueue]:
        """Return the queues of `topic` to send to, asking for its route when it is unknown.

        Cancelling is safe: the request goes on for other callers.

        Raises:
            TernError: The topic has no route or no queue to write to, no NameServer answers, or no
                master came before `deadline_ms`.
            RequestTimedOut: No answer came before `deadline_ms`.
        """
        left_ms = deadline_ms - self._client.env.clock.monotonic_ms()
        self._waiting[topic] += 1
        try:
            async with self._client.env.timers.timeout(max(0, left_ms) / 1000):
                while not (queues := await self._asking.run(topic, lambda: self._ask(topic))):
                    pass  # the request ended because no caller waited
            return queues
        except TimeoutError:
            if (reason := self._reasons.get(topic)) is None:
                raise timed_out("its topic's route") from None
            raise renewed(reason, may_have_happened=False) from None
        finally:
            self._waiting[topic] -= 1

    async def _ask(self, topic: str) -> Sequence[MessageQueue]:
        """Return the queues of `topic` once there are some; none when no caller waits."""
        client, config = self._client, self._config
        try:
            while self._waiting[topic]:
                route = await client.routes.route_to_write(
                    topic,
                    template=config.template_topic if config.creates_topics else None,
                    queues_max=config.topic_queues,
                )
                if queues := route.write_queues():
                    return queues
                error = no_queues(route)
                if config.fail_fast or not isinstance(error, Unreachable):
                    raise error
                self._reasons[topic] = error
                client.ask_route_again(topic)
                await client.env.timers.sleep(_MASTER_PAUSE_S)
            return ()
        finally:
            self._reasons.pop(topic, None)
            if not self._waiting[topic]:
                del self._waiting[topic]


def no_queues(route: TopicRoute) -> TernError:
    """Return the error of sends to a topic that exists and has no queue to write to."""
    if any(Permission.WRITE in data.permissions and data.write_queues for data in route.queues):
        return Unreachable(f"topic {route.topic}: none of its brokers has a master at present")
    return refusal(ResponseCode.NO_PERMISSION, f"topic {route.topic}: may not be written")
