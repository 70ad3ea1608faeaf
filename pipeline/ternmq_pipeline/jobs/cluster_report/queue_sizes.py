"""Sizes of queues and their offsets at times, measured by brokers."""

from collections.abc import Mapping, Sequence

from ternmq_client.admin.descriptions import QueueStatus
from ternmq_model.errors import RefusedError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_pipeline.cluster.reader import ClusterReader
from ternmq_pipeline.offsets import OffsetRange


async def kept_bytes(reader: ClusterReader, queues: Sequence[QueueStatus]) -> int | None:
    """Return the total bytes of the records of queues; None = a broker does not measure.

    Raises:
        TransportError: A broker does not answer.
    """
    left = [
        OffsetRange(one.queue, QueueOffset(one.min_offset), QueueOffset(one.max_offset))
        for one in queues
        if one.max_offset > one.min_offset
    ]
    total = 0
    try:
        await reader.find_brokers({offset_range.queue.topic for offset_range in left})
        while left:
            measured = await reader.measure([(offset_range, 0) for offset_range in left])
            total += sum(one.bytes for one in measured)
            left = [
                OffsetRange(offset_range.queue, QueueOffset(one.end), offset_range.end)
                for offset_range, one in zip(left, measured, strict=True)
                if offset_range.begin < one.end < offset_range.end
            ]
    except RefusedError as error:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        raise
    return total


async def first_offsets(
    reader: ClusterReader, times_ms: Mapping[MessageQueue, int]
) -> Mapping[MessageQueue, int]:
    """Return the offset of each queue's first message stored at its time or later, else its end.

    Raises:
        TransportError: A broker does not answer.
        RefusedError: A broker no longer has the topic.
    """
    await reader.find_brokers({queue.topic for queue in times_ms})
    return await reader.offsets_at(times_ms)
