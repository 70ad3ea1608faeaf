"""Recovery of the open transactions after a start, from what the log says.

1. The half topic, from the group's offset on: each record is a transaction or a copy of one.
2. The op topic, from its offset on: what it names is done with.
3. The log, for messages and parked copies of what is then still open: a crash may have come between
   one of those and its op message. They lie behind the scan offset, and behind the first half
   message of what is open; most often nothing is open, and nothing is read.

What begins while this goes on is told to the table as ever: it lies behind all that is read here.

Source: RocketMQ `TransactionalMessageServiceImpl.fillOpRemoveMap`; the third part is our own.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from ternmq_broker.storage.yielding import yield_to_threads
from ternmq_broker.transactions.check_policy import CheckPolicy, look_after_ms, staged_ms
from ternmq_broker.transactions.half_codec import HalfRecord
from ternmq_broker.transactions.half_reader import HalfReader
from ternmq_broker.transactions.op_codec import OP_TAG, decode_ops
from ternmq_broker.transactions.staged_codec import StagedHalf, staged_halves
from ternmq_broker.transactions.table import EndedTransaction, OpenTransaction, TransactionTable
from ternmq_model.clock import Clock
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


@dataclass(frozen=True, kw_only=True, slots=True)
class RecoveryContext:
    """Parts and offsets that a recovery uses."""

    table: TransactionTable
    halves: HalfReader
    clock: Clock
    is_doubted: Callable[[], bool]
    """Tells whether the clock is in doubt: then no age is believed."""

    policy: CheckPolicy
    half_offset: QueueOffset
    """Offset of the group that keeps progress; 0 when it has none."""

    op_offset: QueueOffset
    scan_offset: PhysicalOffset
    """Before it every message has its op; 0 when that is not known."""

    end: PhysicalOffset
    """End of the log when the broker started: the table is told of later records as they come."""


class TransactionRecovery:
    """One recovery: fills a start's table with what the log says.

    Args:
        context: With the offsets as the files kept them.

    Attributes:
        unreadable: Records of the two topics that were passed over because they are damaged.
    """

    def __init__(self, context: RecoveryContext) -> None:
        self.unreadable = 0
        self._context = context
        self._reader = context.halves.reader
        self._end = context.end
        self._ops: list[tuple[QueueOffset, QueueOffset]] = []
        self._found: dict[PhysicalOffset, OpenTransaction] = {}
        """Rows of the table to be. There may be a million: nothing else is kept of each."""

        self._by_place: dict[QueueOffset, PhysicalOffset] = {}
        self._groups: dict[str, str] = {}
        self._ended: list[tuple[OpenTransaction, EndedTransaction, PhysicalOffset]] = []
        self._now_ms = context.clock.monotonic_ms()
        self._wall_ms = context.clock.wall_ms()
        self._is_doubted = context.is_doubted()
        self._moves = context.halves.reader.store.session.clock.moves

    async def run(self) -> None:
        """Fill the table. Reads in bounded pieces; what else the broker does goes first.

        Everything before `end` must be dispatched.

        Raises:
            RefusedError: The disk failed; another one may be tried.
            OSError: Likewise.
        """
        half_end = await self._read(HALF_TOPIC, self._context.half_offset, self._take_halves)
        op_end = await self._read(OP_TOPIC, self._context.op_offset, self._take_ops)
        self._by_place.clear()
        if self._found:
            await self._scan()
        self._hand_over(half_end, op_end)

    async def _read(
        self, topic: str, offset: QueueOffset, take: Callable[[ReadResult], None]
    ) -> QueueOffset:
        """Give all of a queue from `offset` on to `take`; return where the queue ends."""
        begin, end = self._reader.store.queue_range(topic, 0)
        at = max(offset, begin)
        while at < end:
            request = ReadRequest(topic=topic, queue_id=0, offset=at, hot=_READ, cold=_READ)
            result = await self._reader.read(request)
            take(result)
            self.unreadable += result.skipped
            at = result.next_offset if result.next_offset > at else QueueOffset(at + 1)
            await yield_to_threads()
        return end

    def _take_halves(self, result: ReadResult) -> None:
        """Take records of the half topic: of staged ones, only what is needed is decoded."""
        data, sizes = bytes(result.records), result.record_sizes.astype(np.int64)
        starts = np.cumsum(sizes) - sizes
        staged = staged_halves(data, starts, sizes)
        for half, start, size in zip(staged, starts.tolist(), sizes.tolist(), strict=True):
            if half is None:
                record = _record(data, start, size)
                if record is None:
                    self.unreadable += 1
                elif record.header.physical_offset < self._end:
                    self._take_half(record)
            elif half.physical_offset < self._end:
                self._take_staged(half)

    def _take_staged(self, half: StagedHalf) -> None:
        place = half.physical_offset
        age_ms = self._age_ms(half.stored_at_ms, place, is_staged=True)
        lasts_ms = staged_ms(half.immunity_ms, self._context.policy)
        self._found[place] = OpenTransaction(
            *(place, place, half.queue_offset),
            self._now_ms - age_ms,
            self._now_ms + max(0, lasts_ms - age_ms),
            group=self._groups.setdefault(half.group, half.group),
            is_staged=True,
        )
        self._by_place[half.queue_offset] = place

    def _take_ops(self, result: ReadResult) -> None:
        data, at = bytes(result.records), 0
        for size in result.record_sizes.tolist():
            record = _record(data, at, size)
            if record is None:
                self.unreadable += 1
            elif record.header.physical_offset < self._end:
                self._take_op(record)
            at += size

    def _take_half(self, record: Record) -> None:
        half = self._context.halves.half_of(record)
        if half is None:
            self.unreadable += 1
            return
        entry = self._entry_of(half)
        known = self._found.get(half.transaction)
        if known is not None:
            entry.began_at_ms = known.began_at_ms
            entry.earlier = (*known.earlier, known.queue_offset)
        self._found[entry.transaction] = entry
        self._by_place[half.queue_offset] = half.transaction
        if half.first_queue_offset < half.queue_offset:
            self._by_place.setdefault(half.first_queue_offset, half.transaction)

    def _entry_of(self, half: HalfRecord) -> OpenTransaction:
        policy, is_staged = self._context.policy, bool(half.staged_for)
        age_ms = self._age_ms(half.began_at_ms, half.transaction, is_staged=is_staged)
        now_ms = self._wall_ms - moved_ms(self._moves, half.physical_offset)
        after_ms = look_after_ms(half, policy, age_ms=age_ms, now_ms=now_ms)
        return OpenTransaction(
            half.transaction,
            half.physical_offset,
            half.queue_offset,
            self._now_ms - age_ms,
            self._now_ms + after_ms,
            group=self._groups.setdefault(half.group, half.group),
            is_staged=is_staged,
        )

    def _age_ms(self, began_at_ms: int, place: PhysicalOffset, *, is_staged: bool) -> int:
        """Return how old a transaction is; in doubt no older than one that is asked about first."""
        age_ms = max(0, self._wall_ms - began_at_ms - moved_ms(self._moves, place))
        if not self._is_doubted:
            return age_ms
        return 0 if is_staged else min(age_ms, self._context.policy.timeout_ms)

    def _take_op(self, record: Record) -> None:
        if decode_properties(record.properties).get(TAGS) != OP_TAG:
            return
        named = decode_ops(record.body)
        for place in named:
            transaction = self._by_place.get(place)
            if transaction is not None:
                self._found.pop(transaction, None)
        if named:
            self._ops.append((max(named), record.header.queue_offset))

    async def _scan(self) -> None:
        """Find what ended and has no op message."""
        context, store = self._context, self._reader.store
        start = max(context.scan_offset, min(self._found))
        if start >= self._end:
            return
        logger.info(
            "log read for ends of transactions open=%d from=%d to=%d",
            *(len(self._found), start, self._end),
        )
        search = store.searches.prepared(start, self._found, skipped_topic=HALF_TOPIC)
        while await self._reader.blocking.run(search.step):
            continue
        for number, record in enumerate(search.found, 1):
            entry = self._found.pop(record.prepared_offset, None)
            if entry is not None:
                end = await self._end_of(entry, record)
                self._ended.append((entry, end, record.physical_offset))
            if number % _ENDS_AT_ONCE == 0:
                await yield_to_threads()

    async def _end_of(self, entry: OpenTransaction, record: PreparedRecord) -> EndedTransaction:
        """Return how a transaction ended; without its half message, only that it did."""
        found = await self._context.halves.read(entry.physical_offset)
        half = None if found is None else found[0]
        is_parked = record.topic == CHECK_MAX_TOPIC
        place = (record.queue_id, record.queue_offset)
        if is_parked:
            place = (0, -1)
        elif half is not None and half.is_delayed:
            place = (half.queue_id, -1)
        return EndedTransaction(
            entry.transaction,
            Resolution.ROLLBACK if is_parked else Resolution.COMMIT,
            entry.group,
            "" if half is None else half.message_id,
            record.end,
            *place,
            why="nobody told its end" if is_parked else "",
        )

    def _hand_over(self, half_end: QueueOffset, op_end: QueueOffset) -> None:
        """Let the table have what was found, in one go."""
        table = self._context.table
        table.half_end = max(table.half_end, half_end)
        table.op_end = max(table.op_end, op_end)
        for highest, number in self._ops:
            table.op_found(highest, number)
        table.restore((*self._found.values(), *(entry for entry, _, _ in self._ended)))
        for entry, end, record_at in self._ended:
            table.end(entry, end, record_at=record_at)
        if self._found or self._ended or self.unreadable:
            logger.info(
                "transactions found open=%d ended_without_op=%d unreadable=%d",
                *(len(self._found), len(self._ended), self.unreadable),
            )


def _record(data: bytes, start: int, size: int) -> Record | None:
    """Return one record of a read; None when it is damaged."""
    try:
        return decode_record(memoryview(data)[start : start + size], check_crc=False)
    except CorruptRecord:
        return None
