"""Scan of a range of one queue: the bytes of a process are passed on unopened."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ternmq_broker.pull.rules import PullRules, no_topic
from ternmq_broker.scan.holds import ScanHold, ScanHolds
from ternmq_broker.scan.request import ScanCriteria, check_scan
from ternmq_broker.scan.worker_pool import ScanPool, ScanProcess
from ternmq_broker.state.topic_deletion_listeners import TopicDeletionListeners
from ternmq_model.errors import BrokerBusy, ClosedError, RefusedError, TernError, refusal
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.rpc import ServerStream
from ternmq_remoting.status import refusal_of
from ternmq_store.message_store import MessageStore
from ternmq_store.scan_process.frames import FrameHeader, FrameKind, ScanRefusal, ScanRequest

ScanServerStream = ServerStream[messages.ScanRequest, messages.ScanReply]

_CLOSING: Final = "the broker is closing"


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanServiceContext:
    """Tables and services behind ScanService. All owned by the broker's loop."""

    broker_name: str
    root: str
    """The store's directory."""

    store: MessageStore
    rules: PullRules
    deletion_listeners: TopicDeletionListeners
    holds: ScanHolds
    pool: ScanPool | None
    """None = there are no processes here."""

    has_arrow: Callable[[], bool]
    stall_s: float
    """A reader that takes nothing for so long is left."""

    is_slave: bool
    is_closing: Callable[[], bool]


async def serve_range(
    context: ScanServiceContext, request: messages.ScanRequest, stream: ScanServerStream
) -> None:
    """Answer one request to its end.

    Raises:
        ConnectionLost: The reader is gone.
        BrokerBusy: It took nothing for too long.
    """
    scan = _RangeRelay(context, request, stream)
    try:
        await scan.run()
    except TernError as error:
        if scan.is_stalled or (refused := refusal_of(error)) is None:
            raise
        await scan.refuse(refused)


class _RangeRelay:
    """Relay of the scan of one range. Owned by the reader's stream.

    Attributes:
        is_stalled: The reader takes nothing any more.
    """

    def __init__(
        self, context: ScanServiceContext, request: messages.ScanRequest, stream: ScanServerStream
    ) -> None:
        self._context = context
        self._request = request
        self._stream = stream
        self._next = QueueOffset(request.begin_offset)
        self._end = self._next
        self._damaged = self._damaged_before = 0
        self._has_schema = False
        self._is_deleted = False
        self.is_stalled = False

    async def run(self) -> None:
        """Serve the range.

        Raises:
            TernError: Why it ends before its end.
        """
        context, request = self._context, self._request
        if context.is_closing():
            raise refusal(ResponseCode.SERVICE_NOT_AVAILABLE, _CLOSING)
        wanted = check_scan(request, context.rules)
        pool = context.pool
        if pool is None or not context.has_arrow():
            why = "pyarrow is not installed" if pool is not None else "broker.scan_processes is 0"
            remark = f"this broker serves no Scan: {why}"
            raise refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        self._check_kept()
        self._end = QueueOffset(min(request.end_offset, self._range()[1]))
        place = context.store.searches.place_of(request.topic, request.queue_id, self._next)
        if self._next >= self._end:
            await self._write(ends_stretch=True)
            return
        with (
            context.holds.hold(place or PhysicalOffset(0)) as hold,
            context.deletion_listeners.listening(self._note_deleted),
        ):
            try:
                while not await self._take_turn(pool, wanted, hold):
                    pass
            except (BrokerBusy, ClosedError):
                if context.is_closing():
                    raise refusal(ResponseCode.SERVICE_NOT_AVAILABLE, _CLOSING) from None
                raise

    async def refuse(self, error: RefusedError) -> None:
        """Tell the reader why the scan ends here."""
        status = common.Status(code=error.code, remark=error.remark)
        await self._write(ends_stretch=True, status=status)

    def _range(self) -> tuple[QueueOffset, QueueOffset]:
        return self._context.store.queue_range(self._request.topic, self._request.queue_id)

    def _note_deleted(self, topic: str) -> None:
        self._is_deleted |= topic == self._request.topic

    def _check_kept(self) -> None:
        """Refuse what the queue does not keep any more, or is another queue's by now.

        A slave may begin later than its master, which alone knows.
        """
        topic = self._request.topic
        if self._is_deleted:
            raise no_topic(topic)
        first = self._range()[0]
        if self._next >= first:
            return
        is_slave = self._context.is_slave
        code = ResponseCode.PULL_RETRY_IMMEDIATELY if is_slave else ResponseCode.PULL_OFFSET_MOVED
        remark = f"queue {self._request.queue_id} of topic {topic!r} begins at {first} now: "
        raise refusal(code, remark + f"offset {self._next} is no longer kept")

    def _scan_request(self, wanted: ScanCriteria, *, may_map: bool) -> ScanRequest:
        context, request = self._context, self._request
        return ScanRequest(
            root=context.root,
            broker_name=context.broker_name,
            topic=request.topic,
            queue_id=request.queue_id,
            begin_offset=self._next,
            end_offset=self._end,
            log_end=context.store.confirm_offset,
            expression_type=wanted.expression_type,
            expression=wanted.expression,
            stored_from_ms=request.stored_from_ms,
            stored_before_ms=request.stored_before_ms,
            keys=tuple(request.keys),
            columns=wanted.columns,
            batch_rows_max=wanted.batch_rows_max,
            batch_bytes_max=wanted.batch_bytes_max,
            skips_damaged=request.skips_damaged,
            may_map=may_map,
        )

    async def _take_turn(self, pool: ScanPool, wanted: ScanCriteria, hold: ScanHold) -> bool:
        """Have a process scan when there is one; return whether that was the end of the range."""
        self._context.holds.waits(hold)
        async with pool.process() as process:
            self._context.holds.moved(hold, None)
            self._check_kept()
            await process.begin(self._scan_request(wanted, may_map=pool.may_map))
            is_over = await self._relay(process, hold, lambda: pool.is_turn_over(process))
        self._damaged_before, self._has_schema = self._damaged, True
        return is_over

    async def _relay(
        self, process: ScanProcess, hold: ScanHold, is_turn_over: Callable[[], bool]
    ) -> bool:
        """Pass on what the process reads, as it comes: it waits while the reader does.

        Returns:
            Whether that was all; if not, the turn is over.
        """
        refused = b""
        while True:
            header, data, is_last = await process.read()
            if self._is_deleted:
                raise no_topic(self._request.topic)
            kind = header.kind
            if kind is FrameKind.REFUSAL:
                refused += data
                continue
            if kind is FrameKind.SCHEMA and self._has_schema:
                continue
            has_looked = is_last and kind in (FrameKind.BATCH, FrameKind.PROGRESS)
            if has_looked:
                self._looked(header)
            if kind is FrameKind.END and refused:
                self._raise(ScanRefusal.from_bytes(refused))
            is_over = kind is FrameKind.END and is_last
            is_batch = kind is FrameKind.BATCH and is_last
            await self._write(piece=data, ends_batch=is_batch, ends_stretch=is_over)
            self._took(hold)
            has_more = self._next < self._end
            if is_over or (has_looked and has_more and is_turn_over()):
                return is_over

    def _looked(self, header: FrameHeader) -> None:
        """Take note of how far the process is."""
        self._next = QueueOffset(header.next_offset)
        self._damaged = self._damaged_before + header.damaged
        if header.rows:
            statistics = self._context.store.statistics
            statistics.got(header.rows, took_ms=0, from_disk=True)

    def _took(self, hold: ScanHold) -> None:
        """Take note that the reader goes on."""
        context, request = self._context, self._request
        place = context.store.searches.place_of(request.topic, request.queue_id, self._next)
        context.holds.moved(hold, place)

    def _raise(self, told: ScanRefusal) -> None:
        """Raise what the process told, in the broker's own words where it knows more."""
        if told.code is ResponseCode.PULL_OFFSET_MOVED:
            self._check_kept()
            # The file is gone, and the queue does not know yet.
            raise BrokerBusy(ResponseCode.SYSTEM_BUSY, told.remark)
        if self._range()[1] < self._end:
            # A slave cut its log beneath the process, which could read anything there.
            raise BrokerBusy(ResponseCode.SYSTEM_BUSY, told.remark)
        raise refusal(told.code, told.remark)

    async def _write(
        self,
        *,
        piece: bytes = b"",
        ends_batch: bool = False,
        ends_stretch: bool = False,
        status: common.Status | None = None,
    ) -> None:
        reply = messages.ScanReply(
            status=status,
            piece=piece,
            ends_batch=ends_batch,
            next_offset=self._next,
            min_offset=self._range()[0],
            damaged=self._damaged,
            ends_stretch=ends_stretch,
        )
        stall_s = self._context.stall_s
        try:
            async with asyncio.timeout(stall_s):
                await self._stream.write(reply)
        except TimeoutError:
            self.is_stalled = True
            remark = f"the reader of a scan took nothing for {stall_s:g} s"
            raise BrokerBusy(ResponseCode.SYSTEM_BUSY, remark) from None
