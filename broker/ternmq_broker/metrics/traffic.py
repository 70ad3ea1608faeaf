"""Metrics of messages in and out, and of dead letters."""

from itertools import accumulate

from ternmq_broker.environment import BrokerEnvironment
from ternmq_broker.metrics.families import (
    DEAD_LETTERS,
    MESSAGE_SIZE,
    MESSAGES_IN,
    MESSAGES_OUT,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    UNANSWERED_BYTES,
)
from ternmq_model.names import (
    CHECK_MAX_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    SCHEDULE_TOPIC,
    WHEEL_TOPIC,
    is_system_group,
    is_system_topic,
)
from ternmq_runtime.metrics.port import Scrape
from ternmq_runtime.metrics.scrape import LabelValues

_TYPES = {
    SCHEDULE_TOPIC: "delay",
    WHEEL_TOPIC: "delay",
    HALF_TOPIC: "transaction",
    OP_TOPIC: "transaction",
    CHECK_MAX_TOPIC: "transaction",
}


async def collect_traffic(scrape: Scrape, node: LabelValues, env: BrokerEnvironment) -> None:
    """Add the counts of messages that were stored and got since the begin of the term."""
    counted = env.statistics
    for topic, put in list(env.store.statistics.topics.items()):
        values = (*node, topic, message_type(topic, env.tables.topics.message_type(topic)))
        values += (flag(is_system_topic(topic)),)
        scrape.add(MESSAGES_IN, values, put.messages)
        scrape.add(THROUGHPUT_IN, values, put.bytes)
        if sizes := counted.sizes.get(topic):
            scrape.add_histogram(MESSAGE_SIZE, values, [*accumulate(sizes), put.bytes])
        await scrape.rest()
    for (topic, group), reads in list(counted.groups.items()):
        values = _reader(node, group, topic)
        scrape.add(MESSAGES_OUT, values, reads.messages)
        scrape.add(THROUGHPUT_OUT, values, reads.bytes)
        await scrape.rest()
    for (topic, group), dead in list(counted.dead_letters.items()):
        scrape.add(DEAD_LETTERS, _reader(node, group, topic), dead.messages)
        await scrape.rest()
    scrape.add(UNANSWERED_BYTES, node, env.admission.bytes)


def message_type(topic: str, attribute: str) -> str:
    """Return the label of a topic's messages. Pure.

    Args:
        topic: Name; delayed and half messages lie in topics of the broker.
        attribute: `message.type` of the topic, as RocketMQ writes it; empty without it.
    """
    return _TYPES.get(topic) or attribute.lower() or "normal"


def flag(value: bool) -> str:
    """Return a truth value as the text of a label. Pure."""
    return "true" if value else "false"


def is_system(group: str, topic: str) -> str:
    """Return the label of a group in a topic, one of which may be the broker's own. Pure."""
    return flag(is_system_topic(topic) or is_system_group(group))


def _reader(node: LabelValues, group: str, topic: str) -> LabelValues:
    return (*node, group, topic, is_system(group, topic))
