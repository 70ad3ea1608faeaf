"""The transitions of transactions: each is one append, and the table changes in the same turn.

That is what makes a transaction end once: nobody else can look at the table between the two, and
after a crash the log says what the table said.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

from ternmq_broker.storage.ack_policy import append_with_space
from ternmq_broker.storage.internal_append import InternalWriter
from ternmq_broker.storage.internal_record import InternalRecord
from ternmq_broker.transactions.commit_codec import PlainCommit, commit_batch
from ternmq_broker.transactions.half_codec import HalfRecord
from ternmq_broker.transactions.op_codec import OP_TAG, encode_ops
from ternmq_broker.transactions.table import EndedTransaction, OpenTransaction, TransactionTable
from ternmq_model.clock import Clock
from ternmq_model.errors import UsageError
from ternmq_model.names import OP_TOPIC
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import TAGS
from ternmq_model.record.batch import RecordBatch
from ternmq_model.transaction import Resolution


class TransitionRecord(NamedTuple):
    """An open transaction with its newest half message, and what is to be stored of it."""

    entry: OpenTransaction
    half: HalfRecord
    record: InternalRecord
    """The committed message, the copy or the parked one."""


class Transitions:
    """Takes transactions from one state to the next. Owned by the broker's loop.

    Every method raises TernError when nothing was stored of what it was still to store; then those
    transactions are what they were. `is_open` must hold for each, and does until the append.
    """

    def __init__(
        self,
        table: TransactionTable,
        writer: InternalWriter,
        clock: Clock,
        *,
        store_host: Callable[[], bytes],
        space_made: Callable[[], Awaitable[bool]],
        op_bytes_max: int,
    ) -> None:
        self._table = table
        self._writer = writer
        self._clock = clock
        self._store_host = store_host
        self._space_made = space_made
        self._op_bytes_max = op_bytes_max

    async def commit(self, changes: Sequence[TransitionRecord]) -> None:
        """Store the messages of transactions: they are committed."""
        for group in _by_host(changes):
            await append_with_space(partial(self._commit, group), self._space_made)

    def _commit(self, changes: Sequence[TransitionRecord]) -> None:
        self._note_work(change.half.staged_for for change in changes)
        appended = self._writer.append([change.record for change in changes])
        for change, physical, number in zip(
            changes,
            appended.physical_offsets.tolist(),
            appended.queue_offsets.tolist(),
            strict=True,
        ):
            half = change.half
            queue_id, queue_offset = change.record.queue_id, number
            if half.is_delayed:
                queue_id, queue_offset = half.queue_id, -1
            ended = EndedTransaction(
                half.transaction,
                Resolution.COMMIT,
                half.group,
                half.message_id,
                appended.end,
                queue_id,
                queue_offset,
            )
            self._table.end(change.entry, ended, record_at=physical)
        if self._table.unwritten_bytes >= self._op_bytes_max:
            self.write_ops()

    async def commit_plain(
        self, entries: Sequence[OpenTransaction], commits: Sequence[PlainCommit]
    ) -> None:
        """Store the messages of staged transactions: they are committed.

        Raises:
            TernError: Also when the broker has an address that they cannot have.
        """
        if not self._writer.is_ipv4:
            raise UsageError("records with hosts of another length")
        batch = commit_batch(commits, is_checksummed=self._writer.is_checksummed)
        store = partial(self._commit_plain, entries, commits, batch)
        await append_with_space(store, self._space_made)

    def _commit_plain(
        self, entries: Sequence[OpenTransaction], commits: Sequence[PlainCommit], batch: RecordBatch
    ) -> None:
        self._note_work(one.staged_for for one in commits)
        appended = self._writer.append_batch(batch)
        places, numbers = appended.physical_offsets.tolist(), appended.queue_offsets.tolist()
        for entry, one, physical, number in zip(entries, commits, places, numbers, strict=True):
            told = (one.group, one.message_id, appended.end, one.queue_id, number)
            ended = EndedTransaction(one.transaction, Resolution.COMMIT, *told)
            self._table.end(entry, ended, record_at=physical)
        if self._table.unwritten_bytes >= self._op_bytes_max:
            self.write_ops()

    def _note_work(self, batches: Iterable[str]) -> None:
        """Take note of commits, also of those that cannot be stored now: they are tried again."""
        now_ms = self._clock.monotonic_ms()
        for staged_for in dict.fromkeys(batches):
            self._table.work_on(staged_for, now_ms=now_ms)

    async def roll_back(self, halves: Sequence[tuple[OpenTransaction, HalfRecord]]) -> None:
        """Store one op message: the transactions are rolled back."""
        entries = [(entry, half.message_id) for entry, half in halves]
        groups = [half.group for _, half in halves]
        if halves:
            await append_with_space(partial(self._roll_back, entries, groups, ""), self._space_made)

    def give_up(self, entry: OpenTransaction, *, why: str) -> None:
        """Roll a transaction back whose half message cannot be read.

        Raises:
            BrokerBusy: There is no room at this moment.
        """
        self._roll_back([(entry, "")], [entry.group], why)

    def expire(
        self, expired: Sequence[tuple[OpenTransaction, HalfRecord | None]], *, why: str
    ) -> None:
        """Roll back staged transactions whose time is over; None = what cannot be read any more.

        Raises:
            TernError: That could not be stored now.
        """
        self._roll_back(
            [(entry, "" if half is None else half.message_id) for entry, half in expired],
            ["" if half is None else half.group for _, half in expired],
            why,
        )

    def _roll_back(
        self, entries: Sequence[tuple[OpenTransaction, str]], groups: Sequence[str], why: str
    ) -> None:
        named = [*self._table.unwritten()]
        for entry, _ in entries:
            named += (*entry.earlier, entry.queue_offset)
        number, end = self._append_op(named)
        for (entry, message_id), group in zip(entries, groups, strict=True):
            ended = EndedTransaction(
                entry.transaction, Resolution.ROLLBACK, group, message_id, end, why=why
            )
            self._table.end(entry, ended, record_at=None)
        self._table.op_written(named, number, end=end)

    def put_back(self, changes: Sequence[TransitionRecord]) -> None:
        """Store copies of half messages behind the others.

        Raises:
            BrokerBusy: There is no room at this moment.
        """
        for group in _by_host(changes):
            appended = self._writer.append([change.record for change in group])
            for change, physical, number in zip(
                group,
                appended.physical_offsets.tolist(),
                appended.queue_offsets.tolist(),
                strict=True,
            ):
                self._table.put_back(change.entry, physical, number, end=appended.end)

    def park(self, changes: Sequence[TransitionRecord], *, why: str) -> None:
        """Store half messages where people look at them: the transactions are rolled back.

        Raises:
            BrokerBusy: There is no room at this moment.
        """
        for group in _by_host(changes):
            appended = self._writer.append([change.record for change in group])
            places = appended.physical_offsets.tolist()
            for change, physical in zip(group, places, strict=True):
                half = change.half
                ended = EndedTransaction(
                    half.transaction,
                    Resolution.ROLLBACK,
                    half.group,
                    half.message_id,
                    appended.end,
                    why=why,
                )
                self._table.end(change.entry, ended, record_at=physical)
        if changes:
            self.write_ops()

    def write_ops(self) -> None:
        """Store one op message for all that have none, if there are any.

        It names everything that ended before it, which is what lets a start read no further back
        than to the first message without one.

        Raises:
            TernError: It could not be stored; the next one names them too.
        """
        named = self._table.unwritten()
        if named:
            number, end = self._append_op(named)
            self._table.op_written(named, number, end=end)

    def _append_op(self, named: Sequence[QueueOffset]) -> tuple[QueueOffset, PhysicalOffset]:
        record = InternalRecord(
            topic=OP_TOPIC,
            queue_id=0,
            body=encode_ops(named),
            properties={TAGS: OP_TAG},
            born_at_ms=self._clock.wall_ms(),
            born_host=self._store_host(),
        )
        appended = self._writer.append([record])
        return QueueOffset(int(appended.queue_offsets[0])), appended.end


def _by_host(changes: Sequence[TransitionRecord]) -> list[list[TransitionRecord]]:
    """Return the changes in groups that are appended whole or not at all."""
    lengths = groupby(changes, lambda change: len(change.record.born_host))
    return [list(group) for _, group in lengths]
