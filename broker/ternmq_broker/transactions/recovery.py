"""Recovery of the open transactions after a start, from the log.

1. The half topic, from the group's offset on: each record is a transaction or a copy of one.
2. The op topic, from its offset on: the named transactions have ended.
3. The log, for messages and parked copies of the transactions that are then still open: a crash may
   have come between a message and its op message. These records lie behind the scan offset, and
   behind the first open half message. Mostly no transaction is open, and nothing is read.

Transactions that begin meanwhile are added to the table as always: they lie behind all records that
are read here.

Source: RocketMQ `TransactionalMessageServiceImpl.fillOpRemoveMap`; the third part is our own.
"""

import logging
from collections.abc import Callable
from typing import Final

import numpy as np

from ternmq_broker.environment import BrokerEnvironment
from ternmq_broker.state.transaction_scan_offset import GROUP
from ternmq_broker.storage.yielding import yield_to_threads
from ternmq_broker.transactions.check_policy import CheckPolicy, next_check_ms, staged_ms
from ternmq_broker.transactions.half_codec import OP_TAG, decode_ops
from ternmq_broker.transactions.half_reader import HalfReader
from ternmq_broker.transactions.staged_codec import StagedHalf, staged_halves
from ternmq_broker.transactions.table import EndedTransaction, OpenTransaction, TransactionTable
from ternmq_model.errors import CorruptRecord
from ternmq_model.names import CHECK_MAX_TOPIC, HALF_TOPIC, OP_TOPIC
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import TAGS, decode_properties
from ternmq_model.record.format import Record, decode_record
from ternmq_model.transaction import Resolution
from ternmq_store.log.clock_moves import moved_ms
from ternmq_store.query.prepared_search import PreparedRecord
from ternmq_store.queues.read_request import ReadLimits, ReadRequest, ReadResult

logger = logging.getLogger(__name__)

_READ: Final = ReadLimits(1024, 1 << 20)
_ENDS_AT_ONCE: Final = 256


class TransactionRecovery:
    """Filling of the table after a start, from the log.

    Args:
        env: Store and tables of the term.
        table: Filled.
        halves: Reads half messages.
        policy: Policy of the checks.
        end: End of the log when the broker started: later records are in the table already.
    """

    def __init__(
        self,
        env: BrokerEnvironment,
        table: TransactionTable,
        halves: HalfReader,
        policy: CheckPolicy,
        end: PhysicalOffset,
    ) -> None:
        self._env = env
        self._table = table
        self._halves = halves
        self._policy = policy
        self._end = end
        self._unreadable = 0
        self._ops: list[tuple[QueueOffset, QueueOffset]] = []
        self._found: dict[PhysicalOffset, OpenTransaction] = {}
        """Rows of the table. There may be a million: nothing else is retained of each."""

        self._by_number: dict[QueueOffset, PhysicalOffset] = {}
        self._groups: dict[str, str] = {}
        """One object for each name of a group or topic."""
        self._ended: list[tuple[OpenTransaction, EndedTransaction, PhysicalOffset]] = []
        self._now_ms = env.clock.monotonic_ms()
        self._wall_ms = env.clock.wall_ms()
        self._is_doubted = env.clock.is_doubted
        self._moves = env.store.session.clock.moves

    async def run(self) -> None:
        """Fill the table. Reads in bounded pieces; other work of the broker goes first.

        The log must be dispatched up to its end at the start.

        Raises:
            RefusedError: The disk failed; another recovery may be tried.
            OSError: The disk failed; another recovery may be tried.
        """
        offsets = self._env.tables.offsets
        half = offsets.query(GROUP, HALF_TOPIC, 0)
        # An op offset counts only beside the half offset with which it was stored.
        op = None if half is None else offsets.query(GROUP, OP_TOPIC, 0)
        half_end = await self._read(HALF_TOPIC, half or QueueOffset(0), self._take_halves)
        op_end = await self._read(OP_TOPIC, op or QueueOffset(0), self._take_ops)
        self._by_number.clear()
        if self._found:
            await self._scan()
        self._fill(half_end, op_end)

    async def _read(
        self, topic: str, offset: QueueOffset, take: Callable[[ReadResult], None]
    ) -> QueueOffset:
        """Call `take` with the messages of a queue from `offset` on; return the queue's end."""
        begin, end = self._env.store.queue_range(topic, 0)
        at = max(offset, begin)
        while at < end:
            request = ReadRequest(topic=topic, queue_id=0, offset=at, hot=_READ, cold=_READ)
            result = await self._env.reader.read(request)
            take(result)
            self._unreadable += result.skipped
            at = result.next_offset if result.next_offset > at else QueueOffset(at + 1)
            await yield_to_threads()
        return end

    def _take_halves(self, result: ReadResult) -> None:
        # Of staged ones only the needed fields are decoded.
        data, sizes = bytes(result.records), result.record_sizes.astype(np.int64)
        starts = np.cumsum(sizes) - sizes
        staged = staged_halves(data, starts, sizes)
        for half, start, size in zip(staged, starts.tolist(), sizes.tolist(), strict=True):
            if half is None:
                if (record := self._record(data, start, size)) is not None:
                    self._take_half(record)
            elif half.physical_offset < self._end:
                self._take_staged(half)

    def _take_staged(self, half: StagedHalf) -> None:
        offset = half.physical_offset
        age_ms = self._age_ms(half.stored_at_ms, offset, is_staged=True)
        lasts_ms = staged_ms(half.immunity_ms, self._policy)
        self._found[offset] = OpenTransaction(
            offset,
            offset,
            half.queue_offset,
            self._now_ms - age_ms,
            self._now_ms + max(0, lasts_ms - age_ms),
            group=self._groups.setdefault(half.group, half.group),
            is_staged=True,
            topic=half.topic,
        )
        self._by_number[half.queue_offset] = offset

    def _take_half(self, record: Record) -> None:
        half = self._halves.half_of(record)
        if half is None:
            self._unreadable += 1
            return
        is_staged = bool(half.staged_for)
        age_ms = self._age_ms(half.began_at_ms, half.transaction, is_staged=is_staged)
        now_ms = self._wall_ms - moved_ms(self._moves, half.physical_offset)
        after_ms = next_check_ms(half, self._policy, age_ms=age_ms, now_ms=now_ms)
        entry = OpenTransaction(
            half.transaction,
            half.physical_offset,
            half.queue_offset,
            self._now_ms - age_ms,
            self._now_ms + after_ms,
            group=self._groups.setdefault(half.group, half.group),
            is_staged=is_staged,
            topic=self._groups.setdefault(half.topic, half.topic),
        )
        known = self._found.get(half.transaction)
        if known is not None:
            entry.began_at_ms = known.began_at_ms
            entry.earlier = (*known.earlier, known.queue_offset)
        self._found[half.transaction] = entry
        self._by_number[half.queue_offset] = half.transaction
        if half.first_queue_offset < half.queue_offset:
            self._by_number.setdefault(half.first_queue_offset, half.transaction)

    def _age_ms(self, began_at_ms: int, offset: PhysicalOffset, *, is_staged: bool) -> int:
        """Return the age of a transaction; in doubt at most that of its first question."""
        age_ms = max(0, self._wall_ms - began_at_ms - moved_ms(self._moves, offset))
        if not self._is_doubted:
            return age_ms
        return 0 if is_staged else min(age_ms, self._policy.timeout_ms)

    def _take_ops(self, result: ReadResult) -> None:
        data, at = bytes(result.records), 0
        for size in result.record_sizes.tolist():
            record = self._record(data, at, size)
            at += size
            if record is None or decode_properties(record.properties).get(TAGS) != OP_TAG:
                continue
            named = decode_ops(record.body)
            for number in named:
                transaction = self._by_number.get(number)
                if transaction is not None:
                    self._found.pop(transaction, None)
            if named:
                self._ops.append((max(named), record.header.queue_offset))

    def _record(self, data: bytes, start: int, size: int) -> Record | None:
        """Return one record of a read; None when it is damaged, or later than the start."""
        try:
            record = decode_record(memoryview(data)[start : start + size], check_crc=False)
        except CorruptRecord:
            record = None
        if record is None:
            self._unreadable += 1
            return None
        return record if record.header.physical_offset < self._end else None

    async def _scan(self) -> None:
        """Find transactions that ended and have no op message."""
        store = self._env.store
        start = max(self._env.tables.scan_offset.offset, min(self._found))
        if start >= self._end:
            return
        logger.info(
            "log read for ends of transactions open=%d from=%d to=%d",
            len(self._found),
            start,
            self._end,
        )
        search = store.searches.prepared(start, self._found, skipped_topic=HALF_TOPIC)
        while await self._env.reader.blocking.run(search.step):
            continue
        for number, record in enumerate(search.found, 1):
            entry = self._found.pop(record.prepared_offset, None)
            if entry is not None:
                end = await self._end_of(entry, record)
                self._ended.append((entry, end, record.physical_offset))
            if number % _ENDS_AT_ONCE == 0:
                await yield_to_threads()

    async def _end_of(self, entry: OpenTransaction, record: PreparedRecord) -> EndedTransaction:
        """Return the end of a transaction, without a message id if its half message is lost."""
        found = await self._halves.read(entry.physical_offset)
        half = None if found is None else found[0]
        message_id = "" if half is None else half.message_id
        if record.topic == CHECK_MAX_TOPIC:
            return EndedTransaction(
                entry.transaction,
                Resolution.ROLLBACK,
                entry.group,
                message_id,
                record.end,
                why="no producer ended it in time",
            )
        queue_id, queue_offset = record.queue_id, int(record.queue_offset)
        if half is not None and half.is_delayed:
            queue_id, queue_offset = half.queue_id, -1
        return EndedTransaction(
            entry.transaction,
            Resolution.COMMIT,
            entry.group,
            message_id,
            record.end,
            queue_id,
            queue_offset,
        )

    def _fill(self, half_end: QueueOffset, op_end: QueueOffset) -> None:
        # In one go: requests must never see part of it.
        table = self._table
        table.half_end = max(table.half_end, half_end)
        table.op_end = max(table.op_end, op_end)
        for highest, number in self._ops:
            table.op_found(highest, number)
        table.restore((*self._found.values(), *(entry for entry, _, _ in self._ended)))
        for entry, end, record_at in self._ended:
            table.end(entry, end, record_at=record_at)
        if self._found or self._ended or self._unreadable:
            logger.info(
                "transactions found open=%d ended_without_op=%d unreadable=%d",
                len(self._found),
                len(self._ended),
                self._unreadable,
            )
