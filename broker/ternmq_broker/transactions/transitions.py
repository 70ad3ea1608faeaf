"""Transitions of transactions: each is one append, and the table changes in the same turn.

So a transaction ends once: no other task can read the table between append and change, and after a
crash the log holds the state that the table had.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple

from ternmq_broker.storage.ack_policy import append_with_space
from ternmq_broker.storage.internal_append import InternalWriter
from ternmq_broker.storage.internal_record import InternalRecord
from ternmq_broker.transactions.half_codec import OP_TAG, HalfRecord, encode_ops
from ternmq_broker.transactions.staged_codec import PlainCommit, commit_batch
from ternmq_broker.transactions.table import EndedTransaction, OpenTransaction, TransactionTable
from ternmq_model.clock import Clock
from ternmq_model.errors import UsageError
from ternmq_model.names import OP_TOPIC
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import TAGS
from ternmq_model.transaction import Resolution
from ternmq_runtime.metrics.families import HistogramCounts
from ternmq_store.message_store import AppendResult

LATENCY_BOUNDS_MS: Final = (10, 100, 1_000, 5_000, 60_000, 600_000, 3_600_000, 86_400_000)
"""Upper bounds of the ranges in which times of commits are counted."""


@dataclass(slots=True)
class EndCounts:
    """Counts of the ends of one topic's transactions, since the start of the broker."""

    committed: int = 0
    rolled_back: int = 0
    latencies: HistogramCounts = field(default_factory=lambda: HistogramCounts(LATENCY_BOUNDS_MS))
    """Times from the first half message to the commit, ms."""


class TransitionRecord(NamedTuple):
    """Open transaction with its newest half message, and the record to store for it."""

    entry: OpenTransaction
    half: HalfRecord
    """Newest half message; for a commit with the queue of the committed message."""

    record: InternalRecord
    """The committed message, the copy or the parked message."""


class Transitions:
    """Changes of transactions from one state to the next. Owned by the broker's loop.

    Every method raises TernError when part of its records was not stored; the transactions of those
    records are unchanged. `is_open` must hold for each transaction until its append.
    """

    def __init__(
        self, table: TransactionTable, writer: InternalWriter, clock: Clock, *, op_bytes_max: int
    ) -> None:
        self.table = table
        self.writer = writer
        self.ends: dict[str, EndCounts] = defaultdict(EndCounts)
        """Ends by topic."""
        self._clock = clock
        self._op_bytes_max = op_bytes_max

    async def commit(self, changes: Sequence[TransitionRecord]) -> None:
        """Commit transactions: store their messages."""
        for group in _by_host(changes):
            records = [change.record for change in group]
            await self._commit(
                [change.entry for change in group],
                [change.half for change in group],
                partial(self.writer.append, records),
            )

    async def commit_plain(
        self, entries: Sequence[OpenTransaction], commits: Sequence[PlainCommit]
    ) -> None:
        """Commit staged transactions: store their messages.

        Raises:
            TernError: Also when the broker has an IPv6 address: plain commits have no space for it.
        """
        if len(self.writer.store_host()) != 8:
            raise UsageError("records with hosts of another length")
        batch = commit_batch(commits, is_checksummed=self.writer.is_checksummed)
        await self._commit(entries, commits, partial(self.writer.append_batch, batch))

    async def _commit(
        self,
        entries: Sequence[OpenTransaction],
        halves: Sequence[HalfRecord | PlainCommit],
        append: Callable[[], AppendResult],
    ) -> None:
        def store() -> None:
            # Also for commits that find no space: they are tried again.
            now_ms = self._clock.monotonic_ms()
            for staged_for in dict.fromkeys(half.staged_for for half in halves):
                self.table.work_on(staged_for, now_ms=now_ms)
            appended = append()
            offsets, numbers = appended.physical_offsets.tolist(), appended.queue_offsets.tolist()
            for entry, half, offset, number in zip(entries, halves, offsets, numbers, strict=True):
                ended = EndedTransaction(
                    half.transaction,
                    Resolution.COMMIT,
                    half.group,
                    half.message_id,
                    appended.end,
                    half.queue_id,
                    -1 if half.is_delayed else number,
                )
                self.table.end(entry, ended, record_at=offset)
                ends = self.ends[entry.topic]
                ends.committed += 1
                ends.latencies.observe(max(0, now_ms - entry.began_at_ms))
            if self.table.unwritten_bytes >= self._op_bytes_max:
                self.write_ops()

        await append_with_space(store, self.writer.space_made)

    def roll_back(
        self, halves: Sequence[tuple[OpenTransaction, HalfRecord | None]], *, why: str = ""
    ) -> None:
        """Roll back transactions: store one op message for all.

        Args:
            halves: Transactions with their half messages; None for a damaged or lost one.
            why: Reason of a roll-back that no producer requested.
        """
        if not halves:
            return
        named = [*self.table.unwritten()]
        for entry, _ in halves:
            named += (*entry.earlier, entry.queue_offset)
        number, end = self._append_op(named)
        for entry, half in halves:
            group, message_id = (entry.group, "") if half is None else (half.group, half.message_id)
            ended = EndedTransaction(
                entry.transaction, Resolution.ROLLBACK, group, message_id, end, why=why
            )
            self.table.end(entry, ended, record_at=None)
            self.ends[entry.topic].rolled_back += 1
        self.table.op_written(named, number, end=end)

    def put_back(self, changes: Sequence[TransitionRecord]) -> None:
        """Store copies of half messages behind the others."""
        for change, offset, number, end in self._append(changes):
            self.table.put_back(change.entry, offset, number, end=end)

    def park(self, changes: Sequence[TransitionRecord], *, why: str) -> None:
        """Park half messages in their topic, which rolls the transactions back."""
        for change, offset, _, end in self._append(changes):
            half = change.half
            ended = EndedTransaction(
                half.transaction, Resolution.ROLLBACK, half.group, half.message_id, end, why=why
            )
            self.table.end(change.entry, ended, record_at=offset)
            self.ends[change.entry.topic].rolled_back += 1
        if changes:
            self.write_ops()

    def _append(
        self, changes: Sequence[TransitionRecord]
    ) -> Iterator[tuple[TransitionRecord, PhysicalOffset, QueueOffset, PhysicalOffset]]:
        """Store the records; return each change with both offsets and the end of its append."""
        for group in _by_host(changes):
            appended = self.writer.append([change.record for change in group])
            offsets, numbers = appended.physical_offsets.tolist(), appended.queue_offsets.tolist()
            for change, offset, number in zip(group, offsets, numbers, strict=True):
                yield change, offset, number, appended.end

    def write_ops(self) -> None:
        """Store one op message for all ended transactions that have none, if there are any.

        The op message names all of them, so that a start reads the log back no further than to the
        first message without one.

        Raises:
            TernError: The op message was not stored; the next one names the same transactions.
        """
        named = self.table.unwritten()
        if named:
            number, end = self._append_op(named)
            self.table.op_written(named, number, end=end)

    def _append_op(self, named: Sequence[QueueOffset]) -> tuple[QueueOffset, PhysicalOffset]:
        record = InternalRecord(
            topic=OP_TOPIC,
            queue_id=0,
            body=encode_ops(named),
            properties={TAGS: OP_TAG},
            born_at_ms=self._clock.wall_ms(),
            born_host=self.writer.store_host(),
        )
        appended = self.writer.append([record])
        return QueueOffset(int(appended.queue_offsets[0])), appended.end


def _by_host(changes: Sequence[TransitionRecord]) -> list[list[TransitionRecord]]:
    """Return the changes in groups that are appended whole or not at all."""
    lengths = groupby(changes, lambda change: len(change.record.born_host))
    return [list(group) for _, group in lengths]
