"""MeasureQueues: exact sizes of ranges of queues."""

from ternmq_broker.state.topics import TopicTable
from ternmq_model.errors import RefusedError, refusal
from ternmq_model.names import check_topic
from ternmq_model.offsets import QueueOffset
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.environment import Blocking
from ternmq_remoting.request_parser import check_range
from ternmq_store.message_store import MessageStore
from ternmq_store.query.range_size import QueueRangeSize

RANGES_MAX = 1_024
"""Limit of ranges in one request."""


async def measure_queues(
    request: admin.MeasureQueuesRequest,
    store: MessageStore,
    topics: TopicTable,
    blocking: Blocking,
) -> admin.MeasureQueuesReply:
    """Return the sizes of ranges of queues. A pool thread reads; cancelling is safe.

    Raises:
        RefusedError: A range has an impossible value or an unknown topic, or the disk failed.
        IllegalName: The name of a topic is illegal.
    """
    check_range("number of ranges", len(request.stretches), 0, RANGES_MAX)
    known = {topic for topic, _ in store.queues()}
    for topic in dict.fromkeys(queue_range.topic for queue_range in request.stretches):
        if topics.get(check_topic(topic)) is None and topic not in known:
            raise refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic!r} does not exist")
    sizes = [_plan(queue_range, store) for queue_range in request.stretches]
    reply = admin.MeasureQueuesReply()
    for size in sizes:
        while not size.is_done:
            try:
                await blocking.run(_run_all, sizes)
            except OSError as error:
                raise _unreadable(error) from error
        reply.stretches.add(end_offset=size.end, bytes=size.bytes)
    return reply


def _plan(queue_range: admin.QueueStretch, store: MessageStore) -> QueueRangeSize:
    check_range("queue_id", queue_range.queue_id, 0)
    check_range("begin_offset", queue_range.begin_offset, 0)
    check_range("end_offset", queue_range.end_offset, queue_range.begin_offset)
    check_range("bytes_max", queue_range.bytes_max, 0)
    return store.searches.size_of(
        queue_range.topic,
        queue_range.queue_id,
        QueueOffset(queue_range.begin_offset),
        QueueOffset(queue_range.end_offset),
        bytes_max=queue_range.bytes_max,
    )


def _run_all(sizes: list[QueueRangeSize]) -> None:
    """Count the first ranges that are not done: one step of a long range, or many short ranges.

    The pool thread is released then, since others wait for it to sync.
    """
    budget = 64
    for size in sizes:
        if not size.is_done:
            before = size.end
            size.run()
            budget -= 1 + (size.end - before) // 8_192
            if budget <= 0:
                return


def _unreadable(error: OSError) -> RefusedError:
    return refusal(ResponseCode.SYSTEM_ERROR, f"the disk cannot be read: {error}")
