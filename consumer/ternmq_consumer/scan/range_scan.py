"""Range of a queue as Arrow batches, across failures of its broker."""

from collections.abc import AsyncGenerator

from ternmq_consumer.scan.range_batches import ScannedBatch, ScanOptions, split_schema
from ternmq_consumer.scan.range_reader import RangeReader, ScanClient
from ternmq_consumer.subscriptions import subscription_message
from ternmq_model.errors import ConnectionLost, refusal
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.rpc import Connection
from ternmq_remoting.service_methods import SCAN


def scan_range(
    client: ScanClient,
    queue: MessageQueue,
    begin: int,
    end: int,
    options: ScanOptions | None = None,
) -> AsyncGenerator[ScannedBatch]:
    """Yield the matching messages from `begin` to `end`, without `end`, as record batches.

    When the connection breaks, or the broker or its process ends, the scan resumes behind the last
    complete batch: no row is missing or repeated. Close the generator (`aclosing`) to stop early.

    Raises:
        RangeLost: Messages of the range are no longer kept, or there are none yet, or their
            topic was deleted.
        RefusedError: The broker refused: REQUEST_CODE_NOT_SUPPORTED if it serves no scans, other
            codes for an invalid request.
        TransportError: There was no progress for `retry_timeout_s`: the broker was away, or only a
            slave answered that lacks the messages.
    """
    return _RangeScan(client, queue, begin, end, options).read()


class _RangeScan(RangeReader[ScannedBatch]):
    """Reading of a range by scanning."""

    _schema = b""
    _damaged = 0

    async def over(self, connection: Connection) -> AsyncGenerator[ScannedBatch]:
        stream = connection.open(SCAN)
        pieces: list[bytes] = []
        is_first, damaged_before = True, self._damaged
        try:
            await stream.write(self._request())
            await stream.finish()
            while (reply := await stream.read()) is not None:
                self.first_offset = reply.min_offset
                if reply.status.code:
                    self._raise(reply.status.code, reply.status.remark)
                self._damaged = damaged_before + reply.damaged
                has_moved = reply.next_offset > self.next_offset
                self.next_offset = max(self.next_offset, reply.next_offset)
                if reply.piece:
                    pieces.append(reply.piece)
                if reply.ends_batch:
                    data = b"".join(pieces)
                    pieces.clear()
                    if is_first:
                        is_first = False
                        self._schema, data = split_schema(data)
                    yield self._batch(data)
                elif has_moved:
                    yield self._batch(b"")
                if reply.ends_stretch:
                    self.queue_end = self.next_offset
                    return
            raise ConnectionLost(f"broker {self.queue.broker_name} ended a scan in its middle")
        finally:
            stream.cancel()

    def _batch(self, data: bytes) -> ScannedBatch:
        return ScannedBatch(self._schema, data, self.next_offset, self._damaged)

    def _raise(self, code: int, remark: str) -> None:
        if code == ResponseCode.PULL_OFFSET_MOVED and self.first_offset > self.next_offset:
            raise self.lost()
        raise refusal(code, remark, self.queue.broker_name)

    def _request(self) -> messages.ScanRequest:
        options = self.options
        chosen = options.subscription
        return messages.ScanRequest(
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            begin_offset=self.next_offset,
            end_offset=self.end,
            subscription=None if chosen is None else subscription_message(chosen),
            stored_from_ms=options.stored_from_ms,
            stored_before_ms=options.stored_before_ms,
            keys=options.keys,
            columns=options.columns,
            batch_rows_max=options.batch_rows_max,
            batch_bytes_max=options.batch_bytes_max,
            skips_damaged=options.skips_damaged,
            created_log_offset=options.created_log_offset,
        )
