"""QueryMessages and QueryOffsetByTime: messages by key, offsets by time.

Both read files in the blocking pool, never the maps of the loop.

Source: RocketMQ `QueryMessageProcessor`, `AdminBrokerProcessor.searchOffsetByTimestamp`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ternmq_broker.state.topics import TopicTable
from ternmq_broker.storage.reader import StoreReader
from ternmq_model.arrays import pack_int32s
from ternmq_model.errors import refusal
from ternmq_model.names import check_topic, is_read_forbidden
from ternmq_model.permission import to_read
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.rpc import Call, Handler, unary
from ternmq_remoting.service_methods import QUERY_MESSAGES, QUERY_OFFSET_BY_TIME
from ternmq_store.message_store import MessageStore
from ternmq_store.query.key_search import MATCHES_MAX, KeyQuery
from ternmq_store.query.time_search import BoundaryType

_BOUNDARIES: Final = {admin.LOWER: BoundaryType.LOWER, admin.UPPER: BoundaryType.UPPER}
_EVER_MS: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class QueryService:
    """Serves look-ups by key and by time. Owns nothing."""

    store: MessageStore
    reader: StoreReader
    topics: TopicTable

    def handlers(self) -> Sequence[Handler]:
        """Return the handlers of the service."""
        return (
            unary(QUERY_MESSAGES, self.query_messages),
            unary(QUERY_OFFSET_BY_TIME, self.query_offset_by_time),
        )

    async def query_messages(
        self, request: messages.QueryMessagesRequest, call: Call
    ) -> messages.QueryMessagesReply:
        """Return the newest records with a key in topics that the caller may read.

        Cancelling is safe.
        """
        if not self.store.searches.has_index:
            raise refusal(
                ResponseCode.QUERY_NOT_FOUND, "this broker has no index: store.index_enabled is off"
            )
        if not request.key:
            raise refusal(ResponseCode.INVALID_PARAMETER, "a query needs a key")
        if is_read_forbidden(request.topic):
            remark = f"topic {request.topic!r} belongs to the broker: no consumer may read it"
            raise refusal(ResponseCode.NO_PERMISSION, remark)
        if request.topic:
            topics: Sequence[str] = (self._existing(request.topic),)
        else:
            stored = {topic for topic, _ in self.store.queues()}
            topics = sorted(
                topic
                for topic in stored
                if not is_read_forbidden(topic) and call.permits.allows(to_read(topic))
            )
        end_ms = request.end_ms or _EVER_MS
        if request.begin_ms > end_ms:
            remark = f"begin_ms {request.begin_ms} is after end_ms {end_ms}"
            raise refusal(ResponseCode.INVALID_PARAMETER, remark)
        if request.messages_max < 0:
            remark = f"messages_max {request.messages_max}: must be >= 0"
            raise refusal(ResponseCode.INVALID_PARAMETER, remark)
        query = KeyQuery(
            topics=topics,
            key=request.key,
            begin_ms=request.begin_ms,
            end_ms=end_ms,
            maximum=min(request.messages_max or MATCHES_MAX, MATCHES_MAX),
            is_unique=request.is_unique_key,
        )
        records = await self.reader.run(self.store.searches.by_key(query).run)
        if not records:
            where = f"topic {request.topic!r}" if request.topic else "any topic"
            remark = f"no message of {where} has the key {request.key!r}"
            raise refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        sizes = pack_int32s([len(record) for record in records])
        return messages.QueryMessagesReply(records=b"".join(records), record_sizes=sizes)

    async def query_offset_by_time(
        self, request: admin.QueryOffsetByTimeRequest, call: Call
    ) -> admin.QueryOffsetByTimeReply:
        """Return the offset of a queue at a time. Cancelling is safe."""
        topic = self._existing(request.topic)
        boundary = _BOUNDARIES[request.boundary]
        search = self.store.searches.by_time(topic, request.queue_id, request.at_ms, boundary)
        offset = 0 if search is None else await self.reader.run(search.run)
        return admin.QueryOffsetByTimeReply(offset=offset)

    def _existing(self, topic: str) -> str:
        is_stored = any(topic == stored for stored, _ in self.store.queues())
        if self.topics.get(check_topic(topic)) is None and not is_stored:
            raise refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic!r} does not exist")
        return topic
