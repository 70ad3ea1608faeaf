"""Finding out after a start which transactions are open, from what the log says.

1. The half topic, from the group's offset on: each record is a transaction or a copy of one.
2. The op topic, from its offset on: what it names is done with.
3. The log, for messages and parked copies of what is then still open: a crash may have come between
   one of those and its op message. They lie behind the scan offset, and behind the first half
   message of what is open; most often nothing is open, and nothing is read.

What begins while this goes on is told to the table as ever: it lies behind all that is read here.

Source: RocketMQ `TransactionalMessageServiceImpl.fillOpRemoveMap`; the third part is our own.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from ternmq_broker.reading import give_way
from ternmq_broker.transactions.half import Half
from ternmq_broker.transactions.judge import CheckRules, look_after_ms
from ternmq_broker.transactions.ops import OP_TAG, decode_ops
from ternmq_broker.transactions.reading import HalfReader
from ternmq_broker.transactions.table import Ended, Open, TransactionTable
from ternmq_model.clock import Clock
from ternmq_model.errors import CorruptRecord
from ternmq_model.names import CHECK_MAX_TOPIC, HALF_TOPIC, OP_TOPIC
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import TAGS, decode_properties
from ternmq_model.record import Record, decode_record
from ternmq_model.transaction import Resolution
from ternmq_store.reading.prepared_search import PreparedRecord
from ternmq_store.reading.reader import Limits, ReadRequest, ReadResult

logger = logging.getLogger(__name__)

_READ: Final = Limits(256, 1 << 20)
_ENTRIES_AT_ONCE: Final = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class RebuildServices:
    """What a rebuild stands on."""

    table: TransactionTable
    halves: HalfReader
    clock: Clock
    rules: CheckRules
    half_offset: QueueOffset
    """Of the group that keeps progress; 0 when it has none."""

    op_offset: QueueOffset
    scan_offset: PhysicalOffset
    """Before it every message has its op; 0 when that is not known."""

    end: PhysicalOffset
    """Of the log when the broker started: what lies behind it the table is told as it happens."""


@dataclass(slots=True)
class _Found:
    """A transaction that the half topic tells of."""

    half: Half
    """Its newest half message."""

    began_at_ms: int
    """Wall clock."""

    earlier: list[QueueOffset] = field(default_factory=list[QueueOffset])


class Rebuild:
    """One rebuild, from a start's table to one that holds what the log says.

    Args:
        services: With the offsets as the files kept them.

    Attributes:
        unreadable: Records of the two topics that were passed over because they are damaged.
    """

    def __init__(self, services: RebuildServices) -> None:
        self.unreadable = 0
        self._services = services
        self._reader = services.halves.reader
        self._end = services.end
        self._ops: list[tuple[QueueOffset, QueueOffset]] = []
        self._found: dict[PhysicalOffset, _Found] = {}
        self._by_place: dict[QueueOffset, PhysicalOffset] = {}
        self._ended: list[tuple[_Found, Ended, PhysicalOffset]] = []

    async def run(self) -> None:
        """Fill the table. Reads in bounded pieces; what else the broker does goes first.

        Everything before `end` must be dispatched.

        Raises:
            RefusedError: The disk failed; another one may be tried.
            OSError: Likewise.
        """
        half_end = await self._read(HALF_TOPIC, self._services.half_offset, self._take_half)
        op_end = await self._read(OP_TOPIC, self._services.op_offset, self._take_op)
        if self._found:
            await self._scan()
        self._hand_over(await self._entries(), half_end, op_end)

    async def _read(
        self, topic: str, offset: QueueOffset, take: Callable[[Record], None]
    ) -> QueueOffset:
        """Give every record of a queue from `offset` on to `take`; return where the queue ends."""
        begin, end = self._reader.store.queue_range(topic, 0)
        at = max(offset, begin)
        while at < end:
            request = ReadRequest(topic=topic, queue_id=0, offset=at, hot=_READ, cold=_READ)
            result = await self._reader.read(request)
            for record in _records(result):
                if record is None:
                    self.unreadable += 1
                elif record.header.physical_offset < self._end:
                    take(record)
            self.unreadable += result.skipped
            at = result.next_offset if result.next_offset > at else QueueOffset(at + 1)
            await give_way()
        return end

    def _take_half(self, record: Record) -> None:
        half = self._services.halves.half_of(record)
        if half is None:
            self.unreadable += 1
            return
        known = self._found.get(half.transaction)
        if known is None:
            self._found[half.transaction] = _Found(half, half.began_at_ms)
        else:
            known.earlier.append(known.half.queue_offset)
            known.half = half
        self._by_place[half.queue_offset] = half.transaction
        if half.first_queue_offset < half.queue_offset:
            self._by_place.setdefault(half.first_queue_offset, half.transaction)

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
        services, store = self._services, self._reader.store
        start = max(services.scan_offset, min(self._found))
        if start >= self._end:
            return
        logger.info(
            "log read for ends of transactions open=%d from=%d to=%d",
            *(len(self._found), start, self._end),
        )
        search = store.searches.prepared(start, self._found, skipped_topic=HALF_TOPIC)
        while await self._reader.blocking.run(search.step):
            continue
        for record in search.found:
            found = self._found.pop(record.prepared_offset, None)
            if found is None:
                continue
            is_parked = record.topic == CHECK_MAX_TOPIC
            ended = Ended(
                record.prepared_offset,
                Resolution.ROLLBACK if is_parked else Resolution.COMMIT,
                found.half.group,
                found.half.message_id,
                record.end,
                *_place(found.half, record),
                why="nobody told its end" if is_parked else "",
            )
            self._ended.append((found, ended, record.physical_offset))

    async def _entries(self) -> dict[PhysicalOffset, Open]:
        """Return what the table is to hold of all that was found."""
        clock, rules = self._services.clock, self._services.rules
        now_ms, wall_ms = clock.monotonic_ms(), clock.wall_ms()
        entries: dict[PhysicalOffset, Open] = {}
        ended = [found for found, _, _ in self._ended]
        for number, found in enumerate((*self._found.values(), *ended), 1):
            half = found.half
            age_ms = max(0, wall_ms - found.began_at_ms)
            after_ms = look_after_ms(half, rules, age_ms=age_ms, now_ms=wall_ms)
            entries[half.transaction] = Open(
                half.transaction,
                half.physical_offset,
                half.queue_offset,
                now_ms - age_ms,
                now_ms + after_ms,
                group=half.group,
                earlier=tuple(found.earlier),
                is_staged=bool(half.staged_for),
            )
            if number % _ENTRIES_AT_ONCE == 0:
                await give_way()
        return entries

    def _hand_over(
        self, entries: dict[PhysicalOffset, Open], half_end: QueueOffset, op_end: QueueOffset
    ) -> None:
        """Let the table have what was found, in one go."""
        table = self._services.table
        table.half_end = max(table.half_end, half_end)
        table.op_end = max(table.op_end, op_end)
        for highest, number in self._ops:
            table.op_found(highest, number)
        table.restore(entries.values())
        for found, end, record_at in self._ended:
            table.end(entries[found.half.transaction], end, record_at=record_at)
        if self._found or self._ended or self.unreadable:
            logger.info(
                "transactions found open=%d ended_without_op=%d unreadable=%d",
                *(len(self._found), len(self._ended), self.unreadable),
            )


def _place(half: Half, record: PreparedRecord) -> tuple[int, int]:
    """Return the queue and the place in it of what ended a transaction, as its producer is told."""
    if record.topic == CHECK_MAX_TOPIC:
        return 0, -1
    return (half.queue_id, -1) if half.is_delayed else (record.queue_id, record.queue_offset)


def _records(result: ReadResult) -> Iterator[Record | None]:
    """Yield the records of a read; None for one that is damaged."""
    data = memoryview(result.records)
    at = 0
    for size in result.record_sizes.tolist():
        try:
            yield decode_record(data[at : at + size], check_crc=False)
        except CorruptRecord:
            yield None
        at += size
