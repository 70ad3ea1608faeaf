"""Rows of an offset range as Arrow batches, by Scan or from records.

The connections belong to the process; see `ternmq_consumer.scan.shared_scanner`.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from ternmq_client.config import nameserver_texts
from ternmq_client.retry_timeout import lasted
from ternmq_consumer.scan import PulledBatch, ScanOptions, shared_scanner
from ternmq_model.arrays import INT32_BYTES, read_int32s
from ternmq_model.columns.batches import build_rows
from ternmq_model.errors import (
    RangeLost,
    RefusedError,
    TernError,
    TopicNotFound,
    Unreachable,
)
from ternmq_model.offsets import QueueOffset
from ternmq_model.response_code import ResponseCode
from ternmq_model.subscription import parse_subscription
from ternmq_pipeline.offsets import OffsetRange
from ternmq_pipeline.options.source_options import ReadOptions, ScanMode
from ternmq_pipeline.options.topics import Subscribe
from ternmq_pipeline.planning.data_loss import (
    DataLost,
    QueueLoss,
    beyond_end,
    damaged_among,
    no_longer_kept,
    topic_gone,
)
from ternmq_pipeline.source.pushdown import RowFilter
from ternmq_store.scan.row_filter import matching_rows
from ternmq_store.scan.scan_spec import ScanSpec

JOINED_BYTES: Final = 4 << 20
"""Bytes of records that fill a batch."""

TO_GO_ON: Final = "Option failOnDataLoss=false skips the message."

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchRequest:
    """Rows to fetch of an offset range, and the method. Made by `fetch_request`."""

    nameserver: str
    options: ScanOptions
    by_scan: bool

    @property
    def fail_on_data_loss(self) -> bool:
        """True if lost and damaged messages are an error."""
        return not self.options.skips_damaged


class FetchedRows(NamedTuple):
    """Some rows of an offset range, and the offset behind the last tested message."""

    batch: pa.RecordBatch | None
    next_offset: int


def fetch_request(
    options: ReadOptions,
    row_filter: RowFilter,
    topic: str,
    columns: tuple[str, ...],
    rows_max: int,
) -> FetchRequest:
    """Return the request of a task for a range of `topic`."""
    expression = options.filter or row_filter.tags_of(topic)
    return FetchRequest(
        nameserver=options.nameserver,
        options=ScanOptions(
            subscription=parse_subscription(topic, *expression) if expression else None,
            stored_from_ms=row_filter.stored_from_ms,
            stored_before_ms=row_filter.stored_before_ms,
            keys=row_filter.keys,
            columns=columns,
            batch_rows_max=rows_max,
            skips_damaged=not options.fail_on_data_loss,
            retry_timeout_s=options.retry_timeout_s,
        ),
        by_scan=options.scan is not ScanMode.NEVER,
    )


def fetch_range(offset_range: OffsetRange, request: FetchRequest) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range, each once and in order, despite failures of its broker.

    Raises:
        DataLost: Messages of the range are gone, and `request.fail_on_data_loss` is true.
        TernError: Another failure lasted longer than `request.options.retry_timeout_s`.
    """
    fetch = _scanned if request.by_scan else _pulled
    begin, is_back = offset_range.begin, False
    while begin < offset_range.end:
        left = offset_range._replace(begin=begin)
        try:
            for fetched in fetch(left, request):
                begin, is_back = QueueOffset(fetched.next_offset), False
                if fetched.batch is not None and fetched.batch.num_rows:
                    yield fetched.batch
            return
        except RangeLost as lost:
            begin = _behind_the_loss(left, lost, request)
        except TopicNotFound as unknown:
            if (gone := lost_with_topic(left, request, unknown)) is not None:
                begin = _behind_the_loss(left, gone, request)
            elif is_back:
                raise unknown
            is_back = True
        except RefusedError as error:
            if fetch is _pulled or error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            logger.info(
                "records are read without a scan queue=%s err=%s", offset_range.queue, error
            )
            fetch = _pulled


def lost_with_topic(
    offset_range: OffsetRange, request: FetchRequest, unknown: TopicNotFound
) -> RangeLost | None:
    """Return the loss of a range whose topic was unknown; None = the topic is back.

    The function waits for the broker, which may bring the topic back.

    Raises:
        TernError: No NameServer answers or knows the broker.
    """
    from ternmq_pipeline.cluster.blocking_reader import open_cluster_reader

    queue = offset_range.queue
    options = ReadOptions(
        nameservers=nameserver_texts(request.nameserver),
        topics=None,
        retry_timeout_s=request.options.retry_timeout_s,
    )
    with open_cluster_reader(options) as cluster:
        there = cluster.snapshot(
            Subscribe((queue.topic,)), expected=[queue], brokers=[queue.broker_name]
        )
    if queue in there.ranges:
        return None
    if queue.broker_name not in there.brokers:
        away = Unreachable(f"broker {queue.broker_name}: is registered at no NameServer")
        raise lasted(away, request.options.retry_timeout_s)
    return RangeLost(
        topic=queue.topic,
        broker_name=queue.broker_name,
        queue_id=queue.queue_id,
        wanted_offset=offset_range.begin,
        first_offset=0,
        end_offset=0,
        topic_remark=unknown.remark,
    )


def _behind_the_loss(
    offset_range: OffsetRange, lost: RangeLost, request: FetchRequest
) -> QueueOffset:
    """Return the next offset to read after a loss of messages of `offset_range`.

    Raises:
        DataLost: `request.fail_on_data_loss` is true.
    """
    end = offset_range.end
    if lost.end_offset is None:
        first = min(QueueOffset(lost.first_offset), end)
        reason = no_longer_kept(lost.wanted_offset, first, lost.first_offset)
    elif lost.topic_remark:
        first, reason = end, topic_gone(lost.wanted_offset, lost.topic_remark)
    else:
        first, reason = end, beyond_end(lost.wanted_offset, lost.end_offset)
    loss = QueueLoss(offset_range.queue, reason)
    if request.fail_on_data_loss:
        raise DataLost([loss]) from lost
    logger.warning("messages are gone reason=%r", str(loss))
    return first


def _scanned(offset_range: OffsetRange, request: FetchRequest) -> Iterator[FetchedRows]:
    options = replace(request.options, created_log_offset=offset_range.created_log_offset)
    damaged = 0
    known, schema = b"", pa.schema([])
    scanner = shared_scanner(request.nameserver)
    with scanner.scan(offset_range.queue, offset_range.begin, offset_range.end, options) as pieces:
        for piece in pieces:
            if piece.damaged > damaged:
                _warn_of_damage(offset_range, piece.next_offset, piece.damaged - damaged)
                damaged = piece.damaged
            if not piece.data:
                yield FetchedRows(None, piece.next_offset)
                continue
            if piece.schema is not known:
                known, schema = piece.schema, pa.ipc.read_schema(pa.py_buffer(piece.schema))
            batch = pa.ipc.read_record_batch(pa.py_buffer(piece.data), schema)
            yield FetchedRows(batch, piece.next_offset)


def _warn_of_damage(offset_range: OffsetRange, before: int, count: int) -> None:
    logger.warning(
        "damaged messages of a queue are skipped queue=%s before=%d count=%d",
        offset_range.queue,
        before,
        count,
    )


def _pulled(offset_range: OffsetRange, request: FetchRequest) -> Iterator[FetchedRows]:
    """Yield the rows of `_scanned` from records.

    The broker compares only tags codes. So tags, keys and store times are tested here.
    """
    options = replace(request.options, created_log_offset=offset_range.created_log_offset)
    spec = ScanSpec(
        subscription=options.subscription,
        stored_from_ms=options.stored_from_ms,
        stored_before_ms=options.stored_before_ms,
        keys=frozenset(options.keys),
        columns=options.columns,
    )
    next_offset, damaged = int(offset_range.begin), 0
    scanner = shared_scanner(request.nameserver)
    with scanner.pull(offset_range.queue, offset_range.begin, offset_range.end, options) as pieces:
        for piece in joined(pieces, options.batch_rows_max):
            if count := piece.damaged - damaged:
                if request.fail_on_data_loss:
                    reason = damaged_among(next_offset, piece.next_offset, count)
                    raise DataLost([QueueLoss(offset_range.queue, reason)])
                _warn_of_damage(offset_range, piece.next_offset, count)
                damaged = piece.damaged
            for batch in _batches_of(piece, offset_range, request, spec.columns_needed):
                yield FetchedRows(matching_rows(batch, spec), next_offset)
            next_offset = piece.next_offset
            yield FetchedRows(None, next_offset)


def joined(pieces: Iterable[PulledBatch], rows_max: int) -> Iterator[PulledBatch]:
    """Join pieces to larger ones: a batch costs much, a row of it little.

    Args:
        pieces: Pieces of one range, in their order.
        rows_max: Records that fill a piece.

    Raises:
        TernError: Error of `pieces`, after the pieces before it.
    """
    waiting: list[PulledBatch] = []
    rows = size = 0
    try:
        for piece in pieces:
            waiting.append(piece)
            rows += len(piece.record_sizes) // INT32_BYTES
            size += len(piece.records)
            if rows >= rows_max or size >= JOINED_BYTES:
                yield _as_one(waiting)
                waiting, rows, size = [], 0, 0
    except TernError:
        if waiting:
            yield _as_one(waiting)
        raise
    if waiting:
        yield _as_one(waiting)


def _as_one(pieces: Sequence[PulledBatch]) -> PulledBatch:
    return PulledBatch(
        b"".join([piece.records for piece in pieces]),
        b"".join([piece.record_sizes for piece in pieces]),
        *pieces[-1][2:],
    )


def _batches_of(
    piece: PulledBatch, offset_range: OffsetRange, request: FetchRequest, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    sizes = read_int32s(piece.record_sizes).astype(np.int64)
    starts = np.cumsum(sizes) - sizes
    done = 0
    while done < len(sizes):
        rows = slice(done, done + request.options.batch_rows_max)
        built = build_rows(
            piece.records,
            starts[rows],
            sizes[rows],
            broker_name=offset_range.queue.broker_name,
            columns=columns,
        )
        for damage in built.damaged:
            if request.fail_on_data_loss:
                damage.error.add_note(f"It is of {offset_range.queue}. {TO_GO_ON}")
                raise damage.error
            logger.warning(
                "a damaged message is skipped queue=%s err=%s", offset_range.queue, damage.error
            )
        yield built.batch
        done += built.inspected
