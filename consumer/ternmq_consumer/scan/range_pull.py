"""A range of a queue as records, from brokers that do not scan: over a PullStream of no group."""

from collections.abc import AsyncGenerator
from typing import Final

from ternmq_consumer.scan.range_batches import (
    RETRY_TIMEOUT_S,
    PulledBatch,
    cut_records,
)
from ternmq_consumer.scan.range_reader import RangeProgress, ScanClient, read_range
from ternmq_consumer.subscriptions import subscription_message
from ternmq_model.arrays import INT32_BYTES
from ternmq_model.errors import ConnectionLost, created_again, refusal
from ternmq_model.queue import MessageQueue
from ternmq_model.subscription import ALL_TAGS, Subscription
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.rpc import Connection
from ternmq_remoting.service_methods import DESCRIBE_TOPIC, PULL_STREAM

_ASK_S: Final = 15.0
_CREDIT_BYTES: Final = 4 << 20
_CREDIT_MESSAGES: Final = 65_536
_HANDLE: Final = 1


def pull_range(
    client: ScanClient,
    queue: MessageQueue,
    begin: int,
    end: int,
    subscription: Subscription | None = None,
    *,
    created_log_offset: int | None = None,
    retry_timeout_s: float = RETRY_TIMEOUT_S,
) -> AsyncGenerator[PulledBatch]:
    """Yield the matching messages from `begin` to `end`, without `end`, as records.

    It goes on where it was when the connection breaks, as `scan_range` does. The broker compares
    codes of tags, which several tags may share: whether the tag is the right one is to be looked at
    here. `created_log_offset` is as in `ScanOptions`.

    Raises:
        RangeLost, RefusedError, TransportError: As `scan_range`.
    """
    progress = _RangePull(client.client_id, queue, begin, end, subscription, created_log_offset)
    return read_range(client, progress, progress.over, timeout_s=retry_timeout_s)


class _RangePull(RangeProgress):
    """Progress of a range that is read by pulling."""

    def __init__(
        self,
        client_id: str,
        queue: MessageQueue,
        begin: int,
        end: int,
        subscription: Subscription | None,
        created_log_offset: int | None,
    ) -> None:
        super().__init__(queue, begin, end)
        self._client_id = client_id
        self._created = created_log_offset
        self._damaged = 0
        self._is_filtered = subscription is not None
        self._wanted = (
            messages.Subscription(expression=ALL_TAGS)
            if subscription is None
            else subscription_message(subscription)
        )

    async def _check(self, connection: Connection) -> int:
        """Return the offset up to which the range can be read now: a stream would wait beyond it.

        Raises:
            TernError: Its beginning is not there.
        """
        request = admin.DescribeTopicRequest(topic=self.queue.topic)
        reply = await connection.call(DESCRIBE_TOPIC, request, timeout_s=_ASK_S)
        if self._created is not None and reply.created_log_offset > self._created:
            raise created_again(self.queue.topic, self.queue.broker_name)
        for status in reply.queues:
            if status.queue_id == self.queue.queue_id:
                self.first_offset = status.min_offset
                if self.next_offset < self.first_offset:
                    raise self.begins_late(connection)
                return min(self.end, status.max_offset)
        return 0

    async def over(self, connection: Connection) -> AsyncGenerator[PulledBatch]:
        """Read on, over one connection, as far as the range can be read now.

        Raises:
            TernError: It is not that far, and no more comes.
        """
        limit = self.queue_end = await self._check(connection)
        if self.next_offset >= limit:
            return
        stream = connection.open(PULL_STREAM)
        try:
            await stream.write(messages.PullStreamRequest(open=self._opening()))
            await stream.write(messages.PullStreamRequest(subscribe=self._subscribe()))
            while (reply := await stream.read()) is not None:
                for pulled in reply.pulled:
                    if self._is_overtaken(pulled):
                        raise self.begins_late(connection)
                    yield self._take(pulled, limit)
                if self.next_offset >= limit:
                    return
                credit = _credit(reply)
                await stream.write(messages.PullStreamRequest(credit=credit))
            raise ConnectionLost(f"broker {self.queue.broker_name} ended a pull in its middle")
        finally:
            stream.cancel()

    def _is_overtaken(self, pulled: messages.PulledRecords) -> bool:
        self.first_offset = pulled.min_offset
        return self.first_offset > self.next_offset

    def _take(self, pulled: messages.PulledRecords, limit: int) -> PulledBatch:
        if code := pulled.status.code:
            raise refusal(code, pulled.status.remark, self.queue.broker_name)
        begin = self.next_offset
        self.next_offset = min(max(begin, pulled.next_offset), limit)
        records, sizes, damaged = pulled.records, pulled.record_sizes, pulled.damaged
        if pulled.next_offset > limit:
            records, sizes = cut_records(records, sizes, limit)
            if not self._is_filtered:
                damaged = min(damaged, limit - begin - len(sizes) // INT32_BYTES)
        self._damaged += damaged
        return PulledBatch(records, sizes, self.next_offset, self._damaged)

    def _opening(self) -> messages.PullStreamOpen:
        return messages.PullStreamOpen(client_id=self._client_id, group="")

    def _subscribe(self) -> messages.PullSubscribe:
        return messages.PullSubscribe(
            handle=_HANDLE,
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            offset=self.next_offset,
            subscription=self._wanted,
            credit_bytes=_CREDIT_BYTES,
            credit_messages=_CREDIT_MESSAGES,
        )


def _credit(reply: messages.PullStreamReply) -> messages.PullCredit:
    """Return what lets the broker send as much as it has just sent."""
    return messages.PullCredit(
        handle=_HANDLE,
        bytes=sum(len(pulled.records) for pulled in reply.pulled),
        messages=sum(len(pulled.record_sizes) // INT32_BYTES for pulled in reply.pulled),
    )
