"""Where a record goes that has waited. Pure.

Source: RocketMQ `ScheduleMessageService.messageTimeUp`, `TimerMessageStore.convertMessage`.
"""

from collections.abc import Callable
from dataclasses import replace

from ternmq_broker.storage.internal_record import InternalRecord
from ternmq_model.errors import IllegalName, RefusedError
from ternmq_model.names import is_send_forbidden
from ternmq_model.properties import REAL_QUEUE_ID, REAL_TOPIC
from ternmq_model.route import TopicConfig


class Undeliverable(Exception):
    """A record that has no place to go to, and why."""


def at_real_place(
    record: InternalRecord, find: Callable[[str, int], TopicConfig | None]
) -> InternalRecord:
    """Return the record as it is to be stored in its own queue.

    Its properties stay, those that told of the wait among them. If the topic has fewer queues by
    now, it goes to one of those.

    Args:
        record: As it waited.
        find: Returns a topic that should have that queue, None when there is none.

    Raises:
        Undeliverable: It names no queue; or its topic was deleted, and its messages with it; or
            belongs to the broker.
    """
    topic, number = record.properties.get(REAL_TOPIC, ""), record.properties.get(REAL_QUEUE_ID, "")
    if not topic or not number.isascii() or not number.isdigit() or len(number) > 9:
        raise Undeliverable(f"it names no queue: {topic[:140]!r} {number[:20]!r}")
    if is_send_forbidden(topic):
        raise Undeliverable(f"topic {topic!r} belongs to the broker")
    queue_id = int(number)
    try:
        config = find(topic, queue_id)
    except (IllegalName, RefusedError) as error:
        raise Undeliverable(f"topic {topic[:140]!r} cannot be: {error}") from None
    queues = 0 if config is None else max(config.read_queues, config.write_queues)
    if not queues:
        raise Undeliverable(f"topic {topic[:140]!r} was deleted")
    return replace(
        record, topic=topic, queue_id=queue_id if queue_id < queues else queue_id % queues
    )
