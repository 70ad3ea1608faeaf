"""One topic as a producer sees it: its queues, their links, and what its messages look like."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ternmq_model.errors import IllegalMessage, TernError, Unreachable, refusal
from ternmq_model.message import Message
from ternmq_model.queue import MessageQueue
from ternmq_model.record import BODY_BYTES_MAX
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import Permission, TopicRoute
from ternmq_producer.pending import RECORD_EXTRA_BYTES
from ternmq_producer.queue_picker import QueuePicker

if TYPE_CHECKING:
    from ternmq_producer.broker_link import BrokerLink

_TAGS_REMEMBERED_MAX: Final = 1024


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


def no_queues(route: TopicRoute) -> TernError:
    """Return why nothing can be sent to a topic that exists."""
    if any(Permission.WRITE in data.permissions and data.write_queues for data in route.queues):
        return Unreachable(f"topic {route.topic}: none of its brokers has a master at present")
    return refusal(ResponseCode.NO_PERMISSION, f"topic {route.topic}: may not be written")
