"""Range of a queue as records, for brokers without Scan: a PullStream without a group."""

from collections.abc import AsyncGenerator
from typing import Final

from ternmq_consumer.scan.range_batches import PulledBatch, ScanOptions, cut_records
from ternmq_consumer.scan.range_reader import RangeReader, ScanClient
from ternmq_consumer.subscriptions import subscription_message
from ternmq_model.arrays import INT32_BYTES
from ternmq_model.errors import ConnectionLost, created_again, refusal
from ternmq_model.queue import MessageQueue
from ternmq_model.subscription import ALL_TAGS
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
    options: ScanOptions | None = None,
) -> AsyncGenerator[PulledBatch]:
    """Yield the messages from `begin` to `end`, without `end`, as records.

    After a broken connection the pull resumes where it was, as `scan_range` does. Of `options` only
    `subscription`, `created_log_offset` and `retry_timeout_s` count; and the broker compares codes
    of tags, which several tags may share: the caller tests the tags, keys and store times.

    Raises:
        RangeLost, RefusedError, TransportError: As `scan_range`.
    """
    return _RangePull(client, queue, begin, end, options).read()


class _RangePull(RangeReader[PulledBatch]):
    """Reading of a range by pulling."""

    _damaged = 0

    async def _readable_end(self, connection: Connection) -> int:
        """Return the offset up to which the range can be read now: a stream would wait beyond it.

        Raises:
            TernError: The start of the range is not there.
        """
        request = admin.DescribeTopicRequest(topic=self.queue.topic)
        reply = await connection.call(DESCRIBE_TOPIC, request, timeout_s=_ASK_S)
        created = self.options.created_log_offset
        if created is not None and reply.created_log_offset > created:
            raise created_again(self.queue.topic, self.queue.broker_name)
        for status in reply.queues:
            if status.queue_id == self.queue.queue_id:
                self.first_offset = status.min_offset
                if self.next_offset < self.first_offset:
                    raise self.begins_late(connection)
                return min(self.end, status.max_offset)
        return 0

    async def over(self, connection: Connection) -> AsyncGenerator[PulledBatch]:
        limit = self.queue_end = await self._readable_end(connection)
        if self.next_offset >= limit:
            return
        stream = connection.open(PULL_STREAM)
        try:
            opening = messages.PullStreamOpen(client_id=self.client.client_id, group="")
            await stream.write(messages.PullStreamRequest(open=opening))
            await stream.write(messages.PullStreamRequest(subscribe=self._subscribe()))
            while (reply := await stream.read()) is not None:
                for pulled in reply.pulled:
                    self.first_offset = pulled.min_offset
                    if self.first_offset > self.next_offset:
                        raise self.begins_late(connection)
                    yield self._take(pulled, limit)
                if self.next_offset >= limit:
                    return
                credit = _credit(reply)
                await stream.write(messages.PullStreamRequest(credit=credit))
            raise ConnectionLost(f"broker {self.queue.broker_name} ended a pull in its middle")
        finally:
            stream.cancel()

    def _take(self, pulled: messages.PulledRecords, limit: int) -> PulledBatch:
        if code := pulled.status.code:
            raise refusal(code, pulled.status.remark, self.queue.broker_name)
        begin = self.next_offset
        self.next_offset = min(max(begin, pulled.next_offset), limit)
        records, sizes, damaged = pulled.records, pulled.record_sizes, pulled.damaged
        if pulled.next_offset > limit:
            records, sizes = cut_records(records, sizes, limit)
            if self.options.subscription is None:
                damaged = min(damaged, limit - begin - len(sizes) // INT32_BYTES)
        self._damaged += damaged
        return PulledBatch(records, sizes, self.next_offset, self._damaged)

    def _subscribe(self) -> messages.PullSubscribe:
        chosen = self.options.subscription
        return messages.PullSubscribe(
            handle=_HANDLE,
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            offset=self.next_offset,
            subscription=(
                messages.Subscription(expression=ALL_TAGS)
                if chosen is None
                else subscription_message(chosen)
            ),
            credit_bytes=_CREDIT_BYTES,
            credit_messages=_CREDIT_MESSAGES,
        )


def _credit(reply: messages.PullStreamReply) -> messages.PullCredit:
    """Return the credit for as much as the broker has just sent."""
    return messages.PullCredit(
        handle=_HANDLE,
        bytes=sum(len(pulled.records) for pulled in reply.pulled),
        messages=sum(len(pulled.record_sizes) // INT32_BYTES for pulled in reply.pulled),
    )
