"""A broker for tests of clients: right as far as it goes, in memory, with faults on demand.

Nothing is checked that clients do not rely on. What they send, say and commit is recorded.
"""

import struct
from collections.abc import Sequence
from contextlib import suppress

from ternmq_model.errors import ClosedError, ConnectionLost, TopicNotFound
from ternmq_model.properties import tag_code
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.stored_message import decode_single
from ternmq_model.subscription import parse_subscription
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting import service_methods
from ternmq_remoting.rpc import Call, Handler, ServerStream, stream, unary
from ternmq_runtime.service import OwnedTasks
from tests.support.toy_groups import ToyGroups
from tests.support.toy_log import TOPIC, ToyLog
from tests.support.toy_sending import ToySending

REPLY_MESSAGES_MAX = 32
"""Most messages of one queue in one reply of a pull stream."""

PullServerStream = ServerStream[messages.PullStreamRequest, messages.PullStreamReply]
Handles = dict[int, messages.PullSubscribe]
"""Subscriptions of one stream, each with the offset and the credit that it has now."""


class ToyBroker(ToyLog):
    """One broker, with one topic at first. A test may change what it finds here at any time.

    Attributes:
        sending: Serves producers.
        groups: Serves groups.
        sessions: Hears clients.
        refusal: The code that subscriptions of pull streams end with; 0 = they do not.
        forgets: Forget every subscription at the next look, without a word.
        corrupt_next: Break the body of a record of the next reply of a pull stream.
        sent: Messages sent on pull streams.
        subscribes: Subscriptions that came on pull streams.
    """

    def __init__(self, name: str, queues: int) -> None:
        super().__init__(name, queues)
        self.sending = ToySending(self)
        self.groups = ToyGroups(self)
        self.sessions = self.groups.sessions
        self.refusal = 0
        self.forgets = False
        self.corrupt_next = False
        self.sent = 0
        self.subscribes = 0

    def handlers(self) -> Sequence[Handler]:
        """Return what to serve."""
        return [
            unary(service_methods.SEND, self.sending.send),
            stream(service_methods.SEND_STREAM, self.sending.send_stream),
            stream(service_methods.SESSION, self.sessions.session),
            unary(service_methods.LIST_MEMBERS, self.sessions.list_members),
            unary(service_methods.COMMIT_OFFSETS, self.groups.commit_offsets),
            unary(service_methods.QUERY_OFFSET, self.groups.query_offset),
            unary(service_methods.LOCK_QUEUES, self.groups.lock_queues),
            unary(service_methods.UNLOCK_QUEUES, self.groups.unlock_queues),
            unary(service_methods.SEND_BACK, self.groups.send_back),
            stream(service_methods.PULL_STREAM, self.pull_stream),
            unary(service_methods.DESCRIBE_TOPIC, self.describe_topic),
            unary(service_methods.QUERY_OFFSET_BY_TIME, self.query_offset_by_time),
        ]

    def delete_topic(self) -> None:
        """Forget `TOPIC` with all that is known of it, and end every subscription to it."""
        for queue in self.queues_of(TOPIC):
            self.queues.pop(queue, None)
        del self.topics[TOPIC]
        self.groups.offsets.remove_topic(TOPIC)
        self.groups.locks.remove_topic(TOPIC)
        self.wake()

    async def describe_topic(
        self, request: admin.DescribeTopicRequest, call: Call
    ) -> admin.DescribeTopicReply:
        """Tell a topic's queues."""
        if request.topic not in self.topics:
            raise TopicNotFound(ResponseCode.TOPIC_NOT_EXIST, f"no topic {request.topic}")
        return admin.DescribeTopicReply(
            queues=[
                admin.QueueStatus(
                    queue_id=queue.queue_id,
                    min_offset=self.min_offsets[queue],
                    max_offset=len(self.queues[queue]),
                )
                for queue in self.queues_of(request.topic)
            ]
        )

    async def query_offset_by_time(
        self, request: admin.QueryOffsetByTimeRequest, call: Call
    ) -> admin.QueryOffsetByTimeReply:
        """Tell the first offset that was stored at a time or later."""
        assert request.boundary == admin.LOWER
        stored = self.messages(MessageQueue(request.topic, self.name, request.queue_id))
        found = (each.queue_offset for each in stored if each.stored_at_ms >= request.at_ms)
        return admin.QueryOffsetByTimeReply(offset=next(found, len(stored)))

    async def pull_stream(self, stream: PullServerStream, call: Call) -> None:
        """Serve subscriptions as far as their credit goes."""
        handles: Handles = {}
        async with OwnedTasks() as tasks:
            tasks.spawn(self._feed(stream, handles), "feed")
            with suppress(ConnectionLost, ClosedError):
                while (request := await stream.read()) is not None:
                    self._take(request, handles)
                    self.wake()

    def _take(self, request: messages.PullStreamRequest, handles: Handles) -> None:
        if request.HasField("subscribe"):
            wanted = request.subscribe
            assert wanted.handle not in handles, "a number is used once"
            assert wanted.credit_bytes >= 0
            assert wanted.credit_messages >= 0
            self.subscribes += 1
            handles[wanted.handle] = wanted
        elif request.HasField("credit"):
            if handle := handles.get(request.credit.handle):
                handle.credit_bytes += request.credit.bytes
                handle.credit_messages += request.credit.messages
        elif request.HasField("unsubscribe"):
            handles.pop(request.unsubscribe.handle, None)

    async def _feed(self, stream: PullServerStream, handles: Handles) -> None:
        with suppress(ConnectionLost, ClosedError):
            while True:
                changed = self.changed
                if self.forgets:
                    handles.clear()
                pulled: list[messages.PulledRecords] = []
                for number, handle in list(handles.items()):
                    if self.refusal or handle.topic not in self.topics:
                        code = self.refusal or ResponseCode.TOPIC_NOT_EXIST
                        status = common.Status(code=code, remark="not now")
                        pulled.append(messages.PulledRecords(handle=number, status=status))
                        del handles[number]
                    elif (read := self._read(handle)) is not None:
                        pulled.append(read)
                if pulled:
                    await stream.write(messages.PullStreamReply(pulled=pulled))
                else:
                    await changed.wait()

    def _read(self, handle: messages.PullSubscribe) -> messages.PulledRecords | None:
        """Return a subscription's part of the next reply, None when it has nothing to be told."""
        queue = MessageQueue(handle.topic, self.name, handle.queue_id)
        least, end, begin = self.min_offsets[queue], len(self.queues[queue]), handle.offset
        pulled = messages.PulledRecords(handle=handle.handle, min_offset=least, max_offset=end)
        if not least <= begin <= end:
            handle.offset = least if begin < least else end
            pulled.status.code = ResponseCode.PULL_OFFSET_MOVED
        else:
            chosen = self._choose(handle, self.queues[queue])
            if handle.offset == begin:
                return None
            self.sent += len(chosen)
            pulled.records = b"".join(chosen)
            if self.corrupt_next and chosen:
                self.corrupt_next = False
                pulled.records = pulled.records[:90] + b"?" + pulled.records[91:]
            pulled.record_sizes = struct.pack(f"<{len(chosen)}i", *map(len, chosen))
        pulled.next_offset = handle.offset
        return pulled

    def _choose(self, handle: messages.PullSubscribe, records: list[bytes]) -> list[bytes]:
        """Return the next records that a subscription wants, as far as its credit goes."""
        codes = parse_subscription(handle.topic, handle.subscription.expression).tag_codes
        chosen: list[bytes] = []
        while (
            handle.offset < len(records)
            and len(chosen) < REPLY_MESSAGES_MAX
            and handle.credit_bytes > 0
            and handle.credit_messages > 0
        ):
            record = records[handle.offset]
            handle.offset += 1
            if codes is None or tag_code(decode_single(record, self.name).tags) in codes:
                chosen.append(record)
                handle.credit_bytes -= len(record)
                handle.credit_messages -= 1
        return chosen
