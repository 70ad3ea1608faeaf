"""Queries for the messages of a cluster."""

import struct
from itertools import chain
from typing import Final

from ternmq_client.admin.admin_calls import AdminCalls
from ternmq_client.admin.descriptions import BrokerList
from ternmq_client.tracing.trace_records import TraceRecord, decode
from ternmq_model.arguments import check_time_ms
from ternmq_model.errors import MessageNotFound, TopicNotFound, refusal
from ternmq_model.message_id import parse_offset_message_id
from ternmq_model.names import TRACE_TOPIC
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import BrokerData
from ternmq_model.stored_message import StoredMessage, decode_single
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.rpc import Connection
from ternmq_remoting.service_methods import PULL, QUERY_MESSAGES, VIEW_MESSAGE

QUERIED_MAX: Final = 64
"""Records that a broker returns to one query; more need further queries."""

_CORRECTIONS_MAX: Final = 64
"""Pulls without a message, each of which returned a higher offset, that `messages_at` follows."""


class MessageAdmin(AdminCalls):
    """Calls that find messages by id, by key and by offset."""

    async def message(self, offset_message_id: str) -> StoredMessage:
        """Return the message with an offset message id.

        Every broker is asked; the one whose record at that offset has the id's host answers. The
        address in the id is never dialled.

        Raises:
            UsageError: The id has another form.
            MessageNotFound: No broker has the message.
            Unreachable: No broker that answers has the message, and some gave no answer; names
                them.
        """
        parse_offset_message_id(offset_message_id)
        request = messages.ViewMessageRequest(offset_message_id=offset_message_id)

        async def record(data: BrokerData, connection: Connection) -> StoredMessage:
            reply = await self._call(connection, VIEW_MESSAGE, request)
            return decode_single(reply.record, data.broker_name)

        asked = await self._ask_each(record, unknown=(MessageNotFound,))
        if not asked.answers:
            remark = f"no broker holds message {offset_message_id}"
            raise refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        return asked.answers[0]

    async def query_messages(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = 0,
        maximum: int = QUERIED_MAX,
        is_unique_key: bool = False,
    ) -> BrokerList[StoredMessage]:
        """Return the newest messages with a key, oldest first.

        Args:
            topic: Topic of the messages; empty = every topic.
            key: Unique key (message id), or one of the message's keys.
            begin_ms: Earliest store time, Unix milliseconds.
            end_ms: Latest store time, Unix milliseconds; 0 = no limit.
            maximum: Limit of the result; a broker finds 64 at most.
            is_unique_key: Return only the message with this unique key.

        Raises:
            MessageNotFound: No broker finds a message, or its index is off.
            TopicNotFound: No broker has the topic.
            Unreachable: No broker that answers finds a message, and some gave no answer; names
                them.
            UsageError: A time is none in Unix milliseconds.
        """
        begin_ms, end_ms = check_time_ms("begin_ms", begin_ms), check_time_ms("end_ms", end_ms)
        request = messages.QueryMessagesRequest(
            topic=topic,
            key=key,
            begin_ms=begin_ms,
            end_ms=end_ms,
            messages_max=min(maximum, QUERIED_MAX),
            is_unique_key=is_unique_key,
        )

        async def found(data: BrokerData, connection: Connection) -> list[StoredMessage]:
            reply = await self._call(connection, QUERY_MESSAGES, request)
            return split_messages(reply.records, reply.record_sizes, data.broker_name)

        asked = await self._ask_each(found, unknown=(MessageNotFound, TopicNotFound))
        if not asked.answers:
            # MESSAGE_NOT_FOUND of a broker that has the topic says more than TOPIC_NOT_FOUND.
            raise max(asked.unknown, key=lambda error: isinstance(error, MessageNotFound))
        every = chain.from_iterable(asked.answers)
        newest = sorted(every, key=lambda one: one.stored_at_ms)[-maximum:]
        return BrokerList(newest, asked.unreachable)

    async def messages_at(
        self, queue: MessageQueue, offset: int, *, maximum: int = 1
    ) -> list[StoredMessage]:
        """Return messages of one queue, from an offset on; empty at the queue's end.

        Args:
            queue: Queue with its broker's name.
            offset: Offset of the first message; the queue's oldest message where that is deleted.
            maximum: Limit of the result; a broker may return fewer.

        Raises:
            RefusedError: BROKER_NOT_EXIST: no such broker is registered; or the broker does not
                have the queue.
            TopicNotFound: The broker does not have the topic.
        """
        (data,) = await self._readable(brokers=(queue.broker_name,))
        async with self._reader(data) as connection:
            for _ in range(_CORRECTIONS_MAX):
                request = messages.PullRequest(
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    offset=offset,
                    messages_max=maximum,
                    subscription=messages.Subscription(expression="*"),
                )
                reply = await self._call(connection, PULL, request)
                if reply.records:
                    return split_messages(reply.records, reply.record_sizes, queue.broker_name)
                if reply.next_offset <= offset:
                    break
                offset = reply.next_offset
        return []

    async def trace(
        self, message_id: str, *, trace_topic: str = TRACE_TOPIC
    ) -> BrokerList[tuple[StoredMessage, TraceRecord]]:
        """Return the trace records of a message by time, each with the message that contains it.

        Args:
            message_id: Unique key of the message.
            trace_topic: Topic that clients send their traces to.

        Raises:
            MessageNotFound: No trace is found, or the brokers' index is off.
            TopicNotFound: No broker has the topic.
        """
        found = await self.query_messages(trace_topic, message_id)
        traces = [
            (trace, record)
            for trace in found
            for record in decode(trace.body.decode("utf-8", "replace"))
            if record.message_id == message_id
        ]
        return BrokerList(sorted(traces, key=lambda each: each[1].at_ms), found.unreachable)


def split_messages(records: bytes, sizes: bytes, broker_name: str) -> list[StoredMessage]:
    """Return the messages of records back to back; `sizes` has their lengths, int32 each."""
    found: list[StoredMessage] = []
    begin = 0
    for (size,) in struct.iter_unpack("<i", sizes):
        found.append(decode_single(records[begin : begin + size], broker_name))
        begin += size
    return found
