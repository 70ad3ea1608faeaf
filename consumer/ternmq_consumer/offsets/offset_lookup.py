"""Queries of brokers for the begin and end of queues, and for offsets by time."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ternmq_consumer.broker_connections import ReaderConnections
from ternmq_model.arguments import check_time_ms
from ternmq_model.offsets import OFFSET_MAX, QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.service_methods import DESCRIBE_TOPIC, QUERY_OFFSET_BY_TIME


class QueueRange(NamedTuple):
    """Range of the offsets of a queue."""

    begin: QueueOffset
    """Offset of the oldest message."""

    end: QueueOffset
    """Offset of the next message."""


class OffsetLookup:
    """Queries of brokers about their queues.

    Args:
        timeout_s: Timeout of each request, s.
    """

    def __init__(self, brokers: ReaderConnections, *, timeout_s: float) -> None:
        self._brokers = brokers
        self._timeout_s = timeout_s

    async def range(self, queue: MessageQueue) -> QueueRange:
        """Return the range of one queue. A new queue begins and ends at 0.

        Raises:
            TransportError: The broker does not answer.
            RefusedError: The broker refuses the request.
        """
        return (await self.ranges((queue,)))[queue]

    async def ranges(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, QueueRange]:
        """Return the ranges of many queues, with one request for each topic and broker.

        Raises:
            TransportError: A broker does not answer.
            RefusedError: A broker refuses the request.
        """
        wanted = list(dict.fromkeys(queues))
        places = dict.fromkeys((queue.topic, queue.broker_name) for queue in wanted)
        found: dict[MessageQueue, QueueRange] = {}
        for topic, broker_name in places:
            connection = await self._brokers.reader(broker_name)
            request = admin.DescribeTopicRequest(topic=topic)
            reply = await connection.call(DESCRIBE_TOPIC, request, timeout_s=self._timeout_s)
            for status in reply.queues:
                found[MessageQueue(topic, broker_name, status.queue_id)] = QueueRange(
                    QueueOffset(status.min_offset), QueueOffset(status.max_offset)
                )
        unwritten = QueueRange(QueueOffset(0), QueueOffset(0))
        return {queue: found.get(queue, unwritten) for queue in wanted}

    async def begins(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, QueueOffset]:
        """Return the offset of the oldest message of each queue. See `ranges` for errors."""
        return {queue: ends.begin for queue, ends in (await self.ranges(queues)).items()}

    async def ends(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, QueueOffset]:
        """Return the offset of the next message of each queue. See `ranges` for errors."""
        return {queue: ends.end for queue, ends in (await self.ranges(queues)).items()}

    async def at(self, queue: MessageQueue, at_ms: int) -> QueueOffset:
        """Return the offset of the first message of `queue` stored at `at_ms` or later.

        Args:
            queue: Name of the queue.
            at_ms: Time, Unix milliseconds.

        Returns:
            Offset; the end of the queue if all messages are older.

        Raises:
            TransportError: The broker does not answer.
            RefusedError: The broker refuses the request.
            UsageError: `at_ms` is no time in Unix milliseconds.

        Source:
            RocketMQ `MQAdminImpl.searchOffset`.
        """
        at_ms = check_time_ms("at_ms", at_ms)
        connection = await self._brokers.reader(queue.broker_name)
        request = admin.QueryOffsetByTimeRequest(
            topic=queue.topic, queue_id=queue.queue_id, boundary=admin.LOWER
        )
        request.at_ms = max(0, min(at_ms, OFFSET_MAX))
        reply = await connection.call(QUERY_OFFSET_BY_TIME, request, timeout_s=self._timeout_s)
        return QueueOffset(reply.offset)

    async def at_times(
        self, times_ms: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, QueueOffset]:
        """Return the results of `at` for many queues, with concurrent requests.

        Raises:
            TransportError: A broker does not answer.
            RefusedError: A broker refuses the request.
        """
        answers = await asyncio.gather(*(self.at(queue, ms) for queue, ms in times_ms.items()))
        return dict(zip(times_ms, answers, strict=True))
