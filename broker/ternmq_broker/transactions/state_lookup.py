"""Look-up of transactions' states for producers; it changes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ternmq_broker.storage.ack_policy import AckPolicy
from ternmq_broker.storage.real_topics import RealTopics
from ternmq_broker.storage.yielding import RECORDS_AT_ONCE, yield_to_requests
from ternmq_broker.transactions.commit_codec import PlainCommit, plain_commit
from ternmq_broker.transactions.end_lookup import EndLookup, TransactionQuery, wrong_ids
from ternmq_broker.transactions.end_transaction import EndTransactionProcessor
from ternmq_broker.transactions.half_codec import HalfRecord
from ternmq_broker.transactions.half_reader import HalfReader
from ternmq_broker.transactions.readiness import Readiness
from ternmq_broker.transactions.table import EndedTransaction, TransactionTable
from ternmq_model.clock import Clock
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode
from ternmq_model.transaction import Resolution, TransactionState

_STATES: Final = {
    Resolution.COMMIT: TransactionState.COMMITTED,
    Resolution.ROLLBACK: TransactionState.ROLLED_BACK,
}
_NOT_THERE: Final = frozenset({ResponseCode.QUERY_NOT_FOUND, ResponseCode.INVALID_PARAMETER})


@dataclass(frozen=True, kw_only=True, slots=True)
class StateLookup:
    """Tells states. Owns nothing; all of it is the broker's loop's."""

    table: TransactionTable
    halves: HalfReader
    topics: RealTopics
    ack_policy: AckPolicy
    readiness: Readiness
    end_lookup: EndLookup
    ender: EndTransactionProcessor
    clock: Clock

    async def find(self, queries: Sequence[TransactionQuery]) -> list[TransactionState]:
        """Return where transactions stand, once that is safe. Cancelling is safe.

        Those on whose end somebody works are waited for. What is told to be open counts as worked
        on from that moment on: no operator's roll-back comes between that and its commit.

        Raises:
            RefusedError: It cannot be told now: the broker starts or closes, the disk failed, what
                was stored is not confirmed in time, or there is no index to look in.
            StoreError: The disk failed.
        """
        await self.readiness.check()
        last = max((self._end_of(one.transaction) for one in queries), default=PhysicalOffset(0))
        if not self.ack_policy.confirmations.reached(last):
            await self.ack_policy.wait(last)
        states: dict[int, TransactionState] = {}
        over: list[int] = []
        for index, one in enumerate(queries):
            state = await self._state_of_open(one)
            if index % RECORDS_AT_ONCE == RECORDS_AT_ONCE - 1:
                await yield_to_requests()
            if state is None:
                over.append(index)
            else:
                states[index] = state
        ends = await self.end_lookup.find([queries[index] for index in over])
        last = PhysicalOffset(0)
        for index, ended in zip(over, ends, strict=True):
            if isinstance(ended, EndedTransaction):
                states[index] = _STATES[ended.resolution]
                last = max(last, ended.end)
            elif ended.code in _NOT_THERE:
                states[index] = TransactionState.NOT_FOUND
            else:
                raise ended
        if not self.ack_policy.confirmations.reached(last):
            await self.ack_policy.wait(last)
        return [states[index] for index in range(len(queries))]

    def _end_of(self, transaction: PhysicalOffset) -> PhysicalOffset:
        """Return an offset that must be confirmed before an open transaction counts as that."""
        place = self.table.place(transaction)
        return PhysicalOffset(0 if place is None else place + 1)

    async def _state_of_open(self, query: TransactionQuery) -> TransactionState | None:
        """Return the state of one that is open; None when it has ended, perhaps meanwhile.

        Raises:
            RefusedError: The disk failed.
        """
        read, found = PhysicalOffset(-1), None
        while (offset := self.table.place(query.transaction)) is not None:
            if self.table.is_ending(query.transaction):
                await self.ender.released()
            elif offset != read:
                found, read = await self._half_at(offset, query), offset
            elif found is None or not self.topics.is_there(found.topic, read):
                return TransactionState.NOT_FOUND
            else:
                self.table.work_on(found.staged_for, now_ms=self.clock.monotonic_ms())
                return TransactionState.OPEN
        return None

    async def _half_at(
        self, offset: PhysicalOffset, query: TransactionQuery
    ) -> PlainCommit | HalfRecord | None:
        """Return what a half message says; None when it is not of the transaction.

        Raises:
            RefusedError: The disk failed.
        """
        data = await self.halves.reader.record(offset, is_checked=False)
        plain = None if data is None else plain_commit(data, query)
        if plain is not None:
            return plain
        found = await self.halves.read(offset)
        if found is None or wrong_ids(query, found[0]) is not None:
            return None
        return found[0]
