"""Partition of many messages of one topic among its queues. Pure."""

from collections.abc import Sequence

from ternmq_model.message import Message
from ternmq_model.queue import MessageQueue
from ternmq_producer.batch.bulk import Bulk, BulkSlice


def partition(
    bulk: Bulk,
    turns: Sequence[MessageQueue],
    part: Sequence[Message],
    bodies: Sequence[bytes],
    properties: Sequence[bytes],
    record_bytes: Sequence[int],
    *,
    start: int,
    started_ms: int,
    deadline_ms: int,
    sys_flags: Sequence[int] | None = None,
) -> list[tuple[str, BulkSlice]]:
    """Give the messages of `part` to the queues in turn; return a slice for each broker.

    Args:
        bulk: Takes the answers.
        turns: Queues of the topic, the one for the first message first.
        part: Messages of that topic, without sharding keys.
        bodies: Of each, compressed where they are to be.
        properties: Of each, encoded.
        record_bytes: Of each, at most.
        start: Its place in `bulk`.
        started_ms: When they were sent; monotonic time.
        deadline_ms: Monotonic time.
        sys_flags: Compression bits of each; None = none is compressed.

    Returns:
        Each slice with the name of its broker.
    """
    count = len(part)
    chosen = list((tuple(turns) * (count // len(turns) + 1))[:count])
    topic = part[0].topic.encode()
    brokers = dict.fromkeys(queue.broker_name for queue in turns)
    if len(brokers) == 1:
        single = BulkSlice(
            bulk,
            topic,
            range(start, start + count),
            list(bodies),
            list(properties),
            [message.flag for message in part],
            chosen,
            list(record_bytes),
            started_ms,
            deadline_ms,
            None if sys_flags is None else list(sys_flags),
        )
        return [(turns[0].broker_name, single)]
    slices: list[tuple[str, BulkSlice]] = []
    for broker_name in brokers:
        mine = [index for index, queue in enumerate(chosen) if queue.broker_name == broker_name]
        if not mine:
            continue
        one = BulkSlice(
            bulk,
            topic,
            [start + index for index in mine],
            [bodies[index] for index in mine],
            [properties[index] for index in mine],
            [part[index].flag for index in mine],
            [chosen[index] for index in mine],
            [record_bytes[index] for index in mine],
            started_ms,
            deadline_ms,
            None if sys_flags is None else [sys_flags[index] for index in mine],
        )
        slices.append((broker_name, one))
    return slices
