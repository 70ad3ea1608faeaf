"""One topic as a producer sees it: its queues, their links, and what its messages look like."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ternmq_client.instance import ClientInstance
from ternmq_model.errors import TernError, Unreachable, refusal
from ternmq_model.message import NO_KEYS, Message
from ternmq_model.queue import MessageQueue
from ternmq_model.record import BODY_BYTES_MAX
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import Permission, TopicRoute
from ternmq_producer.config import ProducerConfig
from ternmq_producer.pending import RECORD_EXTRA_BYTES
from ternmq_producer.queue_picker import QueuePicker

if TYPE_CHECKING:
    from ternmq_producer.broker_link import BrokerLink

_TAGS_REMEMBERED_MAX: Final = 1024
_MASTER_WAIT: Final = 0.8
"""How much of the send timeout a send waits for any broker of its topic to have a master: what is
left is for the answer, which says more than that there was no time left."""

_MASTER_PAUSE_S: Final = 0.25


class Target(QueuePicker):
    """One topic: its queues and the links that lead to them. Owned by the producer."""

    def __init__(self, topic: str, queues: Sequence[MessageQueue], start: int) -> None:
        super().__init__(queues, start=start)
        self.topic = topic.encode()
        self.overhead_bytes = RECORD_EXTRA_BYTES + len(self.topic)
        self.links: list[BrokerLink] = []
        """The link of each queue."""

        self._properties_by_tag: dict[str, bytes] = {}

    @property
    def is_reachable(self) -> bool:
        """Whether any broker of the topic can be reached, as far as known."""
        return any(not link.is_away for link in self.links)

    def check_reachable(self) -> None:
        """Raise `Unreachable` where nothing can be sent now."""
        if not self.is_reachable:
            topic = self.topic.decode()
            raise Unreachable(f"topic {topic}: none of its brokers can be reached at present")

    def properties_of(self, message: Message) -> bytes:
        """Check `message`, which is for this topic, and return its properties, encoded.

        Most messages have a tag and nothing else, and there are few tags: those are remembered.

        Raises:
            IllegalMessage: It breaks a limit.
        """
        body = message.body
        tags = message.tags
        if (
            body.__class__ is not bytes
            or tags.__class__ is not str
            or message.flag.__class__ is not int
            or message.flag
            or message.properties.__class__ is not dict
            or message.properties
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


async def queues_to_write(
    client: ClientInstance, config: ProducerConfig, topic: str
) -> Sequence[MessageQueue]:
    """Return the queues of `topic` to send to, asking for its route at need.

    While none of its brokers has a master the route is asked again and again, for most of the send
    timeout: a master may be about to return, or a slave about to be promoted.

    Raises:
        TernError: There is no route, nobody to ask, or nothing that can be written.
    """
    end_ms = client.env.clock.monotonic_ms() + int(config.send_timeout_s * 1000 * _MASTER_WAIT)
    while True:
        route = await client.routes.route_to_write(
            topic,
            template=config.template_topic if config.creates_topics else None,
            queues_max=config.topic_queues,
        )
        if queues := route.write_queues():
            return queues
        error = no_queues(route)
        if (
            config.fail_fast
            or not isinstance(error, Unreachable)
            or client.env.clock.monotonic_ms() >= end_ms
        ):
            raise error
        client.ask_route_again(topic)
        await asyncio.sleep(_MASTER_PAUSE_S)


def no_queues(route: TopicRoute) -> TernError:
    """Return why nothing can be sent to a topic that exists."""
    if any(Permission.WRITE in data.permissions and data.write_queues for data in route.queues):
        return Unreachable(f"topic {route.topic}: none of its brokers has a master at present")
    return refusal(ResponseCode.NO_PERMISSION, f"topic {route.topic}: may not be written")
