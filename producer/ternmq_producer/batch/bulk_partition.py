"""Partition of many messages of one topic among its queues. Pure."""

from collections.abc import Sequence

from ternmq_model.message import Message
from ternmq_model.queue import MessageQueue
from ternmq_producer.batch.bulk import Bulk, BulkSlots
from ternmq_producer.batch.pending_send import PendingBatch


def partition(
    bulk: Bulk,
    turns: Sequence[MessageQueue],
    part: Sequence[Message],
    bodies: list[bytes],
    properties: list[bytes],
    record_bytes: list[int],
    *,
    start: int,
    started_ms: int,
    deadline_ms: int,
    sys_flags: list[int] | None = None,
) -> list[tuple[str, PendingBatch]]:
    """Assign the messages of `part` to the queues in turn; return a batch for each broker.

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
    whole = PendingBatch(
        BulkSlots(bulk, range(start, start + count)),
        part[0].topic.encode(),
        bodies,
        properties,
        [message.flag for message in part],
        chosen,
        record_bytes,
        started_ms,
        deadline_ms,
        sys_flags=sys_flags,
    )
    brokers = dict.fromkeys(queue.broker_name for queue in chosen)
    if len(brokers) == 1:
        return [(chosen[0].broker_name, whole)]
    return [
        (name, whole.rows([i for i, queue in enumerate(chosen) if queue.broker_name == name]))
        for name in brokers
    ]
