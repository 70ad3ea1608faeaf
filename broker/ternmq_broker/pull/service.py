"""Pull, PullStream and ViewMessage: RPCs of consumers.

Source: RocketMQ `PullMessageProcessor`, `QueryMessageProcessor`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ternmq_broker.environment import BrokerEnvironment
from ternmq_broker.groups.offset_rules import OffsetCommit, OffsetRules
from ternmq_broker.pull.answers import PullAnswers
from ternmq_broker.pull.long_polling import HeldPull, PullHoldService
from ternmq_broker.pull.rules import PullOutcome, PullRules, no_topic
from ternmq_broker.pull.stream import PullingStream, PullServerStream
from ternmq_broker.state.topic_deletion_listeners import TopicDeletionListeners
from ternmq_broker.storage.yielding import yield_to_threads
from ternmq_model.arrays import pack_int32s
from ternmq_model.errors import UsageError, invalid, refusal
from ternmq_model.message_id import parse_offset_message_id
from ternmq_model.names import is_read_forbidden
from ternmq_model.offsets import OFFSET_MAX, QueueOffset
from ternmq_model.permission import to_read
from ternmq_model.record.format import decode_record
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import MASTER_ID
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.request_parser import check_range
from ternmq_remoting.rpc import Call, Handler, stream, unary
from ternmq_remoting.service_methods import PULL, PULL_STREAM, VIEW_MESSAGE
from ternmq_runtime.timers import Wait
from ternmq_store.queues.read_request import FILTER_UNITS_MAX, ReadRequest, ReadResult, ReadStatus

_REPORT_PAUSE_MS: Final = 5_000
"""Longest hold of a pull whose filter lets nothing pass: the pause between sweeps of held pulls."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PullService:
    """Handlers of Pull, PullStream and ViewMessage."""

    env: BrokerEnvironment
    rules: PullRules
    answers: PullAnswers
    offset_rules: OffsetRules
    holds: PullHoldService
    deletion_listeners: TopicDeletionListeners

    def handlers(self) -> Sequence[Handler]:
        """Return the handlers of Pull, PullStream and ViewMessage."""
        return (
            unary(PULL, self.pull),
            stream(PULL_STREAM, self.pull_stream),
            unary(VIEW_MESSAGE, self.view_message),
        )

    async def pull(self, request: messages.PullRequest, call: Call) -> messages.PullReply:
        """Read one queue once, and wait for a message on request.

        Cancelling is safe: no message is consumed until an offset is committed.
        """
        self.rules.check_group(request.group, now_ms=self.env.clock.wall_ms())
        self.rules.check_queue(request.topic, request.queue_id)
        subscription = self.rules.subscription(
            request.group,
            request.topic,
            request.subscription if request.HasField("subscription") else None,
            version_ms=request.subscription_version_ms,
        )
        chosen = self.rules.filters.pull_filter(request.group, subscription)
        messages_max = check_range("messages_max", request.messages_max, 0) or OFFSET_MAX
        bytes_max = check_range("bytes_max", request.bytes_max, 0) or OFFSET_MAX
        wait_ms = min(check_range("wait_ms", request.wait_ms, 0), self.env.live.broker.pull_wait_ms)
        hot, cold = self.env.store.reads.limits()
        read = ReadRequest(
            topic=request.topic,
            queue_id=request.queue_id,
            offset=QueueOffset(request.offset),
            hot=hot.within(messages_max, bytes_max),
            cold=cold.within(messages_max, bytes_max),
            group=request.group,
            **chosen._asdict(),
        )
        if request.HasField("commit_offset"):
            self.offset_rules.commit_with_pull(
                request.group,
                OffsetCommit(
                    request.topic,
                    request.queue_id,
                    request.commit_offset,
                    request.commit_version,
                ),
            )
        queue = (request.topic, request.queue_id)
        goes_on_at = self.answers.goes_on_at(
            request.group, *queue, read.offset, request.offset_epoch
        )
        if goes_on_at is not None:
            first, end = self.env.store.queue_range(*queue)
            moved = messages.PullReply(next_offset=goes_on_at, min_offset=first, max_offset=end)
            moved.status.code = ResponseCode.PULL_OFFSET_MOVED
            return moved
        result, outcome = await self._wait_and_read(read, wait_ms)
        reply = messages.PullReply(
            next_offset=outcome.next_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
            records=result.records,
            record_sizes=pack_int32s(result.record_sizes),
            suggested_broker_id=MASTER_ID
            if self.answers.is_masters(read, outcome)
            else self.answers.suggested_broker_id(
                request.group, is_far_behind=result.suggest_pull_from_slave
            ),
        )
        if outcome.code:
            reply.status.code = outcome.code
        return reply

    async def pull_stream(self, stream: PullServerStream, call: Call) -> None:
        """Serve one consumer's stream."""
        first = await stream.read()
        if first is None:
            return
        if first.WhichOneof("request") != "open":
            raise invalid("a PullStream begins with `open`")
        group = first.open.group
        self.rules.check_group(group, now_ms=self.env.clock.wall_ms())
        pulling = PullingStream(
            self.env.reader,
            self.rules,
            self.answers,
            self.holds,
            self.deletion_listeners,
            group,
            stream,
        )
        await pulling.run()

    async def view_message(
        self, request: messages.ViewMessageRequest, call: Call
    ) -> messages.ViewMessageReply:
        """Return the record with an offset message id, if the log has it.

        A half message is no such record, nor one of a topic that the caller may not read: even the
        name of the topic is not for that caller.
        """
        message_id = request.offset_message_id
        try:
            store_host, offset = parse_offset_message_id(message_id)
        except UsageError as error:
            raise invalid(str(error)) from None
        data = await self.env.reader.record(offset)
        record = None if data is None else decode_record(data, check_crc=False)
        if (
            data is None
            or record is None
            or record.header.store_host != store_host
            or is_read_forbidden(topic := record.topic.decode("utf-8", "replace"))
            or not call.permits.allows(to_read(topic))
        ):
            raise refusal(ResponseCode.QUERY_NOT_FOUND, f"no message has the id {message_id}")
        return messages.ViewMessageReply(record=data)

    async def _wait_and_read(
        self, read: ReadRequest, wait_ms: int
    ) -> tuple[ReadResult, PullOutcome]:
        """Read, and wait for a message while there is none."""
        offset = read.offset
        result, outcome = await self._read(read, offset)
        if outcome.code is not ResponseCode.PULL_NOT_FOUND or not wait_ms:
            return result, outcome
        begun_at_ms = self.env.clock.monotonic_ms()
        deleted: set[str] = set()
        topic, queue_id = read.topic, read.queue_id
        try:
            async with self.env.timers.timeout(wait_ms / 1000, wait=Wait.IDLE):
                while self._is_waiting(read, result, outcome, begun_at_ms):
                    if self.env.admission.is_closing:
                        break
                    with self.deletion_listeners.listening(deleted.add):
                        await self._arrival(read, outcome.next_offset)
                    if topic in deleted:
                        raise no_topic(topic)
                    self.rules.check_queue(topic, queue_id)
                    result, outcome = await self._read(read, outcome.next_offset)
        except TimeoutError:
            if self._has_moved(read, outcome.next_offset):
                # No message matched, or the caller would have been woken: answer the next offset.
                result, outcome = await self._read(read, outcome.next_offset)
        if outcome.code is ResponseCode.PULL_NOT_FOUND and outcome.next_offset > offset:
            outcome = outcome._replace(code=ResponseCode.PULL_RETRY_IMMEDIATELY)
        return result, outcome

    def _is_waiting(
        self, read: ReadRequest, result: ReadResult, outcome: PullOutcome, begun_at_ms: int
    ) -> bool:
        """Return whether the caller is to wait: there is no message yet.

        A pull that was woken and still has nothing is answered with its next offset, as by
        RocketMQ: the filter let nothing pass. A pull that filters by properties is woken by every
        message, since only its read filters; so it is answered every few seconds.
        """
        if outcome.next_offset < result.max_offset:
            return False
        if outcome.code is ResponseCode.PULL_RETRY_IMMEDIATELY and read.record_filter:
            waited_ms = self.env.clock.monotonic_ms() - begun_at_ms
            return waited_ms < _REPORT_PAUSE_MS
        return outcome.code is ResponseCode.PULL_NOT_FOUND

    async def _arrival(self, read: ReadRequest, next_offset: QueueOffset) -> None:
        """Wait until the queue has a message at `next_offset`."""
        # A message may have come while a read from the disk was under way.
        if self._has_moved(read, next_offset):
            return
        topic, queue_id = read.topic, read.queue_id
        arrived = asyncio.Event()
        held = HeldPull(topic, queue_id, next_offset, arrived.set, read.tag_codes)
        self.holds.hold(held)
        try:
            await arrived.wait()
        finally:
            self.holds.release(held)

    def _has_moved(self, read: ReadRequest, next_offset: QueueOffset) -> bool:
        """Return whether the queue has a message at `next_offset`."""
        end = self.env.store.queue_range(read.topic, read.queue_id)[1]
        return end > next_offset

    async def _read(self, read: ReadRequest, offset: QueueOffset) -> tuple[ReadResult, PullOutcome]:
        """Read once; a filter by properties reads as many units, in several parts."""
        end = offset + FILTER_UNITS_MAX
        while True:
            units_max = min(read.record_filter_max, end - offset)
            part = replace(read, offset=offset, record_filter_max=units_max)
            result = await self.env.reader.read(part)
            outcome = self.answers.outcome(part, result)
            if result.status is not ReadStatus.NO_MATCHED_MESSAGE or part.record_filter is None:
                return result, outcome
            offset = outcome.next_offset
            if not part.offset < offset < min(end, result.max_offset):
                return result, outcome
            await yield_to_threads()
