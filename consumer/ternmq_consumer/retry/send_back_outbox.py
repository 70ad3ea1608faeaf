"""Outbox of messages that go back to their brokers for a retry.

A message is finished only after its broker has confirmed the stored copy. Each broker gets one
request at a time; messages that come meanwhile form the next request.

Source: RocketMQ `DefaultMQPushConsumerImpl.sendMessageBack`.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from ternmq_client.telemetry.client_telemetry import ClientTelemetry
from ternmq_client.telemetry.operation_key import topic_of_all
from ternmq_consumer.broker_connections import BrokerConnections
from ternmq_consumer.consume_status import DEAD_LETTER
from ternmq_model.errors import ClosedError, TernError
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.stored_message import StoredMessage
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting.service_methods import SEND_BACK
from ternmq_runtime.service import OwnedTasks

logger = logging.getLogger(__name__)

REQUEST_MESSAGES_MAX: Final = 1024
"""Most messages of one request. Source: the contract."""


@dataclass(slots=True, eq=False)
class SendBackBatch:
    """Messages of one hand-out on their way back to their broker."""

    queue: MessageQueue
    messages: Sequence[StoredMessage]
    levels: Sequence[int]
    """Delay level of each message, as in `ReconsumeLater.delay_level`."""

    is_wanted: Callable[[], bool]
    """Function called before sending. False = the queue has another owner now: nothing is sent."""

    on_answer: Callable[["SendBackBatch"], None]
    """Function called when every message has an answer."""

    token: int = 0
    """Token of the queue's lock; 0 = no lock."""

    refused: list[StoredMessage] = field(default_factory=list[StoredMessage])
    """Messages that the broker has not confirmed, in the order of their offsets."""

    is_fenced: bool = False
    """The broker called the token stale."""

    waiting: int = 0
    """Number of messages without an answer."""


def failed_message(
    message: StoredMessage, level: int, *, retries_max: int, token: int, version: int
) -> groups.FailedMessage:
    """Return the entry of a message in a send-back request. Pure.

    Args:
        message: Message that the listener got, with its number of retries.
        level: Delay level, as in `ReconsumeLater.delay_level`.
        retries_max: Retries before the message is a dead letter; −1 = the group's setting.
        token: Token of the queue's lock; 0 = no lock.
        version: Version of the queue's offset.
    """
    return groups.FailedMessage(
        physical_offset=message.physical_offset,
        message_id=message.message_id,
        topic=message.queue.topic,
        queue_id=message.queue.queue_id,
        queue_offset=message.queue_offset,
        # 0 in the contract stands for -1 here, and a level stands for "no retries".
        delay_level=DEAD_LETTER if retries_max == 0 else level,
        attempts_max=max(0, retries_max),
        lock_token=token,
        reconsume_times=message.reconsume_times,
        version=version,
    )


class OffsetVersionSource(Protocol):
    """Source of the versions of queues' offsets: a `RemoteOffsetStore`."""

    async def versions(self, queues: Iterable[MessageQueue]) -> Mapping[MessageQueue, int]:
        """Return the versions of queues whose brokers have every seek. Others are missing."""
        ...

    def resend_offsets(self, broker_name: str) -> None:
        """Send offsets and versions to the broker again."""
        ...


class SendBackOutbox:
    """Sends messages back, broker by broker. Owned by one consumer; used by its event loop.

    Args:
        tasks: Owner of the tasks that wait for answers.
        timeout_s: Timeout of each request, s.
        retries_max: Retries before a message is a dead letter; −1 = the group's setting.
        offsets: Offsets of the group. Seeks are committed first: a message with a version that its
            broker does not have yet would count as stored after a later seek.
        on_confirmed: Called with the name of a broker and the number of confirmed messages.
        send_copy: Coroutine function that sends a copy of a message without a record, with its
            level, and returns whether the broker stored it. None = no copies.
        telemetry: Telemetry of the client; None = none.
    """

    def __init__(
        self,
        brokers: BrokerConnections,
        tasks: OwnedTasks,
        *,
        group: str,
        client_id: str,
        timeout_s: float,
        retries_max: int,
        offsets: OffsetVersionSource,
        on_confirmed: Callable[[str, int], None],
        send_copy: Callable[[StoredMessage, int], Awaitable[bool]] | None = None,
        telemetry: ClientTelemetry | None = None,
    ) -> None:
        self._telemetry = telemetry
        self._brokers = brokers
        self._tasks = tasks
        self._group = group
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._retries_max = retries_max
        self._offsets = offsets
        self._on_confirmed = on_confirmed
        self._send_copy = send_copy
        self._outboxes: dict[str, deque[tuple[SendBackBatch, int]]] = {}

    def add(self, batch: SendBackBatch) -> None:
        """Add `batch` to the next request of its broker.

        `batch.on_answer` is called after this call returns, when every message has an answer; never
        if the consumer is closed before.
        """
        assert batch.messages, "a batch has messages"
        batch.waiting = len(batch.messages)
        broker_name = batch.queue.broker_name
        outbox = self._outboxes.get(broker_name)
        is_idle = outbox is None
        if outbox is None:
            outbox = self._outboxes[broker_name] = deque()
        outbox.extend((batch, index) for index in range(len(batch.messages)))
        if is_idle:
            try:
                self._tasks.spawn(self._empty(broker_name, outbox), f"send back {broker_name}")
            except ClosedError:
                logger.info(
                    "not sent back since the consumer is being closed queue=%s", batch.queue
                )

    async def _empty(self, broker_name: str, outbox: deque[tuple[SendBackBatch, int]]) -> None:
        try:
            while outbox:
                await self._send(broker_name, outbox)
        finally:
            del self._outboxes[broker_name]

    async def _send(self, broker_name: str, outbox: deque[tuple[SendBackBatch, int]]) -> None:
        """Send one request with waiting messages and record the answers."""
        taken = [outbox.popleft() for _ in range(min(len(outbox), REQUEST_MESSAGES_MAX))]
        versions = await self._offsets.versions(
            {batch.queue for batch, _ in taken if batch.is_wanted()}
        )
        going: list[tuple[SendBackBatch, int]] = []
        for batch, index in taken:
            if batch.is_wanted() and batch.queue in versions:
                going.append((batch, index))
            else:
                _answer(batch, index, ResponseCode.SYSTEM_ERROR)
        if not going:
            return
        request = groups.SendBackRequest(
            group=self._group,
            client_id=self._client_id,
            messages=[
                failed_message(
                    batch.messages[index],
                    batch.levels[index],
                    retries_max=self._retries_max,
                    token=batch.token,
                    version=versions[batch.queue],
                )
                for batch, index in going
            ],
        )
        codes = await self._ask(
            broker_name, request, [batch.messages[index] for batch, index in going]
        )
        if ResponseCode.PULL_OFFSET_MOVED in codes:
            self._offsets.resend_offsets(broker_name)  # it has lost a version
        for number, (batch, index) in enumerate(going):
            if codes[number] == ResponseCode.QUERY_NOT_FOUND and self._send_copy is not None:
                is_there = await self._send_copy(batch.messages[index], batch.levels[index])
                codes[number] = int(ResponseCode.SUCCESS) if is_there else codes[number]
        confirmed = codes.count(ResponseCode.SUCCESS)
        if confirmed:
            self._on_confirmed(broker_name, confirmed)
        for (batch, index), code in zip(going, codes, strict=True):
            _answer(batch, index, code)

    async def _ask(
        self, broker_name: str, request: groups.SendBackRequest, sent: Sequence[StoredMessage]
    ) -> list[int]:
        """Return the broker's code for each message. A missing code is a failure."""
        count = len(request.messages)
        address, began_s = "", 0.0 if self._telemetry is None else self._telemetry.now_s()
        try:
            connection = await self._brokers.broker(broker_name)
            if self._telemetry is not None:
                address = str(connection.address)
            reply = await connection.call(SEND_BACK, request, timeout_s=self._timeout_s)
        except TernError as error:
            self._record(began_s, address, sent, error)
            logger.warning(
                "messages not returned broker=%s group=%s messages=%s err=%s",
                broker_name,
                self._group,
                count,
                error,
            )
            return [int(ResponseCode.SYSTEM_ERROR)] * count
        self._record(began_s, address, sent, None)
        codes = [status.code for status in reply.outcomes[:count]]
        codes += [int(ResponseCode.SYSTEM_ERROR)] * (count - len(codes))
        refusals = [status for status in reply.outcomes if status.code]
        if refusals:
            logger.warning(
                "messages refused by the broker broker=%s group=%s messages=%s count=%s reason=%s"
                " code=%s",
                broker_name,
                self._group,
                len(refusals),
                count,
                refusals[0].remark,
                refusals[0].code,
            )
        return codes

    def _record(
        self,
        began_s: float,
        address: str,
        sent: Sequence[StoredMessage],
        error: TernError | None,
    ) -> None:
        """Record the request, and the span of its sampled messages."""
        if self._telemetry is None:
            return
        self._telemetry.settled(
            began_s,
            address,
            self._telemetry.sent_back(sent) or (),
            topic=topic_of_all(message.topic for message in sent),
            group=self._group,
            count=len(sent),
            error=error,
            outcome="send_back",
        )


def _answer(batch: SendBackBatch, index: int, code: int) -> None:
    """Record the outcome of one message; notify the owner of the batch after the last one."""
    if code != ResponseCode.SUCCESS:
        batch.refused.append(batch.messages[index])
        batch.is_fenced = batch.is_fenced or code == ResponseCode.NO_PERMISSION
    batch.waiting -= 1
    if not batch.waiting:
        batch.on_answer(batch)
