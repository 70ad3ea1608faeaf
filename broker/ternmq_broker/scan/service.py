"""Scan and MeasureQueues: RPCs of data pipelines.

The service relays the bytes of a scan process without decoding them.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from ternmq_broker.config import BrokerConfig
from ternmq_broker.pull.rules import PullRules, no_topic
from ternmq_broker.scan.holds import ScanHold, ScanHolds
from ternmq_broker.scan.queue_sizes import measure_queues
from ternmq_broker.scan.request import checked_request
from ternmq_broker.scan.worker_pool import ScanPool, ScanProcess
from ternmq_broker.state.topic_deletion_listeners import TopicDeletionListeners
from ternmq_broker.state.topics import TopicTable
from ternmq_broker.storage.admission import Admission
from ternmq_model.columns.pyarrow_support import has_pyarrow
from ternmq_model.errors import (
    BrokerBusy,
    ClosedError,
    ConnectionLost,
    RefusedError,
    TernError,
    refusal,
)
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Call, Handler, ServerStream, stream, unary
from ternmq_remoting.service_methods import MEASURE_QUEUES, SCAN
from ternmq_remoting.status import refusal_of
from ternmq_runtime.service import Job
from ternmq_store.message_store import MessageStore
from ternmq_store.scan_process.frames import FrameHeader, FrameKind, ScanRefusal, ScanRequest

ScanServerStream = ServerStream[messages.ScanRequest, messages.ScanReply]


class ScanService:
    """Scan and MeasureQueues of one term of a broker, and the processes that scan.

    Args:
        config: The broker's settings.
        env: Processes, clock and blocking calls.
        store: The scanned store; its cleaner asks which files scans need.
        topics: All topics.
        rules: Checks of the queues that readers name.
        deletion_listeners: Listeners for deleted topics.
        is_slave: True if the broker follows a master.
        admission: Admission of requests.

    Attributes:
        holds: Log files that retention keeps for scans.
        pool: Pool of the processes; None = the broker may spawn none.
    """

    def __init__(
        self,
        config: BrokerConfig,
        env: Environment,
        store: MessageStore,
        topics: TopicTable,
        rules: PullRules,
        deletion_listeners: TopicDeletionListeners,
        *,
        is_slave: bool,
        admission: Admission,
    ) -> None:
        self.store = store
        self.rules = rules
        self.deletion_listeners = deletion_listeners
        self.is_slave = is_slave
        self.admission = admission
        self.broker_name = config.name
        self.root = str(config.data.absolute())
        self.stall_s = config.scan_stall_ms / 1000
        self.holds = ScanHolds(env.clock, limit_ms=config.scan_stall_ms)
        store.cleaner.holders.append(self.holds.needed_from)
        self.pool: ScanPool | None = None
        if env.processes is not None and config.scan_processes:
            self.pool = ScanPool(env.processes, env.clock, processes_max=config.scan_processes)
        self._topics = topics
        self._blocking = env.blocking

    def handlers(self) -> Sequence[Handler]:
        """Return the handlers of both RPCs."""
        return (stream(SCAN, self.scan), unary(MEASURE_QUEUES, self.measure))

    def jobs(self) -> Sequence[Job]:
        """Return the job of the pool, if there is one."""
        return () if self.pool is None else (self.pool.job,)

    def drain(self) -> None:
        """End all scans: readers ask again, elsewhere or later."""
        if self.pool is not None:
            self.pool.drain()

    async def close(self) -> None:
        """End all processes. No handler may run any more."""
        if self.pool is not None:
            await self.pool.close()

    async def scan(self, stream: ScanServerStream, call: Call) -> None:
        """Serve the ranges of one reader.

        Raises:
            BrokerBusy: The reader has read nothing for too long.
        """
        try:
            while (request := await stream.read()) is not None:
                await self._serve_range(request, stream)
        except ConnectionLost:
            return

    async def _serve_range(self, request: messages.ScanRequest, stream: ScanServerStream) -> None:
        scan = _RangeRelay(self, request, stream)
        try:
            await scan.run()
        except TernError as error:
            if scan.is_stalled or (refused := refusal_of(error)) is None:
                raise
            await scan.refuse(refused)

    async def measure(
        self, request: admin.MeasureQueuesRequest, call: Call
    ) -> admin.MeasureQueuesReply:
        """Return the sizes of ranges of queues. Cancelling is safe."""
        return await measure_queues(request, self.store, self._topics, self._blocking)


class _RangeRelay:
    """Relay of the scan of one range. Owned by the reader's stream.

    Attributes:
        is_stalled: True if the reader has read nothing for too long.
    """

    def __init__(
        self, service: ScanService, request: messages.ScanRequest, stream: ScanServerStream
    ) -> None:
        self._service = service
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
            TernError: The scan failed before the end of the range.
        """
        service, request = self._service, self._request
        service.admission.check()
        checked = checked_request(
            request, service.rules, root=service.root, broker_name=service.broker_name
        )
        pool = service.pool
        if pool is None or not has_pyarrow():
            reason = "broker.scan_processes is 0" if pool is None else "pyarrow is not installed"
            remark = f"this broker serves no Scan: {reason}"
            raise refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        self._check_kept()
        self._end = QueueOffset(min(request.end_offset, self._range()[1]))
        place = self._place()
        if self._next >= self._end:
            await self._write(ends_stretch=True)
            return
        with (
            service.holds.hold(place or PhysicalOffset(0)) as hold,
            service.deletion_listeners.listening(self._note_deleted),
        ):
            try:
                while not await self._take_turn(pool, checked, hold):
                    pass
            except (BrokerBusy, ClosedError):
                service.admission.check()
                raise

    async def refuse(self, error: RefusedError) -> None:
        """Send the refusal that ends the scan."""
        status = common.Status(code=error.code, remark=error.remark)
        await self._write(ends_stretch=True, status=status)

    def _range(self) -> tuple[QueueOffset, QueueOffset]:
        return self._service.store.queue_range(self._request.topic, self._request.queue_id)

    def _place(self) -> PhysicalOffset | None:
        """Return the log offset of the next message; None when it is gone."""
        searches, request = self._service.store.searches, self._request
        return searches.place_of(request.topic, request.queue_id, self._next)

    def _note_deleted(self, topic: str) -> None:
        self._is_deleted |= topic == self._request.topic

    def _check_kept(self) -> None:
        """Refuse messages that the queue no longer has, or whose topic was deleted.

        A slave's queue may begin later than its master's, so its reader retries.
        """
        topic = self._request.topic
        if self._is_deleted:
            raise no_topic(topic)
        first = self._range()[0]
        if self._next >= first:
            return
        is_slave = self._service.is_slave
        code = ResponseCode.PULL_RETRY_IMMEDIATELY if is_slave else ResponseCode.PULL_OFFSET_MOVED
        remark = f"queue {self._request.queue_id} of topic {topic!r} begins at {first} now: "
        raise refusal(code, remark + f"offset {self._next} is no longer kept")

    async def _take_turn(self, pool: ScanPool, checked: ScanRequest, hold: ScanHold) -> bool:
        """Scan by a process when one is free; return whether the range is over."""
        self._service.holds.extend(hold)
        async with pool.process() as process:
            self._service.holds.moved(hold, None)
            self._check_kept()
            request = replace(
                checked,
                begin_offset=self._next,
                end_offset=self._end,
                log_end=self._service.store.confirm_offset,
                may_map=pool.may_map,
            )
            await process.begin(request)
            is_over = await self._relay(process, hold, lambda: pool.is_turn_over(process))
        self._damaged_before, self._has_schema = self._damaged, True
        return is_over

    async def _relay(
        self, process: ScanProcess, hold: ScanHold, is_turn_over: Callable[[], bool]
    ) -> bool:
        """Relay the parts of the process's answer: the process waits while the reader does.

        Returns:
            True if the range is over; False if only the turn is.
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
            has_progress = is_last and kind in (FrameKind.BATCH, FrameKind.PROGRESS)
            if has_progress:
                self._note_progress(header)
            if kind is FrameKind.END and refused:
                self._raise(ScanRefusal.from_bytes(refused))
            is_over = kind is FrameKind.END and is_last
            is_batch = kind is FrameKind.BATCH and is_last
            await self._write(piece=data, ends_batch=is_batch, ends_stretch=is_over)
            self._service.holds.moved(hold, self._place())
            has_more = self._next < self._end
            if is_over or (has_progress and has_more and is_turn_over()):
                return is_over

    def _note_progress(self, header: FrameHeader) -> None:
        """Record the progress of the process."""
        self._next = QueueOffset(header.next_offset)
        self._damaged = self._damaged_before + header.damaged
        if header.rows:
            self._service.store.statistics.got(header.rows, took_ms=0, from_disk=True)

    def _raise(self, refused: ScanRefusal) -> None:
        """Raise the refusal of the process, or the broker's own error where that is more exact."""
        if refused.code is ResponseCode.PULL_OFFSET_MOVED:
            self._check_kept()
            # The file is gone, and the queue still includes its messages.
            raise BrokerBusy(ResponseCode.SYSTEM_BUSY, refused.remark)
        if self._range()[1] < self._end:
            # A slave cut its log during the scan, so the process could read any bytes there.
            raise BrokerBusy(ResponseCode.SYSTEM_BUSY, refused.remark)
        raise refusal(refused.code, refused.remark)

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
        stall_s = self._service.stall_s
        try:
            async with asyncio.timeout(stall_s):
                await self._stream.write(reply)
        except TimeoutError:
            self.is_stalled = True
            remark = f"the reader of a scan read nothing for {stall_s:g} s"
            raise BrokerBusy(ResponseCode.SYSTEM_BUSY, remark) from None
