"""Topics with messages in the log and without an entry in the table.

The log of a slave equals its master's up to the last confirmed byte, but its tables may be a second
older. After the loss of the master, a topic of that second has messages at the slave and no entry.
"""

import logging
from collections.abc import Iterable, Sequence

from ternmq_broker.state.topics import TopicTable
from ternmq_model.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, is_system_topic
from ternmq_model.route import TopicConfig

logger = logging.getLogger(__name__)

_OF_GROUPS = (RETRY_PREFIX, DEAD_LETTER_PREFIX)


def found_topics(queues: Iterable[tuple[str, int]], known: Iterable[str]) -> Sequence[TopicConfig]:
    """Return the topics with queues in the store that the table lacks.

    Topics of the broker itself need no entry.

    Args:
        queues: Topic and id of every queue of the store.
        known: Topics of the table.
    """
    counts: dict[str, int] = {}
    for topic, queue_id in queues:
        counts[topic] = max(counts.get(topic, 0), queue_id + 1)
    for topic in known:
        counts.pop(topic, None)
    return [
        TopicConfig(topic, count, count)
        for topic, count in sorted(counts.items())
        if topic.startswith(_OF_GROUPS) or not is_system_topic(topic)
    ]


def put_found_topics(topics: TopicTable, queues: Iterable[tuple[str, int]], *, now_ms: int) -> None:
    """Add every topic with queues in the store to a table.

    Raises:
        RefusedError: The table is full; it has the topics before the refused one.
    """
    for config in found_topics(queues, [each.topic for each in topics]):
        topics.put(config, now_ms=now_ms, is_found=True)
        logger.warning(
            "topic found in the log topic=%s queues=%s", config.topic, config.write_queues
        )
