"""Copies for the group's retry topic of messages whose records are deleted.

A broker keeps records for some days, and a message can fail for a longer time. The consumer then
has the only copy of the message.

Source: RocketMQ `DefaultMQPushConsumerImpl.sendMessageBackAsNormalMessage`.
"""

import logging
from collections.abc import Mapping
from typing import Final

from ternmq_client.internal_producer import InternalProducer
from ternmq_consumer.consume_status import DEAD_LETTER, DELAY_LEVEL_MAX
from ternmq_model import properties as names
from ternmq_model.errors import TernError
from ternmq_model.message import SendStatus
from ternmq_model.names import RETRY_PREFIX
from ternmq_model.record.format import FLAG_COMPRESSION_MASK
from ternmq_model.stored_message import StoredMessage

logger = logging.getLogger(__name__)

_FIRST_LEVEL: Final = 3

_NOT_COPIED: Final = (
    names.BROKERS_OWN
    | names.ROUTING
    | {names.REGION, names.TRACE_ON, names.CLUSTER, names.WAIT, names.MAX_RECONSUME_TIMES}
)
"""Properties that the broker adds again, or that would change the meaning of the copy."""


def copy_properties(message: StoredMessage, level: int, *, retries_max: int) -> Mapping[str, str]:
    """Return the properties of a copy that the broker treats like a message sent back. Pure.

    Args:
        message: Message that the listener got.
        level: Delay level, as in `ReconsumeLater.delay_level`.
        retries_max: Retries before the message is a dead letter; −1 = the group's setting.
    """
    tried = message.reconsume_times
    copied = {name: value for name, value in message.properties.items() if name not in _NOT_COPIED}
    copied[names.RETRY_TOPIC] = message.topic
    copied.setdefault(names.ORIGIN_MESSAGE_ID, message.offset_message_id)
    copied[names.RECONSUME_TIME] = str(tried + 1)
    if level == DEAD_LETTER:
        copied[names.MAX_RECONSUME_TIMES] = "0"
        return copied
    if retries_max >= 0:
        copied[names.MAX_RECONSUME_TIMES] = str(retries_max)
    copied[names.DELAY] = str(level or min(_FIRST_LEVEL + tried, DELAY_LEVEL_MAX))
    return copied


class RetryCopies:
    """Sends copies to the retry topic. It has no state.

    Args:
        timeout_s: Timeout of each send, s.
        retries_max: Retries before a message is a dead letter; −1 = the group's setting.
    """

    def __init__(
        self, path: InternalProducer, *, group: str, timeout_s: float, retries_max: int
    ) -> None:
        self._path = path
        self._group = group
        self._timeout_s = timeout_s
        self._retries_max = retries_max

    async def send(self, message: StoredMessage, level: int) -> bool:
        """Send a copy of `message` to its broker. Return whether the broker stored it."""
        try:
            result = await self._path.send(
                RETRY_PREFIX + self._group,
                message.stored_body,
                copy_properties(message, level, retries_max=self._retries_max),
                broker_name=message.queue.broker_name,
                timeout_s=self._timeout_s,
                flag=message.flag,
                sys_flag=message.sys_flag & FLAG_COMPRESSION_MASK,
                born_at_ms=message.born_at_ms,
            )
        except TernError as error:
            logger.warning("retry copy not sent message_id=%s err=%s", message.message_id, error)
            return False
        return result.status is SendStatus.SEND_OK
