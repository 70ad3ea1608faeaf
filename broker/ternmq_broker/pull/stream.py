"""PullStream: messages of many queues, within the credit of the reader.

Each subscription of a queue is a handle with a credit of its own. Handles that may have messages
wait in a row for their turns; several turns make a reply. A handle at the end of its queue leaves
the row and is held like a waiting pull.
"""

import asyncio
import sys
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from ternmq_broker.pull.answers import PullAnswers
from ternmq_broker.pull.long_polling import HeldPull, PullHoldService
from ternmq_broker.pull.rules import PullRules, no_topic
from ternmq_broker.state.topic_deletion_listeners import TopicDeletionListeners
from ternmq_broker.storage.reader import StoreReader
from ternmq_broker.storage.yielding import yield_to_threads
from ternmq_model.arrays import pack_int32s
from ternmq_model.errors import ClosedError, ConnectionLost, TernError, invalid, refusal
from ternmq_model.offsets import QueueOffset
from ternmq_model.response_code import ResponseCode
from ternmq_model.subscription import Subscription
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.encoded_message import EncodedMessage, encode_pulled
from ternmq_remoting.request_parser import check_range
from ternmq_remoting.rpc import ServerStream
from ternmq_remoting.status import refusal_from
from ternmq_runtime.service import OwnedTasks
from ternmq_store.queues.read_request import ReadLimits, ReadRequest, ReadResult
from ternmq_store.read.cold_read import ColdRead

PullServerStream = ServerStream[messages.PullStreamRequest, messages.PullStreamReply]

REPLY_BYTES_MAX: Final = 1000 << 10
"""Limit on the records of one reply; a larger record is sent alone. Each reply wakes threads on
both sides: at half this size the broker takes a fifth more time for a message of 1 KiB. The
contract allows 1 MiB."""

_FREE_BYTES_MIN: Final = 64 << 10
"""Free bytes of a reply below which it is full."""

_RUN_BYTES: Final = 2 << 20
"""Bytes of full replies that a handle gets before the next one has its turn. A reader decodes the
replies of one queue together, which takes less time for each message."""

_TURN_MESSAGES_MAX: Final = 8192
_COLD: Final = ReadLimits(256, 256 << 10)
"""Limits of a read from the disk, which fills a reply alone: a multiple of RocketMQ's 64 KiB."""

_TURNS_MAX: Final = 64
"""Limit on the turns of one reply, and so on the time without other work of the loop."""

_NEVER: Final = object()
_HANDLES_MAX: Final = 65_536
_CREDIT_MAX: Final = 1 << 40
_SCANS_PER_REPORT: Final = 64
"""Number of reads without a match after which the reader gets the next offset."""


@dataclass(slots=True, eq=False)
class _QueueHandle:
    """Subscription of one queue. Owned by its stream."""

    number: int
    topic: str
    queue_id: int
    next_offset: QueueOffset
    reported_offset: QueueOffset
    subscription: Subscription
    follows_group: bool
    bytes_left: int
    messages_left: int
    is_chosen: bool
    in_row: bool = False
    is_over: bool = False
    is_reading: bool = False
    held: HeldPull | None = None
    run_bytes: int = 0
    """Bytes of the full replies since its turn came."""

    scans: int = 0
    damaged: int = 0
    checked: object = _NEVER

    @property
    def has_credit(self) -> bool:
        return self.bytes_left > 0 and self.messages_left > 0


@dataclass(slots=True, eq=False)
class PullingStream:
    """Stream of one consumer: one task reads the requests, the other serves them."""

    reader: StoreReader
    rules: PullRules
    answers: PullAnswers
    holds: PullHoldService
    deletion_listeners: TopicDeletionListeners
    group: str
    stream: PullServerStream
    _handles: dict[int, _QueueHandle] = field(default_factory=dict[int, _QueueHandle], init=False)
    _row: deque[_QueueHandle] = field(default_factory=deque[_QueueHandle], init=False)
    _announced: list[messages.PulledRecords] = field(
        default_factory=list[messages.PulledRecords], init=False
    )
    """Batches with which the next reply begins."""

    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _has_asked: bool = field(default=False, init=False)
    """The read that ended the last reply filtered by properties."""

    async def run(self) -> None:
        """Serve until the consumer has finished."""
        async with OwnedTasks() as tasks:
            try:
                with self.deletion_listeners.listening(self._end_topic):
                    tasks.spawn(self._serve(), "pull-serve")
                    while (request := await self.stream.read()) is not None:
                        self._take(request)
            except ConnectionLost:
                return
            finally:
                for handle in list(self._handles.values()):
                    self._drop(handle)

    def _end_topic(self, topic: str) -> None:
        """End the handles of a topic that is deleted, whether they have credit or not."""
        for handle in [each for each in self._handles.values() if each.topic == topic]:
            self._announced.append(_end(handle.number, no_topic(topic)))
            self._drop(handle)
            self._changed.set()

    def _take(self, request: messages.PullStreamRequest) -> None:
        """Execute one request of the consumer."""
        match request.WhichOneof("request"):
            case "subscribe":
                self._subscribe(request.subscribe)
            case "credit":
                self._add_credit(request.credit)
            case "unsubscribe":
                handle = self._handles.get(request.unsubscribe.handle)
                if handle is not None:
                    self._drop(handle)
            case _:
                raise invalid("a PullStream is opened once, at its beginning")

    def _subscribe(self, request: messages.PullSubscribe) -> None:
        if request.handle in self._handles:
            raise invalid(f"handle {request.handle} is open already")
        if len(self._handles) >= _HANDLES_MAX:
            raise invalid(f"a PullStream has at most {_HANDLES_MAX} handles")
        try:
            self.rules.check_queue(request.topic, request.queue_id)
            check_range("credit_bytes", request.credit_bytes, 0, _CREDIT_MAX)
            check_range("credit_messages", request.credit_messages, 0, _CREDIT_MAX)
            subscription = self.rules.subscription(
                self.group,
                request.topic,
                request.subscription if request.HasField("subscription") else None,
                version_ms=request.subscription_version_ms,
            )
        except TernError as error:
            self._announced.append(_end(request.handle, error))
            self._changed.set()
            return
        handle = self._handles[request.handle] = _QueueHandle(
            number=request.handle,
            topic=request.topic,
            queue_id=request.queue_id,
            next_offset=QueueOffset(request.offset),
            reported_offset=QueueOffset(request.offset),
            subscription=subscription,
            follows_group=not request.HasField("subscription"),
            bytes_left=request.credit_bytes,
            messages_left=request.credit_messages,
            is_chosen=request.offset_is_chosen,
        )
        self._correct_offset(handle, request.offset_epoch)
        self._enter_row(handle)

    def _correct_offset(self, handle: _QueueHandle, epoch: int) -> None:
        """Go on with later messages if the reader learnt its offset in an epoch that is over."""
        topic, queue_id, offset = handle.topic, handle.queue_id, handle.next_offset
        goes_on_at = self.answers.goes_on_at(self.group, topic, queue_id, offset, epoch)
        if goes_on_at is None:
            return
        handle.next_offset = handle.reported_offset = goes_on_at
        first, end = self.reader.store.queue_range(topic, queue_id)
        remark = f"offset {offset} of epoch {epoch} moved to {goes_on_at}"
        self._announced.append(
            messages.PulledRecords(
                handle=handle.number,
                next_offset=goes_on_at,
                min_offset=first,
                max_offset=end,
                status={"code": ResponseCode.PULL_OFFSET_MOVED, "remark": remark},
            )
        )
        self._changed.set()

    def _add_credit(self, credit: messages.PullCredit) -> None:
        handle = self._handles.get(credit.handle)
        if handle is None:
            return  # the broker ended the handle; the consumer does not know yet
        check_range("bytes", credit.bytes, 0, _CREDIT_MAX)
        check_range("messages", credit.messages, 0, _CREDIT_MAX)
        handle.bytes_left = min(handle.bytes_left + credit.bytes, _CREDIT_MAX)
        handle.messages_left = min(handle.messages_left + credit.messages, _CREDIT_MAX)
        if handle.held is None and not handle.is_reading:
            self._enter_row(handle)

    def _enter_row(self, handle: _QueueHandle, *, is_first: bool = False) -> None:
        if not handle.in_row and handle.has_credit:
            handle.in_row = True
            if is_first:
                self._row.appendleft(handle)
            else:
                self._row.append(handle)
            self._changed.set()

    def _goes_on(self, handle: _QueueHandle, read_bytes: int) -> bool:
        """Return whether a handle keeps its turn after a read of so many bytes."""
        handle.run_bytes += read_bytes
        if read_bytes <= REPLY_BYTES_MAX // 2 or handle.run_bytes >= _RUN_BYTES:
            handle.run_bytes = 0
        return handle.run_bytes > 0

    def _drop(self, handle: _QueueHandle) -> None:
        handle.is_over = True
        self._handles.pop(handle.number, None)
        if handle.held is not None:
            self.holds.release(handle.held)
            handle.held = None

    def _hold(self, handle: _QueueHandle) -> None:
        """Hold the handle until the next arrival in its queue."""

        def wake() -> None:
            handle.held = None
            self._enter_row(handle)

        handle.held = HeldPull(
            handle.topic, handle.queue_id, handle.next_offset, wake, handle.subscription.tag_codes
        )
        self.holds.hold(handle.held)

    async def _serve(self) -> None:
        """Write replies until the stream ends."""
        try:
            while True:
                reply = [encode_pulled((), 0, pulled) for pulled in self._announced]
                self._announced.clear()
                has_scanned, cold = self._fill(reply)
                if cold is not None:
                    await self._read_cold(*cold, reply)
                if reply:
                    await self.stream.write(EncodedMessage(b"".join(reply)))
                elif has_scanned:
                    # A long scan for few matches must not starve others; tags cost little.
                    await (yield_to_threads() if self._has_asked else asyncio.sleep(0))
                else:
                    self._changed.clear()
                    await self._changed.wait()
        except (ConnectionLost, ClosedError):
            return  # the transport ends the other task

    def _fill(self, reply: list[bytes]) -> tuple[bool, tuple[_QueueHandle, ColdRead] | None]:
        """Read for handles in turn until the reply, a list of encoded parts, is full.

        A turn that only filtered ends the reply, so that other tasks run after 800 units; so does a
        turn that filters by properties, which takes longest, and a turn that needs the disk:
        messages in memory need not wait for it.

        Returns:
            True if a read was made; and, for an empty reply, the read from the disk that is to fill
            it.
        """
        free_bytes = REPLY_BYTES_MAX
        has_read = self._has_asked = False
        for _ in range(_TURNS_MAX):
            if not self._row or free_bytes < _FREE_BYTES_MIN:
                break
            handle = self._row.popleft()
            handle.in_row = False
            if handle.is_over or not handle.has_credit:
                continue
            is_checked = handle.checked is self.rules.version
            if (handle.follows_group or not is_checked) and not self._check(handle, reply):
                continue
            request = self._request(handle, free_bytes)
            room = free_bytes if free_bytes < REPLY_BYTES_MAX else sys.maxsize
            result = self.reader.store.reads.plan_read_within(request, room=room)
            if result is None:
                # A record longer than the free bytes of this reply begins the next one.
                self._first_next(handle)
                break
            if isinstance(result, ColdRead):
                self._has_asked = request.record_filter is not None
                if not reply:
                    return True, (handle, result)
                self.reader.store.reads.release(result)
                self._first_next(handle)
                break
            has_read, self._has_asked = True, request.record_filter is not None
            free_bytes -= result.record_bytes
            code = self._apply(handle, request, result, reply)
            if code is ResponseCode.PULL_RETRY_IMMEDIATELY or request.record_filter:
                break
        return has_read, None

    def _first_next(self, handle: _QueueHandle) -> None:
        handle.in_row = True
        self._row.appendleft(handle)

    async def _read_cold(self, handle: _QueueHandle, plan: ColdRead, reply: list[bytes]) -> None:
        """Read from the disk for a handle, which may be ended meanwhile."""
        handle.is_reading = True
        try:
            result = await self.reader.fetch(plan)
        except TernError as error:
            if not handle.is_over:
                self._end_handle(handle, error, reply)
            return
        finally:
            handle.is_reading = False
        if not handle.is_over:
            self._apply(handle, plan.request, result, reply)

    def _request(self, handle: _QueueHandle, bytes_max: int) -> ReadRequest:
        messages_left, bytes_left = handle.messages_left, handle.bytes_left
        chosen = self.rules.filters.pull_filter(self.group, handle.subscription)
        return ReadRequest(
            topic=handle.topic,
            queue_id=handle.queue_id,
            offset=handle.next_offset,
            hot=ReadLimits(min(messages_left, _TURN_MESSAGES_MAX), min(bytes_left, bytes_max)),
            cold=_COLD.within(messages_left, bytes_left),
            group=self.group,
            tag_codes=chosen.tag_codes,
            record_filter=chosen.record_filter,
            record_filter_max=chosen.record_filter_max,
            bit_map_filter=chosen.bit_map_filter,
        )

    def _apply(
        self,
        handle: _QueueHandle,
        request: ReadRequest,
        result: ReadResult,
        reply: list[bytes],
    ) -> ResponseCode:
        """Advance a handle by a read, and add the outcome to the reply."""
        offset, is_chosen = handle.next_offset, handle.is_chosen
        code, next_offset = outcome = self.answers.outcome(request, result, is_chosen=is_chosen)
        if self.answers.is_masters(request, outcome):
            remark = f"the master has the next offset of {handle.topic} queue {handle.queue_id}"
            self._end_handle(handle, refusal(code, remark), reply)
            return code
        handle.next_offset, handle.is_chosen = next_offset, False
        count = len(result.record_sizes)
        handle.bytes_left -= result.record_bytes
        handle.messages_left -= count
        end = self.reader.store.queue_range(handle.topic, handle.queue_id)[1]
        if next_offset >= end:
            self._hold(handle)
        else:
            self._enter_row(handle, is_first=self._goes_on(handle, result.record_bytes))
        handle.scans += not count
        handle.damaged += result.skipped
        is_news = next_offset != handle.reported_offset and (
            handle.held is not None or handle.scans >= _SCANS_PER_REPORT
        )
        # A chosen offset is reported to its reader, also without messages: from then on it counts
        # as reached by reading, and no message is skipped if the queue loses its end.
        if count or is_news or is_chosen or code is ResponseCode.PULL_OFFSET_MOVED:
            handle.reported_offset, handle.scans = next_offset, 0
            pulled = messages.PulledRecords(
                handle=handle.number,
                next_offset=next_offset,
                min_offset=result.min_offset,
                max_offset=result.max_offset,
                suggested_broker_id=self.answers.suggested_broker_id(
                    self.group, is_far_behind=result.suggest_pull_from_slave
                ),
            )
            if handle.damaged:
                pulled.damaged, handle.damaged = handle.damaged, 0
            if code is ResponseCode.PULL_OFFSET_MOVED:
                pulled.status.code = code
                pulled.status.remark = f"offset {offset} moved to {next_offset}"
            if count:
                pulled.record_sizes = pack_int32s(result.record_sizes)
            reply.append(encode_pulled(result.pieces, result.record_bytes, pulled))
        return code

    def _check(self, handle: _QueueHandle, reply: list[bytes]) -> bool:
        """Check after a change that a queue may be read, by the group's present subscription.

        The handle is ended if not.
        """
        try:
            if handle.checked is not self.rules.version:
                self.rules.check_reader(self.group)
                self.rules.check_queue(handle.topic, handle.queue_id)
                handle.checked = self.rules.version
            if handle.follows_group:
                handle.subscription = self.rules.subscription(self.group, handle.topic, None)
        except TernError as error:
            self._end_handle(handle, error, reply)
            return False
        return True

    def _end_handle(self, handle: _QueueHandle, error: TernError, reply: list[bytes]) -> None:
        reply.append(encode_pulled((), 0, _end(handle.number, error)))
        self._drop(handle)


def _end(handle: int, error: TernError) -> messages.PulledRecords:
    """Return the reply that ends a handle."""
    refused = refusal_from(error)
    return messages.PulledRecords(
        handle=handle, status={"code": refused.code, "remark": refused.remark}
    )
