"""What is open, for operators, and its roll-back by them: a page of the half topic at a time.

Nothing is kept for it but when a batch was last worked on: the half messages say the rest, and are
read in the order of their queue, as a start does.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from ternmq_broker.reading import LOOKS_AT_ONCE, let_in
from ternmq_broker.transactions.ending import Ender, EndRequest
from ternmq_broker.transactions.gate import Gate
from ternmq_broker.transactions.half import Half
from ternmq_broker.transactions.reading import HalfReader
from ternmq_broker.transactions.table import Sighting, TransactionTable
from ternmq_model.clock import Clock
from ternmq_model.errors import CorruptRecord
from ternmq_model.names import HALF_TOPIC
from ternmq_model.offsets import QueueOffset
from ternmq_model.record import decode_record
from ternmq_model.response_code import ResponseCode
from ternmq_model.transaction import Resolution, check_left_behind
from ternmq_store.reading.reader import Limits, ReadRequest, ReadResult

logger = logging.getLogger(__name__)

_READ: Final = Limits(1024, 1 << 20)
_PLACES_MAX: Final = 16_384
"""Places of the half topic at which one page looks for an open one: 1 ms."""

_DECIDED: Final = frozenset({ResponseCode.ILLEGAL_OPERATION, ResponseCode.QUERY_NOT_FOUND})


class OpenRow(NamedTuple):
    """One open transaction."""

    half: Half
    seen: Sighting


@dataclass(slots=True)
class OpenBatch:
    """Open transactions that belong together, of one page."""

    staged_for: str
    """Empty = they are not staged."""

    group: str
    topic: str
    """Of the oldest."""

    count: int
    oldest_ms: int
    newest_ms: int
    """How long ago the oldest and the newest were stored."""

    quiet_ms: int
    """How long ago one was stored or committed, or asked about."""

    left_ms: int
    """Until the first is rolled back for its age; -1 = never."""


class RolledBack(NamedTuple):
    """What became of a page."""

    rolled_back: int
    decided: int
    """Ended otherwise before it came to them."""

    next: QueueOffset


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenTransactions:
    """Tells what is open and rolls back what is staged. Owns nothing."""

    table: TransactionTable
    halves: HalfReader
    clock: Clock
    gate: Gate
    ender: Ender

    async def page(
        self, staged_for: str, begin: QueueOffset
    ) -> tuple[Sequence[OpenBatch], QueueOffset]:
        """Return what is open in one page, and where the next begins; 0 = nowhere.

        Args:
            staged_for: As `is_meant` takes it.
            begin: In the half topic's queue.

        Raises:
            RefusedError: The broker starts or closes, or the disk failed.
        """
        rows, behind = await self._rows(staged_for, begin)
        return self._batches(rows), behind

    async def roll_back(self, staged_for: str, begin: QueueOffset, *, force: bool) -> RolledBack:
        """Roll back what is staged in one page. Cancelling is safe: repeat it.

        Raises:
            RefusedError: As `page`; ILLEGAL_OPERATION: a batch of the page is in use, and nothing
                of the page is rolled back; or what a roll-back met, and then some may be.
        """
        rows, behind = await self._rows(staged_for, begin)
        while any(self.table.is_ending(row.half.transaction) for row in rows):
            await self.ender.released()
        # From here on nothing else runs until `end` has claimed the rows: who asks about them
        # later waits for their end, and who asked before has worked on them.
        for batch in self._batches(rows):
            if not force:
                check_left_behind(batch.staged_for, batch.quiet_ms)
        outcomes = await self.ender.end([_rollback(row.half) for row in rows])
        errors = [outcome.error for outcome in outcomes if outcome.error is not None]
        for error in errors:
            if error.code not in _DECIDED:
                raise error
        if rows:
            logger.warning(
                "staged rolled back by an operator staged_for=%s count=%d decided=%d",
                *(staged_for, len(rows) - len(errors), len(errors)),
            )
        return RolledBack(len(rows) - len(errors), len(errors), behind)

    async def _rows(self, staged_for: str, begin: QueueOffset) -> tuple[list[OpenRow], QueueOffset]:
        await self.gate.check()
        reader, rows = self.halves.reader, list[OpenRow]()
        looked = looked_bytes = 0
        while looked < _READ.messages_max and looked_bytes < _READ.bytes_max:
            end = min(reader.store.queue_range(HALF_TOPIC, 0)[1], self.table.half_end)
            at = self.table.first_place(begin, places_max=_PLACES_MAX)
            if at >= end:
                return rows, QueueOffset(0)
            begin = at
            if self.table.seen(at) is None:
                break
            request = ReadRequest(topic=HALF_TOPIC, queue_id=0, offset=at, hot=_READ, cold=_READ)
            result = await reader.read(request)
            begin = max(result.next_offset, QueueOffset(at + 1))
            looked += len(result.record_sizes)
            looked_bytes += result.record_bytes
            await self._take(result, staged_for, rows)
        return rows, begin

    async def _take(self, result: ReadResult, staged_for: str, rows: list[OpenRow]) -> None:
        """Add what is open of a read's half messages, and meant, to `rows`."""
        data, sizes = result.records, result.record_sizes.astype(np.int64)
        ends = zip(np.cumsum(sizes).tolist(), sizes.tolist(), strict=True)
        for number, (end, size) in enumerate(ends, 1):
            if number % LOOKS_AT_ONCE == 0:
                await let_in()
            half = self._half(data[end - size : end])
            if half is None or not is_meant(half.staged_for, staged_for):
                continue
            seen = self.table.seen(half.queue_offset)
            if seen is not None:
                rows.append(OpenRow(half, seen))

    def _half(self, data: bytes) -> Half | None:
        try:
            record = decode_record(data, check_crc=False)
        except CorruptRecord:
            return None
        return None if record is None else self.halves.half_of(record)

    def _batches(self, rows: Iterable[OpenRow]) -> list[OpenBatch]:
        return batches_of(rows, self.table.worked_on_at, now_ms=self.clock.monotonic_ms())


def is_meant(staged_for: str, wanted: str) -> bool:
    """Tell whether something staged for `staged_for` is meant by what an operator names.

    Args:
        staged_for: Empty = it is not staged.
        wanted: This, what begins with it and a slash, or, when it is empty, everything.
    """
    return not wanted or staged_for == wanted or staged_for.startswith(f"{wanted}/")


def batches_of(
    rows: Iterable[OpenRow], worked_on_at: Callable[[str], int], *, now_ms: int
) -> list[OpenBatch]:
    """Return open transactions by what they are staged for and by group, the oldest first.

    Args:
        rows: In the order of the half topic.
        worked_on_at: Tells when a producer last asked about or committed one, monotonic.
        now_ms: Monotonic.
    """
    found: dict[tuple[str, str], OpenBatch] = {}
    for half, seen in rows:
        age_ms = now_ms - seen.began_at_ms
        left_ms = -1 if seen.due_at_ms is None else max(0, seen.due_at_ms - now_ms)
        batch = found.get((half.staged_for, half.group))
        if batch is None:
            quiet_ms = now_ms - worked_on_at(half.staged_for)
            batch = found[half.staged_for, half.group] = OpenBatch(
                *(half.staged_for, half.group, half.topic, 0),
                *(age_ms, age_ms, quiet_ms, left_ms),
            )
        batch.count += 1
        batch.oldest_ms = max(batch.oldest_ms, age_ms)
        batch.newest_ms = min(batch.newest_ms, age_ms)
        batch.quiet_ms = min(batch.quiet_ms, age_ms)
        batch.left_ms = min(batch.left_ms, left_ms)
    return list(found.values())


def _rollback(half: Half) -> EndRequest:
    told = (half.group, half.topic, half.message_id, half.transaction)
    return EndRequest(*told, Resolution.ROLLBACK)
