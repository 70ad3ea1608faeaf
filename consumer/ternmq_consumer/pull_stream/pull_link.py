"""Pull stream of a consumer to one broker, for all of its queues there.

A subscription (`PulledQueue`) outlives the stream. A broken stream is opened again, and every
subscription continues at the offset after its last reply. Replies that were lost are read again: no
message is skipped, and none comes twice. A subscription ends when the broker has no such queue.

A subscription has a number on the wire, new for each request, so that late replies to an earlier
request are recognised and dropped.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from ternmq_client.retry_policy import RetryPolicy
from ternmq_client.telemetry.client_telemetry import ClientTelemetry
from ternmq_consumer.broker_connections import BrokerConnections
from ternmq_consumer.pull_stream.flow_control import FlowControlWindow
from ternmq_consumer.pull_stream.pulled_queue import PulledQueue, PullReceiver
from ternmq_consumer.subscriptions import subscription_message
from ternmq_model.errors import (
    ClosedError,
    CorruptRecord,
    PermissionRefused,
    RefusedError,
    TernError,
    TransportError,
    refusal,
)
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import MASTER_ID
from ternmq_model.subscription import Subscription
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import ClientStream
from ternmq_remoting.service_methods import PULL_STREAM
from ternmq_runtime.service import OwnedTasks

logger = logging.getLogger(__name__)

STALE_AFTER_S: Final = 120.0
"""Silence after which a subscription with an unused window is sent again, s.

Source: RocketMQ `ProcessQueue.isPullExpired`.
"""

_FEW_BYTES: Final = 16 << 10
"""Length of the records of a reply up to which they are handed out before the next read begins."""

_GONE: Final = frozenset({ResponseCode.TOPIC_NOT_EXIST, ResponseCode.INVALID_PARAMETER})
"""Codes that end a subscription: the broker does not have the topic or the queue."""

_NO_CONDITION: Final = frozenset(
    {ResponseCode.SYSTEM_ERROR, ResponseCode.SUBSCRIPTION_PARSE_FAILED}
)
"""Codes that refuse a filter: the broker supports none, or cannot parse this one."""

_REOPEN: Final = RetryPolicy(delay_s_first=0.2, delay_s_max=5.0)
_RESUBSCRIBE: Final = RetryPolicy(delay_s_first=1.0, delay_s_max=10.0)

PullStream = ClientStream[messages.PullStreamReply, messages.PullStreamRequest]


class ReplicaSelector(Protocol):
    """Selects the member of a broker name from which a queue is read. Its methods do not wait."""

    def suggested(self, pulled_queue: PulledQueue, broker_id: int) -> None:
        """Handle the present member's suggestion of another one."""
        ...

    def failed(self, pulled_queues: Sequence[PulledQueue], broker_id: int, reason: str) -> bool:
        """Handle the failure of a member to serve these queues.

        Returns:
            True = another member serves the queues now.
        """
        ...


class FixedReplica:
    """Selector that never changes the member of a queue."""

    def suggested(self, pulled_queue: PulledQueue, broker_id: int) -> None:
        """Ignore the event."""

    def failed(self, pulled_queues: Sequence[PulledQueue], broker_id: int, reason: str) -> bool:
        """Ignore the event."""
        return False


class PullLink:
    """Pull stream of one consumer to one broker. Used by one event loop.

    The owner runs `run` as a task. Only that task uses the stream.

    Args:
        env: Clock, network and blocking calls.
        broker_id: Id of the member; 0 = the master.
        group: Consumer group; may be empty.
        telemetry: Telemetry of the client; None = none.
    """

    def __init__(
        self,
        env: Environment,
        brokers: BrokerConnections,
        *,
        broker_name: str,
        client_id: str,
        group: str,
        broker_id: int = MASTER_ID,
        selector: ReplicaSelector | None = None,
        telemetry: ClientTelemetry | None = None,
    ) -> None:
        self._env = env
        self._brokers = brokers
        self._broker_name = broker_name
        self._broker_id = broker_id
        self._selector: ReplicaSelector = selector or FixedReplica()
        self._telemetry = telemetry
        self._address = ""
        self._open = messages.PullStreamOpen(client_id=client_id, group=group)
        self._queues: dict[PulledQueue, None] = {}  # a dict keeps order: runs must repeat
        self._by_number: dict[int, PulledQueue] = {}
        self._next_number = 1
        self._outbox: deque[messages.PullStreamRequest] = deque()
        self._changed = asyncio.Event()
        self._is_streaming = False
        self._failures = 0
        self._epoch = 0

    @property
    def queues(self) -> list[PulledQueue]:
        """Queues that are read over this link."""
        return list(self._queues)

    def subscribe(
        self,
        queue: MessageQueue,
        subscription: Subscription,
        start: QueueOffset,
        window: FlowControlWindow,
        receiver: PullReceiver,
        *,
        epoch: int = 0,
    ) -> PulledQueue:
        """Read `queue` from `start` on and pass the replies to `receiver`.

        `epoch` is the broker's epoch at the reply with `start`; 0 = unknown.
        """
        pulled_queue = PulledQueue(self, queue, subscription, start, window, receiver, epoch)
        self.take_over(pulled_queue)
        return pulled_queue

    def take_over(self, pulled_queue: PulledQueue) -> None:
        """Read a queue that no link reads. See `PulledQueue.go_to`."""
        self._queues[pulled_queue] = None
        if self._is_streaming:
            self._send_subscribe(pulled_queue)
        self._changed.set()

    def give_up(self, pulled_queue: PulledQueue) -> None:
        """Stop reading a queue without closing it. See `PulledQueue.go_to`."""
        del self._queues[pulled_queue]
        self._take_number(pulled_queue, tell_broker=True)

    def unsubscribe(self, pulled_queue: PulledQueue) -> None:
        """See `PulledQueue.close`."""
        if not pulled_queue.is_open:
            return
        pulled_queue.is_open = False
        self.give_up(pulled_queue)

    def renew_stale(self) -> None:
        """Resend subscriptions with an unused window and no reply for `STALE_AFTER_S`.

        A queue without new messages is resent too, without effect.
        """
        now_ms = self._env.clock.monotonic_ms()
        for pulled_queue in self._queues:
            silent_ms = now_ms - pulled_queue.answered_at_ms
            if (
                pulled_queue.number
                and pulled_queue.ledger.is_unused
                and silent_ms >= STALE_AFTER_S * 1000
            ):
                self._take_number(pulled_queue, tell_broker=True)
                self._send_subscribe(pulled_queue)

    def write(self, request: messages.PullStreamRequest) -> None:
        """Send `request` on the open stream, if any, without waiting."""
        if self._is_streaming:
            self._outbox.append(request)
            self._changed.set()

    async def run(self) -> None:
        """Keep the stream open while there are subscriptions, until cancelled."""
        again_at_ms = 0
        while True:
            while not self._queues:
                self._changed.clear()
                await self._changed.wait()
            if (pause_ms := again_at_ms - self._env.clock.monotonic_ms()) > 0:
                # Two members that both refuse would pass a queue to each other for ever.
                await self._env.timers.sleep(pause_ms / 1000)
                again_at_ms = 0
                continue
            error = await self._stream_once()
            reason = "the broker has ended it" if error is None else str(error)
            if (task := asyncio.current_task()) is not None and task.cancelling():
                # A stream that breaks in the instant of cancelling hides the cancellation.
                raise asyncio.CancelledError
            self._failures += 1
            delay_s = _REOPEN.delay_s(self._failures, self._env.random)
            again_at_ms = self._env.clock.monotonic_ms() + int(delay_s * 1000)
            if not self._queues or self._selector.failed(self.queues, self._broker_id, reason):
                continue  # what a slave does not permit, or no more, its master may
            is_lasting = False
            if isinstance(error, RefusedError):
                # A refusal lasts until an operator changes a name or a permission.
                is_lasting = isinstance(error, PermissionRefused) or not error.retryable
            if isinstance(error, RefusedError) and is_lasting:
                for pulled_queue in self.queues:
                    pulled_queue.receiver.on_refused(error)
            logger.log(
                logging.WARNING if is_lasting else logging.INFO,
                "pull stream broke broker=%s broker_id=%s queues=%s retry_s=%.1f reason=%s",
                self._broker_name,
                self._broker_id,
                len(self._queues),
                delay_s,
                reason,
            )

    async def _stream_once(self) -> TernError | None:
        """Serve one stream until it ends. Return the error that ended it."""
        try:
            connection = await self._brokers.broker(self._broker_name, self._broker_id)
        except (TransportError, RefusedError) as error:
            return error
        self._address = "" if self._telemetry is None else str(connection.address)
        self._epoch = 0 if connection.identity is None else connection.identity.epoch
        try:
            await self._stream(connection.open(PULL_STREAM))
        except TransportError as error:
            self._brokers.forget(self._broker_name, connection, self._broker_id)
            return error
        except (RefusedError, ClosedError) as error:
            return error
        return None

    async def _stream(self, stream: PullStream) -> None:
        """Serve every subscription on `stream` until the stream ends.

        Raises:
            TransportError: The connection broke.
            RefusedError: The broker ended the stream.
            ClosedError: This client ended the stream.
        """
        self._outbox.append(messages.PullStreamRequest(open=self._open))
        self._is_streaming = True
        for pulled_queue in self._queues:
            self._send_subscribe(pulled_queue)
        try:
            async with OwnedTasks() as tasks:
                name = f"pull-write-{self._broker_name}-{self._broker_id}"
                writing = tasks.spawn(self._write(stream), name)
                await self._read(stream)
            if not writing.cancelled() and (error := writing.result()) is not None:
                raise error
        finally:
            stream.cancel()
            self._is_streaming = False
            self._outbox.clear()
            for pulled_queue in self._queues:
                self._take_number(pulled_queue, tell_broker=False)

    async def _read(self, stream: PullStream) -> None:
        telemetry = self._telemetry
        began_s = 0.0 if telemetry is None else telemetry.now_s()
        while (reply := await stream.read()) is not None:
            self._failures = 0
            now_ms = self._env.clock.monotonic_ms()
            record_bytes = 0
            for pulled in reply.pulled:
                pulled_queue = self._by_number.get(pulled.handle)
                if pulled_queue is not None:
                    pulled_queue.answered_at_ms = now_ms
                    record_bytes += self._receive(pulled_queue, pulled)
                    if telemetry is not None and pulled.record_sizes:
                        where = (began_s, self._address, self._open.group)
                        queue, sizes = pulled_queue.queue, pulled.record_sizes
                        telemetry.received(queue, pulled.records, sizes, *where)
            began_s = 0.0 if telemetry is None else telemetry.now_s()
            if record_bytes <= _FEW_BYTES:
                # The listener first: gRPC takes 20 µs to begin a read. It reads on beside many.
                await asyncio.sleep(0)

    async def _write(self, stream: PullStream) -> TernError | None:
        """Write queued requests. Return the error that ended the stream.

        The first of writer and reader gets the error of a stream, a refusal included.
        """
        outbox = self._outbox
        while True:
            while outbox:
                try:
                    await stream.write(outbox.popleft())
                except TernError as error:
                    stream.cancel()  # wakes the reader
                    return error
            self._changed.clear()
            await self._changed.wait()

    def _receive(self, pulled_queue: PulledQueue, pulled: messages.PulledRecords) -> int:
        """Handle a queue's part of a reply and return the length of its records in bytes."""
        code, record_bytes = pulled.status.code, 0
        try:
            if code == ResponseCode.SUCCESS:
                record_bytes = self._take_records(pulled_queue, pulled)
                if pulled.suggested_broker_id != self._broker_id and pulled_queue.is_open:
                    self._selector.suggested(pulled_queue, pulled.suggested_broker_id)
            elif self._broker_id != MASTER_ID and self._selector.failed(
                [pulled_queue], self._broker_id, f"{pulled.status.remark} [{code}]"
            ):
                return 0  # what a slave does not have, or not yet, its master knows
            elif code == ResponseCode.PULL_OFFSET_MOVED:
                logger.warning(
                    "offset out of range queue=%s from=%s to=%s min_offset=%s max_offset=%s",
                    pulled_queue.queue,
                    pulled_queue.next_offset,
                    pulled.next_offset,
                    pulled.min_offset,
                    pulled.max_offset,
                )
                pulled_queue.advance(QueueOffset(pulled.next_offset), self._epoch)
                pulled_queue.receiver.on_moved(pulled_queue.next_offset)
            elif code in _GONE and self._broker_id == MASTER_ID:
                self._end(pulled_queue, refusal(code, pulled.status.remark, self._broker_name))
            else:
                if code == ResponseCode.NO_PERMISSION or (
                    code in _NO_CONDITION and pulled_queue.subscription.condition is not None
                ):
                    error = refusal(code, pulled.status.remark, self._broker_name)
                    pulled_queue.receiver.on_refused(error)
                self._try_again(pulled_queue, f"{pulled.status.remark} [{code}]", tell_broker=False)
        except CorruptRecord as broken:
            logger.error("pulled records are corrupt queue=%s", pulled_queue.queue)
            self._try_again(pulled_queue, str(broken), tell_broker=True)
        return record_bytes

    def _end(self, pulled_queue: PulledQueue, error: RefusedError) -> None:
        """Drop a subscription that the broker has ended."""
        logger.warning(
            "queue is gone queue=%s offset=%s err=%s",
            pulled_queue.queue,
            pulled_queue.next_offset,
            error,
        )
        self._take_number(pulled_queue, tell_broker=False)
        self.unsubscribe(pulled_queue)
        pulled_queue.receiver.on_gone(error)

    def _take_records(self, pulled_queue: PulledQueue, pulled: messages.PulledRecords) -> int:
        if pulled.next_offset < pulled_queue.next_offset:
            self._try_again(
                pulled_queue, f"the broker went back to {pulled.next_offset}", tell_broker=True
            )
            return 0
        count = len(pulled.record_sizes) // 4
        record_bytes = pulled_queue.receiver.on_records(pulled)
        # Credit is taken last: a reply that the receiver refuses is read again and takes none.
        pulled_queue.ledger.receive(count, record_bytes)
        pulled_queue.advance(QueueOffset(pulled.next_offset), self._epoch)
        pulled_queue.failures = 0
        return record_bytes

    def _try_again(self, pulled_queue: PulledQueue, reason: str, *, tell_broker: bool) -> None:
        """End this subscription and subscribe again after a pause."""
        self._take_number(pulled_queue, tell_broker=tell_broker)
        pulled_queue.failures += 1
        delay_s = _RESUBSCRIBE.delay_s(pulled_queue.failures, self._env.random)
        logger.warning(
            "pull ended queue=%s offset=%s retry_s=%.1f reason=%s",
            pulled_queue.queue,
            pulled_queue.next_offset,
            delay_s,
            reason,
        )
        pulled_queue.retry = self._env.timers.call_later(
            delay_s, self._send_subscribe, pulled_queue
        )

    def _send_subscribe(self, pulled_queue: PulledQueue) -> None:
        """Send a subscription to the broker with a new number."""
        number, self._next_number = self._next_number, self._next_number + 1
        self._by_number[number] = pulled_queue
        pulled_queue.number = number
        if not pulled_queue.epoch:
            pulled_queue.epoch = (
                self._epoch
            )  # as the broker takes it now; its log may end earlier later
        pulled_queue.answered_at_ms = self._env.clock.monotonic_ms()
        credit = pulled_queue.ledger.opening()
        self.write(
            messages.PullStreamRequest(
                subscribe=messages.PullSubscribe(
                    handle=number,
                    topic=pulled_queue.queue.topic,
                    queue_id=pulled_queue.queue.queue_id,
                    offset=pulled_queue.next_offset,
                    subscription=subscription_message(pulled_queue.subscription),
                    credit_bytes=credit.record_bytes,
                    credit_messages=credit.messages,
                    offset_epoch=pulled_queue.epoch,
                    offset_is_chosen=pulled_queue.is_chosen,
                )
            )
        )

    def _take_number(self, pulled_queue: PulledQueue, *, tell_broker: bool) -> None:
        """Drop replies to the present number, and cancel a planned retry."""
        if pulled_queue.retry is not None:
            pulled_queue.retry.cancel()
            pulled_queue.retry = None
        number, pulled_queue.number = pulled_queue.number, 0
        if number:
            del self._by_number[number]
            if tell_broker:
                self.write(
                    messages.PullStreamRequest(unsubscribe=messages.PullUnsubscribe(handle=number))
                )
