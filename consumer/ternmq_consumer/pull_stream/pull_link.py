"""One stream per broker by which a consumer reads all its queues there.

A subscription (`PulledQueue`) outlives the stream: when the stream breaks it is opened again, and
every subscription goes on at the offset after the last reply that arrived. What was on its way is
read again; nothing is skipped and nothing comes twice. Only when the broker says that there is no
such queue the subscription is over.

On the wire a subscription has a number, new each time it is sent, so that replies to an earlier
one, which may still be under way, are told apart and dropped.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from ternmq_client.retry_policy import RetryPolicy
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

_GONE: Final = frozenset({ResponseCode.TOPIC_NOT_EXIST, ResponseCode.INVALID_PARAMETER})
"""By these a broker ends a subscription whose topic it does not have, or not that queue of it."""

_NO_CONDITION: Final = frozenset(
    {ResponseCode.SYSTEM_ERROR, ResponseCode.SUBSCRIPTION_PARSE_FAILED}
)
"""By these a broker refuses a condition: it serves none, or cannot read this one."""

_REOPEN: Final = RetryPolicy(delay_s_first=0.2, delay_s_max=5.0)
_RESUBSCRIBE: Final = RetryPolicy(delay_s_first=1.0, delay_s_max=10.0)

PullStream = ClientStream[messages.PullStreamReply, messages.PullStreamRequest]


class ReplicaSelector(Protocol):
    """Selects the member of its broker name that a queue is read from. Must not wait."""

    def suggested(self, pulled_queue: PulledQueue, broker_id: int) -> None:
        """Handle the suggestion of another member by the present one."""
        ...

    def failed(self, pulled_queues: Sequence[PulledQueue], broker_id: int, reason: str) -> bool:
        """Handle the failure of a member to serve these queues.

        Returns:
            Whether they are read from another one now.
        """
        ...


class FixedReplica:
    """Leaves every queue at the member it is read from."""

    def suggested(self, pulled_queue: PulledQueue, broker_id: int) -> None:
        """Do nothing."""

    def failed(self, pulled_queues: Sequence[PulledQueue], broker_id: int, reason: str) -> bool:
        """Do nothing."""
        return False


class PullLink:
    """The pull stream of one consumer to one broker. Used by one event loop.

    Its owner runs `run` as a task; that alone touches the stream.

    Args:
        env: The seams.
        brokers: Gives the connection.
        broker_name: Whom to read from.
        broker_id: Which member of that name; 0 = the master.
        selector: Told when another member should be read from.
        client_id: Whose stream it is.
        group: For whom it reads; may be empty.
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
    ) -> None:
        self._env = env
        self._brokers = brokers
        self._broker_name = broker_name
        self._broker_id = broker_id
        self._selector: ReplicaSelector = selector or FixedReplica()
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
        """The queues that are read over this link."""
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
        """Begin to read `queue` at `start`; `receiver` gets what is read.

        `epoch` is the broker's when it told of `start`, 0 where that is not known.
        """
        pulled_queue = PulledQueue(self, queue, subscription, start, window, receiver, epoch)
        self.take_over(pulled_queue)
        return pulled_queue

    def take_over(self, pulled_queue: PulledQueue) -> None:
        """Read a queue that nobody reads. See `PulledQueue.go_to`."""
        self._queues[pulled_queue] = None
        if self._is_streaming:
            self._send_subscribe(pulled_queue)
        self._changed.set()

    def give_up(self, pulled_queue: PulledQueue) -> None:
        """Read a queue no more, which stays open. See `PulledQueue.go_to`."""
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

        A queue without new messages is among them; for that one it changes nothing.
        """
        now_ms = self._env.clock.monotonic_ms()
        for pulled_queue in self._queues:
            silent_ms = now_ms - pulled_queue.heard_at_ms
            if (
                pulled_queue.number
                and pulled_queue.ledger.is_unused
                and silent_ms >= STALE_AFTER_S * 1000
            ):
                self._take_number(pulled_queue, tell_broker=True)
                self._send_subscribe(pulled_queue)

    def write(self, request: messages.PullStreamRequest) -> None:
        """Send `request` on the present stream, if there is one, without waiting."""
        if self._is_streaming:
            self._outbox.append(request)
            self._changed.set()

    async def run(self) -> None:
        """Hold the stream open while there are subscriptions, until cancelled."""
        again_at_ms = 0
        while True:
            while not self._queues:
                self._changed.clear()
                await self._changed.wait()
            if (pause_ms := again_at_ms - self._env.clock.monotonic_ms()) > 0:
                # Queues that come back from a member that refuses as well would run in circles.
                await asyncio.sleep(pause_ms / 1000)
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
                # By itself it does not heal: somebody has to change a name, or a permission.
                is_lasting = isinstance(error, PermissionRefused) or not error.retryable
            if isinstance(error, RefusedError) and is_lasting:
                for pulled_queue in self.queues:
                    pulled_queue.receiver.on_refused(error)
            logger.log(
                logging.WARNING if is_lasting else logging.INFO,
                "pull stream broke broker=%s id=%s queues=%s retry_s=%.1f reason=%s",
                self._broker_name,
                self._broker_id,
                len(self._queues),
                delay_s,
                reason,
            )

    async def _stream_once(self) -> TernError | None:
        """Hold one stream from its beginning to its end; return why it broke."""
        try:
            connection = await self._brokers.broker(self._broker_name, self._broker_id)
        except (TransportError, RefusedError) as error:
            return error
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
        """Serve every subscription on `stream` until it ends or breaks.

        Raises:
            TransportError: It broke.
            RefusedError: The broker has ended it.
            ClosedError: It was ended on this side.
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
        while (reply := await stream.read()) is not None:
            self._failures = 0
            now_ms = self._env.clock.monotonic_ms()
            for pulled in reply.pulled:
                pulled_queue = self._by_number.get(pulled.handle)
                if pulled_queue is not None:
                    pulled_queue.heard_at_ms = now_ms
                    self._receive(pulled_queue, pulled)

    async def _write(self, stream: PullStream) -> TernError | None:
        """Write what is due; return why that can go on no more.

        Whoever is first, writer or reader, learns why a stream is over, a refusal included.
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

    def _receive(self, pulled_queue: PulledQueue, pulled: messages.PulledRecords) -> None:
        code = pulled.status.code
        try:
            if code == ResponseCode.SUCCESS:
                self._take_records(pulled_queue, pulled)
                if pulled.suggested_broker_id != self._broker_id and pulled_queue.is_open:
                    self._selector.suggested(pulled_queue, pulled.suggested_broker_id)
            elif self._broker_id != MASTER_ID and self._selector.failed(
                [pulled_queue], self._broker_id, f"{pulled.status.remark} [{code}]"
            ):
                return  # what a slave does not have, or not yet, its master knows
            elif code == ResponseCode.PULL_OFFSET_MOVED:
                logger.warning(
                    "offset corrected queue=%s from=%s to=%s min=%s max=%s",
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

    def _end(self, pulled_queue: PulledQueue, error: RefusedError) -> None:
        """Forget a subscription that the broker has ended for good."""
        logger.warning(
            "queue is gone queue=%s offset=%s reason=%s",
            pulled_queue.queue,
            pulled_queue.next_offset,
            error,
        )
        self._take_number(pulled_queue, tell_broker=False)
        self.unsubscribe(pulled_queue)
        pulled_queue.receiver.on_gone(error)

    def _take_records(self, pulled_queue: PulledQueue, pulled: messages.PulledRecords) -> None:
        if pulled.next_offset < pulled_queue.next_offset:
            self._try_again(
                pulled_queue, f"the broker went back to {pulled.next_offset}", tell_broker=True
            )
            return
        count, record_bytes = len(pulled.record_sizes) // 4, len(pulled.records)
        pulled_queue.receiver.on_records(pulled)
        # Only now: what could not be taken is asked for again, and takes no credit.
        pulled_queue.ledger.receive(count, record_bytes)
        pulled_queue.advance(QueueOffset(pulled.next_offset), self._epoch)
        pulled_queue.failures = 0

    def _try_again(self, pulled_queue: PulledQueue, reason: str, *, tell_broker: bool) -> None:
        """Subscribe anew after a pause: this subscription has ended, or is ended here."""
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
        pulled_queue.retry = asyncio.get_running_loop().call_later(
            delay_s, self._send_subscribe, pulled_queue
        )

    def _send_subscribe(self, pulled_queue: PulledQueue) -> None:
        """Send a subscription to the broker, under a new number."""
        number, self._next_number = self._next_number, self._next_number + 1
        self._by_number[number] = pulled_queue
        pulled_queue.number = number
        if not pulled_queue.epoch:
            pulled_queue.epoch = (
                self._epoch
            )  # as the broker takes it now; its log may end earlier later
        pulled_queue.heard_at_ms = self._env.clock.monotonic_ms()
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
