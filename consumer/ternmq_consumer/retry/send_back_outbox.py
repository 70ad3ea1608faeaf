"""The outbox of messages that could not be consumed, on their way back to their brokers.

Nothing is finished by asking: a message counts as given back when its broker has confirmed that the
copy is stored, and not before. What comes meanwhile forms the next request, one at a time for each
broker.

Source: RocketMQ `DefaultMQPushConsumerImpl.sendMessageBack`.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

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
"""Most messages of one request, by the contract."""


@dataclass(slots=True, eq=False)
class SendBackBatch:
    """Messages of one hand-out on their way back to their broker."""

    queue: MessageQueue
    messages: Sequence[StoredMessage]
    levels: Sequence[int]
    """For each message, when to try it again: as in `ReconsumeLater.delay_level`."""

    is_wanted: Callable[[], bool]
    """Asked before sending: a queue that was dropped meanwhile is its next owner's."""

    on_answer: Callable[["SendBackBatch"], None]
    """Called once every message has an answer."""

    token: int = 0
    """Token of the queue's lock; 0 = it has none."""

    refused: list[StoredMessage] = field(default_factory=list[StoredMessage])
    """Messages that the broker has not confirmed, by offset."""

    is_fenced: bool = False
    """The broker called the token stale."""

    waiting: int = 0
    """Messages without an answer."""


def failed_message(
    message: StoredMessage, level: int, *, retries_max: int, token: int, version: int
) -> groups.FailedMessage:
    """Return what a broker is told of a message. Pure.

    Args:
        message: As it was handed to the listener, with the retries before that.
        level: As in `ReconsumeLater.delay_level`.
        retries_max: After how many retries it is a dead letter; −1 = as the group's settings say.
        token: Of the queue's lock; 0 = it has none.
        version: Of the queue's offset.
    """
    return groups.FailedMessage(
        physical_offset=message.physical_offset,
        message_id=message.message_id,
        topic=message.queue.topic,
        queue_id=message.queue.queue_id,
        queue_offset=message.queue_offset,
        # The contract's 0 means what our -1 does, and none at all is said by the level.
        delay_level=DEAD_LETTER if retries_max == 0 else level,
        attempts_max=max(0, retries_max),
        lock_token=token,
        reconsume_times=message.reconsume_times,
        version=version,
    )


class OffsetVersionSource(Protocol):
    """Versions of queues' offsets: a `RemoteOffsetStore`."""

    async def versions(self, queues: Iterable[MessageQueue]) -> Mapping[MessageQueue, int]:
        """Return the versions, once the brokers know of every seek; without queues where not."""
        ...

    def tell_again(self, broker_name: str) -> None:
        """Send offsets and versions to the broker again."""
        ...


class SendBackOutbox:
    """Sends messages back, broker by broker. Owned by one consumer; used by its event loop.

    Args:
        brokers: Gives the connections.
        tasks: Owns what waits for answers.
        group: Who could not consume them.
        client_id: The member.
        timeout_s: For each request.
        retries_max: After how many retries they are dead letters; −1 = as the group's settings say.
        offsets: Of the group. A failure that is told under a version that its broker does not have
            yet would count as stored after a later seek, so seeks are committed first.
        on_confirmed: Called with a broker's name and how many messages it has just confirmed.
        send_copy: Sends a copy of a message whose record is gone, and tells whether the broker has
            that; given the message and its level. None = nothing helps such a message.
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
    ) -> None:
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
        """Send `batch` back soon, together with what else waits.

        `batch.on_answer` is called when every message has an answer, later than this returns; never
        when the consumer is closed before.
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
                logger.info("not sent back since the consumer is being closed lot=%s", batch.queue)

    async def _empty(self, broker_name: str, outbox: deque[tuple[SendBackBatch, int]]) -> None:
        try:
            while outbox:
                await self._send(broker_name, outbox)
        finally:
            del self._outboxes[broker_name]

    async def _send(self, broker_name: str, outbox: deque[tuple[SendBackBatch, int]]) -> None:
        """Send one request of what waits, and give the batches their answers."""
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
        codes = await self._ask(broker_name, request)
        if ResponseCode.PULL_OFFSET_MOVED in codes:
            self._offsets.tell_again(broker_name)  # it has lost a version
        for number, (batch, index) in enumerate(going):
            if codes[number] == ResponseCode.QUERY_NOT_FOUND and self._send_copy is not None:
                is_there = await self._send_copy(batch.messages[index], batch.levels[index])
                codes[number] = int(ResponseCode.SUCCESS) if is_there else codes[number]
        confirmed = codes.count(ResponseCode.SUCCESS)
        if confirmed:
            self._on_confirmed(broker_name, confirmed)
        for (batch, index), code in zip(going, codes, strict=True):
            _answer(batch, index, code)

    async def _ask(self, broker_name: str, request: groups.SendBackRequest) -> list[int]:
        """Return the broker's code for each message; what it does not say is a failure."""
        count = len(request.messages)
        try:
            connection = await self._brokers.broker(broker_name)
            reply = await connection.call(SEND_BACK, request, timeout_s=self._timeout_s)
        except TernError as error:
            logger.warning(
                "messages not sent back broker=%s group=%s messages=%s error=%s",
                broker_name,
                self._group,
                count,
                error,
            )
            return [int(ResponseCode.SYSTEM_ERROR)] * count
        codes = [status.code for status in reply.outcomes[:count]]
        codes += [int(ResponseCode.SYSTEM_ERROR)] * (count - len(codes))
        refusals = [status for status in reply.outcomes if status.code]
        if refusals:
            logger.warning(
                "messages not sent back broker=%s group=%s messages=%s of=%s reason=%s [%s]",
                broker_name,
                self._group,
                len(refusals),
                count,
                refusals[0].remark,
                refusals[0].code,
            )
        return codes


def _answer(batch: SendBackBatch, index: int, code: int) -> None:
    """Record the outcome of one message; notify the owner of the batch after the last one."""
    if code != ResponseCode.SUCCESS:
        batch.refused.append(batch.messages[index])
        batch.is_fenced = batch.is_fenced or code == ResponseCode.NO_PERMISSION
    batch.waiting -= 1
    if not batch.waiting:
        batch.on_answer(batch)
