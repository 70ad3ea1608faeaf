"""Batches of open transactions, listed and rolled back for operators, by pages of the half topic.

Memory has only the time of the last work on a batch. Everything else is read from the half
messages, in the order of their queue.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from ternmq_broker.storage.yielding import RECORDS_AT_ONCE, yield_to_requests
from ternmq_broker.transactions.end_transaction import EndRequest, EndTransactionProcessor
from ternmq_broker.transactions.half_codec import HalfRecord, TransactionIdentity
from ternmq_broker.transactions.table import OpenTimes, TransactionTable
from ternmq_model.clock import Clock
from ternmq_model.errors import CorruptRecord, RefusedError, invalid
from ternmq_model.names import HALF_TOPIC
from ternmq_model.offsets import QueueOffset
from ternmq_model.record.format import decode_record
from ternmq_model.response_code import ResponseCode
from ternmq_model.transaction import Resolution, check_not_in_use
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_store.queues.read_request import ReadLimits, ReadRequest, ReadResult

logger = logging.getLogger(__name__)

_READ: Final = ReadLimits(1024, 1 << 20)
_OFFSETS_MAX: Final = 16_384
"""Offsets of the half topic at which one page tries to find an open transaction: 1 ms."""

_REPLY_MAX: Final = 1_000
"""Batches in one reply."""

_ENDED: Final = frozenset({ResponseCode.ILLEGAL_OPERATION, ResponseCode.QUERY_NOT_FOUND})

BatchTable: TypeAlias = dict[tuple[str, str], transactions.OpenBatch]
"""Open batches by the name that they are staged for, and their group."""


class OpenRow(NamedTuple):
    """One open transaction."""

    half: HalfRecord
    times: OpenTimes


@dataclass(frozen=True, slots=True)
class OpenBatches:
    """Lists of open transactions, and roll-backs of staged ones, for operators. Owns nothing.

    A damaged half message is not listed: no producer can commit it, and its next check, or the end
    of its staging time, rolls it back.
    """

    ender: EndTransactionProcessor
    clock: Clock

    @property
    def table(self) -> TransactionTable:
        """Table of open transactions."""
        return self.ender.transitions.table

    async def list_open(
        self,
        request: transactions.ListTransactionsRequest,
        write: Callable[[transactions.ListTransactionsReply], Awaitable[None]],
    ) -> None:
        """Write an empty reply for each page that is read, then all open batches.

        Raises:
            RefusedError: The broker starts or closes, or the disk failed.
        """
        now_ms, found = self.clock.monotonic_ms(), BatchTable()
        async for rows in self._pages(request.staged_for):
            add_to(found, rows, self.table.worked_on_at, now_ms=now_ms)
            await write(transactions.ListTransactionsReply())
        batches = list(found.values())
        for first in range(0, len(batches), _REPLY_MAX):
            part = batches[first : first + _REPLY_MAX]
            await write(transactions.ListTransactionsReply(batches=part))

    async def roll_back(
        self,
        request: transactions.RollBackStagedRequest,
        write: Callable[[transactions.RollBackStagedReply], Awaitable[None]],
    ) -> None:
        """Roll back staged transactions, with a reply for each page. Cancelling is safe: repeat it.

        Raises:
            RefusedError: The broker starts or closes, or the disk failed; INVALID_PARAMETER: no
                batch is named; ILLEGAL_OPERATION: a batch is in use, and no more is rolled back; or
                a roll-back was refused.
        """
        if not request.staged_for:
            remark = "the batches to be rolled back must be named"
            raise invalid(remark)
        count = ended = 0
        try:
            async for rows in self._pages(request.staged_for):
                refusals = await self._roll_back(rows, force=request.force)
                over = sum(error.code in _ENDED for error in refusals)
                done = len(rows) - len(refusals)
                count, ended = count + done, ended + over
                logger.debug("page rolled back count=%d already_ended=%d", done, over)
                await write(transactions.RollBackStagedReply(rolled_back=done, already_ended=over))
                for error in refusals:
                    if error.code not in _ENDED:
                        raise error
        finally:
            if count:
                logger.warning(
                    "staged rolled back by an operator staged_for=%s count=%d already_ended=%d",
                    request.staged_for,
                    count,
                    ended,
                )

    async def _roll_back(self, rows: Sequence[OpenRow], *, force: bool) -> list[RefusedError]:
        """Roll back a page; return the refusals.

        Raises:
            RefusedError: ILLEGAL_OPERATION: a batch of the page is in use.
        """
        while any(self.table.is_ending(row.half.transaction) for row in rows):
            await self.ender.released()
        # No request runs between here and the claim of the rows by `end`: later requests about
        # them wait for their end, and earlier ones count as work on their batch.
        if not force:
            found = BatchTable()
            now_ms = self.clock.monotonic_ms()
            add_to(found, rows, self.table.worked_on_at, now_ms=now_ms)
            for batch in found.values():
                check_not_in_use(batch.staged_for, batch.quiet_ms)
        outcomes = await self.ender.end([_rollback(row.half) for row in rows])
        return [outcome.error for outcome in outcomes if outcome.error is not None]

    async def _pages(self, staged_for: str) -> AsyncGenerator[Sequence[OpenRow]]:
        """Yield open transactions that the operator names, in the order of the half topic.

        Raises:
            RefusedError: The broker starts or closes, or the disk failed.
        """
        reader, begin = self.ender.halves.reader, QueueOffset(0)
        while True:
            await self.ender.check_ready()
            rows = list[OpenRow]()
            read = read_bytes = 0
            while read < _READ.messages_max and read_bytes < _READ.bytes_max:
                end = min(reader.store.queue_range(HALF_TOPIC, 0)[1], self.table.half_end)
                begin = self.table.next_open(begin, offsets_max=_OFFSETS_MAX)
                if begin >= end:
                    yield rows
                    return
                if self.table.times_at(begin) is None:
                    break
                request = ReadRequest(
                    topic=HALF_TOPIC, queue_id=0, offset=begin, hot=_READ, cold=_READ
                )
                result = await reader.read(request)
                begin = max(result.next_offset, QueueOffset(begin + 1))
                read += len(result.record_sizes)
                read_bytes += result.record_bytes
                await self._take(result, staged_for, rows)
            yield rows

    async def _take(self, result: ReadResult, staged_for: str, rows: list[OpenRow]) -> None:
        data, sizes = result.records, result.record_sizes.astype(np.int64)
        ends = zip(np.cumsum(sizes).tolist(), sizes.tolist(), strict=True)
        for number, (end, size) in enumerate(ends, 1):
            if number % RECORDS_AT_ONCE == 0:
                await yield_to_requests()
            half = self._half(data[end - size : end])
            if half is None or not matches(half.staged_for, staged_for):
                continue
            times = self.table.times_at(half.queue_offset)
            if times is not None:
                rows.append(OpenRow(half, times))

    def _half(self, data: bytes) -> HalfRecord | None:
        try:
            record = decode_record(data)
        except CorruptRecord:
            return None
        return None if record is None else self.ender.halves.half_of(record)


def matches(staged_for: str, named: str) -> bool:
    """Return whether a transaction belongs to a batch that an operator names.

    Args:
        staged_for: Batch of the transaction; empty = not staged.
        named: Name of a batch, or the part before a slash; empty = all transactions.
    """
    return not named or staged_for == named or staged_for.startswith(f"{named}/")


def add_to(
    found: BatchTable,
    rows: Iterable[OpenRow],
    worked_on_at: Callable[[str], int],
    *,
    now_ms: int,
) -> None:
    """Add open transactions to their batches.

    Args:
        found: The batches to add to.
        rows: Transactions in the order of the half topic.
        worked_on_at: Returns when a producer last asked about or committed one, monotonic.
        now_ms: Monotonic; a later begin or work counts as of now.
    """
    for half, times in rows:
        age_ms = max(0, now_ms - times.began_at_ms)
        left_ms = -1 if times.due_at_ms is None else max(0, times.due_at_ms - now_ms)
        batch = found.get((half.staged_for, half.group))
        if batch is None:
            batch = found[half.staged_for, half.group] = transactions.OpenBatch(
                staged_for=half.staged_for,
                producer_group=half.group,
                topic=half.topic,
                oldest_ms=age_ms,
                quiet_ms=max(0, now_ms - worked_on_at(half.staged_for)),
                left_ms=left_ms,
            )
        batch.count += 1
        batch.oldest_ms = max(batch.oldest_ms, age_ms)
        batch.quiet_ms = min(batch.quiet_ms, age_ms)
        batch.left_ms = min(batch.left_ms, left_ms)


def _rollback(half: HalfRecord) -> EndRequest:
    identity = TransactionIdentity(half.group, half.message_id, half.transaction, half.topic)
    return EndRequest(identity, Resolution.ROLLBACK)
