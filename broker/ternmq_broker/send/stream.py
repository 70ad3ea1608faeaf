"""SendStream: batches of one producer, with flow control and replies in order."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ternmq_broker.send.message_writer import PutResult, SenderInfo
from ternmq_broker.send.processor import SendProcessor
from ternmq_broker.storage.ack_policy import PendingAck
from ternmq_model.arrays import pack_int32s, pack_int64s
from ternmq_model.errors import ClosedError, ConnectionLost, TernError, invalid
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.rpc import ServerStream
from ternmq_remoting.status import refusal_from
from ternmq_runtime.service import OwnedTasks

_YIELD_AFTER_MS: Final = 5
_PENDING_MAX: Final = 1024
"""Limit on waiting answers of one stream: a stream with unread answers is not read further."""

SendServerStream = ServerStream[messages.SendStreamRequest, messages.SendStreamReply]


@dataclass(slots=True)
class PendingReply:
    """Reply that waits for its turn."""

    reply: messages.SendStreamReply
    request_bytes: int
    ack: PendingAck | None = None
    """Acknowledgement for which the reply waits; None = the reply may leave at once."""


class SendingStream:
    """Stream of one producer. Reading and appending go on while earlier batches wait for the disk.

    Answers leave in the order of the requests: either at once, from the loop that reads, when
    nothing waits; or from a second task, started when the first batch has to wait.
    """

    def __init__(
        self, processor: SendProcessor, sender: SenderInfo, stream: SendServerStream
    ) -> None:
        self._processor = processor
        self._sender = sender
        self._stream = stream
        self._unanswered_bytes = 0
        self._pending: deque[PendingReply] = deque()
        self._changed = asyncio.Event()
        self._is_lost = False
        self._wakeup = asyncio.Event()
        self._is_storing = False
        self._stored = asyncio.Event()

    async def displace(self) -> None:
        """Read no more, and wait until no batch is being stored: the producer has a new stream.

        The producer may send a batch on the new stream again; it must not be stored twice.
        """
        self._is_lost = True
        self._wakeup.set()
        while self._is_storing:
            self._stored.clear()
            await self._stored.wait()

    async def run(self) -> None:
        """Serve until the producer has finished and all batches are answered."""
        async with OwnedTasks() as tasks:
            try:
                await self._read_batches(tasks)
                await self._until(lambda: not self._pending)
            except ConnectionLost:
                return
            finally:
                self._processor.admission.answered(self._unanswered_bytes)
                self._processor.admission.unwatch(self)

    async def _read_batches(self, tasks: OwnedTasks) -> None:
        processor, clock = self._processor, self._processor.clock
        has_answerer = False
        while not self._is_lost:
            if not processor.admission.has_capacity(self._unanswered_bytes):
                await self._await_capacity()
            if len(self._pending) >= _PENDING_MAX:
                await self._until(lambda: len(self._pending) < _PENDING_MAX)
            request = await self._stream.read()
            if request is None or self._is_lost:
                return
            began_ms = clock.monotonic_ms()
            self._is_storing = True
            try:
                pending = await self._store(request)
            finally:
                self._is_storing = False
                self._stored.set()
            if pending.ack is None and not self._pending:
                await self._stream.write(pending.reply)
                self._answered(pending)
            else:
                self._pending.append(pending)
                if has_answerer:
                    self._changed.set()
                else:
                    has_answerer = True
                    tasks.spawn(self._answer(), "send-answers")
            if clock.monotonic_ms() - began_ms >= _YIELD_AFTER_MS:
                await asyncio.sleep(0)

    async def _store(self, request: messages.SendStreamRequest) -> PendingReply:
        """Store one batch and return its answer."""
        processor = self._processor
        if request.WhichOneof("request") != "batch":
            raise invalid("a SendStream goes on with `batch`")
        batch = request.batch
        records = batch.records
        is_busy = not processor.admission.has_capacity(self._unanswered_bytes)
        self._unanswered_bytes += len(records)
        processor.admission.took(len(records))
        if is_busy:
            return _refused(
                ResponseCode.SYSTEM_BUSY, "too many received bytes are unanswered", len(records)
            )
        try:
            store = processor.store_again if batch.is_retry else processor.store
            stored = await store(records, batch.record_sizes, self._sender, atomic=batch.is_whole)
        except TernError as error:
            refused = refusal_from(error)
            return _refused(refused.code, refused.remark, len(records))
        pending = PendingReply(messages.SendStreamReply(stored=_reply(stored)), len(records))
        pending.ack = processor.ack_policy.begin(stored.end)
        return pending

    async def _answer(self) -> None:
        """Write answers in order, each when its batch is safe."""
        try:
            while True:
                while self._pending:
                    pending = self._pending[0]
                    if not pending.reply.stored.HasField("status"):
                        status = await self._processor.until_safe(pending.ack)
                        if status is not None:
                            pending.reply.stored.status.CopyFrom(status)
                    await self._stream.write(pending.reply)
                    self._pending.popleft()
                    self._answered(pending)
                self._changed.clear()
                await self._changed.wait()
        except (ConnectionLost, ClosedError):
            self._is_lost = True  # the transport ends the other task
            self._wakeup.set()

    def _answered(self, pending: PendingReply) -> None:
        self._unanswered_bytes -= pending.request_bytes
        self._processor.admission.answered(pending.request_bytes)

    async def _await_capacity(self) -> None:
        """Wait for capacity, at most `unread_max_ms`."""
        await self._until(
            lambda: self._processor.admission.has_capacity(self._unanswered_bytes),
            timeout_s=self._processor.live.broker.unread_max_ms / 1000,
        )

    async def _until(
        self, condition: Callable[[], bool], *, timeout_s: float | None = None
    ) -> None:
        """Wait until answers make `condition` true, or the time is over."""
        self._processor.admission.watch(self, self._wakeup.set)
        try:
            async with asyncio.timeout(timeout_s):
                while not condition() and not self._is_lost:
                    self._wakeup.clear()
                    await self._wakeup.wait()
        except TimeoutError:
            return
        finally:
            self._processor.admission.unwatch(self)


def _reply(stored: PutResult) -> messages.SendBatchReply:
    reply = messages.SendBatchReply(
        queue_offsets=pack_int64s(stored.queue_offsets),
        physical_offsets=pack_int64s(stored.physical_offsets),
        stored_at_ms=stored.stored_at_ms,
    )
    if stored.queue_ids is not None:
        reply.queue_ids = pack_int32s(stored.queue_ids)
    for index, code, remark in stored.refused:
        reply.refused.add(index=index, status={"code": code, "remark": remark})
    return reply


def _refused(code: int, remark: str, request_bytes: int) -> PendingReply:
    """Return the answer for a batch that was not stored."""
    reply = messages.SendBatchReply(status={"code": code, "remark": remark})
    return PendingReply(messages.SendStreamReply(stored=reply), request_bytes)
