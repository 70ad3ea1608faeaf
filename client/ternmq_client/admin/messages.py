"""Finding messages, over a whole cluster."""

from typing import Final

from ternmq_client.admin.admin_calls import AdminCalls
from ternmq_client.admin.descriptions import BrokerList
from ternmq_client.admin.message_records import split_messages
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

_QUERIED_MAX: Final = 64
_CORRECTIONS_MAX: Final = 64
"""Reads that may find nothing but where to go on."""


class MessageAdmin(AdminCalls):
    """Messages by id, by key and by place."""

    async def message(self, offset_message_id: str) -> StoredMessage:
        """Return the message that an offset message id names.

        Every broker is asked; only one whose record at that offset carries the id's host answers.
        The address in the id is never dialled.

        Raises:
            UsageError: It is no offset message id.
            MessageNotFound: No broker holds it.
            Unreachable: No broker that answers holds it, and not all answer; names each such.
        """
        parse_offset_message_id(offset_message_id)
        request = messages.ViewMessageRequest(offset_message_id=offset_message_id)

        async def record(data: BrokerData, connection: Connection) -> StoredMessage:
            reply = await connection.call(VIEW_MESSAGE, request, timeout_s=self._timeout_s)
            return decode_single(reply.record, data.broker_name)

        asked = await self._ask_each(record, unknown=(MessageNotFound,))
        if not asked.told:
            remark = f"no broker holds message {offset_message_id}"
            raise refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        return asked.told[0][1]

    async def query_messages(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = 0,
        maximum: int = 64,
        is_unique_key: bool = False,
    ) -> BrokerList[StoredMessage]:
        """Return the newest messages with a key, oldest first.

        Args:
            topic: Where to look; empty = in every topic.
            key: A unique key (message id), or one of the message's keys.
            begin_ms: The earliest store time, Unix milliseconds.
            end_ms: The latest; 0 = no limit.
            maximum: At most so many; a broker finds no more than 64.
            is_unique_key: Only the message whose unique key it is.

        Raises:
            MessageNotFound: No broker has one, or those that do keep no index.
            TopicNotFound: No broker has the topic.
            Unreachable: No broker that answers has one, and not all answer; names each such.
            UsageError: A time is none in Unix milliseconds.
        """
        begin_ms, end_ms = check_time_ms("begin_ms", begin_ms), check_time_ms("end_ms", end_ms)
        request = messages.QueryMessagesRequest(
            topic=topic,
            key=key,
            begin_ms=begin_ms,
            end_ms=end_ms,
            messages_max=min(maximum, _QUERIED_MAX),
            is_unique_key=is_unique_key,
        )

        async def found(data: BrokerData, connection: Connection) -> list[StoredMessage]:
            reply = await connection.call(QUERY_MESSAGES, request, timeout_s=self._timeout_s)
            return split_messages(reply.records, reply.record_sizes, data.broker_name)

        asked = await self._ask_each(found, unknown=(MessageNotFound, TopicNotFound))
        if not asked.told:
            # A broker without the topic says less than one that looked.
            raise max(asked.unknown, key=lambda error: isinstance(error, MessageNotFound))
        whole = (message for _, told in asked.told for message in told)
        newest = sorted(whole, key=lambda one: one.stored_at_ms)[-maximum:]
        return BrokerList(newest, asked.unreachable)

    async def messages_at(
        self, queue: MessageQueue, offset: int, *, maximum: int = 1
    ) -> list[StoredMessage]:
        """Return messages of one queue, from an offset on; empty at the queue's end.

        Args:
            queue: With its broker's name.
            offset: Of the first; where it is no longer kept, the first one that is.
            maximum: At most so many; a broker may return fewer.

        Raises:
            RefusedError: BROKER_NOT_EXIST: there is no such broker.
            TopicNotFound: It has no such topic.
            RefusedError: Nor such a queue.
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
                reply = await connection.call(PULL, request, timeout_s=self._timeout_s)
                if reply.records:
                    return split_messages(reply.records, reply.record_sizes, queue.broker_name)
                if reply.next_offset <= offset:
                    break
                offset = reply.next_offset
        return []

    async def trace(
        self, message_id: str, *, trace_topic: str = TRACE_TOPIC
    ) -> BrokerList[tuple[StoredMessage, TraceRecord]]:
        """Return the traces of a message, in the order of their times, with where each lies.

        Args:
            message_id: What producers call so: the unique key.
            trace_topic: Where clients send their traces.

        Raises:
            MessageNotFound: There are none, or brokers keep no index.
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
