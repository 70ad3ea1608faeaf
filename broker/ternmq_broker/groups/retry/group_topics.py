"""Topics of a group: its retry topic and its dead-letter topic."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from ternmq_broker.state.topics import TopicTable
from ternmq_model.clock import Clock
from ternmq_model.errors import refusal
from ternmq_model.group_settings import GroupSettings
from ternmq_model.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import Permission, TopicConfig

logger = logging.getLogger(__name__)


def retry_topic(group: str) -> str:
    """Return the name of the topic with the messages that a group consumes again."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Return the name of the topic with a group's dead letters."""
    return DEAD_LETTER_PREFIX + group


@dataclass(frozen=True, slots=True)
class GroupTopics:
    """Retry and dead-letter topics of groups, created when they are needed. Owns nothing.

    Args:
        on_created: Called after each new topic; messages in it may be acknowledged only when the
            table is saved.
        is_slave: True at a slave, which creates no topics.
    """

    topics: TopicTable
    clock: Clock
    on_created: Callable[[], None]
    is_slave: bool = False

    def retry(self, group: GroupSettings) -> TopicConfig:
        """Return the group's retry topic, with at least the queues of the group's settings.

        Raises:
            RefusedError: The topic may not be written, or no more topics fit.
        """
        return self._topic(retry_topic(group.group), group.retry_queues)

    def dead_letters(self, group: str) -> TopicConfig:
        """Return the topic of the group's dead letters.

        Raises:
            RefusedError: The topic may not be written, or no more topics fit.
        """
        return self._topic(dead_letter_topic(group), 1)

    def _topic(self, topic: str, queues: int) -> TopicConfig:
        known = self.topics.get(topic)
        if known is not None and Permission.WRITE not in known.permissions:
            remark = f"topic {topic!r} may not be written ({known.permissions.text})"
            raise refusal(ResponseCode.NO_PERMISSION, remark)
        if known is not None and min(known.read_queues, known.write_queues) >= queues:
            return known
        if self.is_slave:
            remark = f"topic {topic!r} is created by the master, not by slaves"
            raise refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
        config = TopicConfig(topic, queues, queues)
        if known is not None:
            config = TopicConfig(
                topic,
                max(queues, known.read_queues),
                max(queues, known.write_queues),
                known.permissions,
                known.sys_flag,
                known.ordered,
                known.retention_ms,
            )
        self.topics.put(config, now_ms=self.clock.wall_ms())
        logger.info("topic created topic=%s queues=%s by=%s", topic, queues, "group")
        self.on_created()
        return config
