"""Look-up of the states of transactions, for producers; it changes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ternmq_broker.storage.real_topics import RealTopics
from ternmq_broker.storage.yielding import RECORDS_AT_ONCE, yield_to_requests
from ternmq_broker.transactions.commit_codec import PlainCommit, plain_commit
from ternmq_broker.transactions.end_lookup import EndLookup, TransactionIdentity, wrong_ids
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
    """Look-up of states of transactions. Owns nothing."""

    table: TransactionTable
    halves: HalfReader
    topics: RealTopics
    readiness: Readiness
    end_lookup: EndLookup
    ender: EndTransactionProcessor
    clock: Clock

    async def find(self, identities: Sequence[TransactionIdentity]) -> list[TransactionState]:
        """Return the states of transactions, once they are safe. Cancelling is safe.

        A transaction on whose end a request works is waited for. One that is reported as open
        counts as worked on from that moment: no operator's roll-back comes between that and its
        commit.

        Raises:
            RefusedError: The states cannot be told now: the broker starts or closes, the disk
                failed, records are not confirmed in time, or there is no index to search.
            StoreError: The disk failed.
        """
        await self.readiness.check()
        offsets = [self.table.physical_offset_of(one.transaction) for one in identities]
        ends = [PhysicalOffset(offset + 1) for offset in offsets if offset is not None]
        await self.halves.confirmed(max(ends, default=PhysicalOffset(0)))
        states: dict[int, TransactionState] = {}
        over: list[int] = []
        for index, one in enumerate(identities):
            state = await self._state_of_open(one)
            if index % RECORDS_AT_ONCE == RECORDS_AT_ONCE - 1:
                await yield_to_requests()
            if state is None:
                over.append(index)
            else:
                states[index] = state
        ended = await self.end_lookup.find([identities[index] for index in over])
        last = PhysicalOffset(0)
        for index, outcome in zip(over, ended, strict=True):
            if isinstance(outcome, EndedTransaction):
                states[index] = _STATES[outcome.resolution]
                last = max(last, outcome.end)
            elif outcome.code in _NOT_THERE:
                states[index] = TransactionState.NOT_FOUND
            else:
                raise outcome
        await self.halves.confirmed(last)
        return [states[index] for index in range(len(identities))]

    async def _state_of_open(self, identity: TransactionIdentity) -> TransactionState | None:
        """Return the state of an open transaction; None when it has ended, perhaps meanwhile.

        Raises:
            RefusedError: The disk failed.
        """
        transaction = identity.transaction
        read, found = PhysicalOffset(-1), None
        while (offset := self.table.physical_offset_of(transaction)) is not None:
            if self.table.is_ending(transaction):
                await self.ender.released()
            elif offset != read:
                found, read = await self._half_at(offset, identity), offset
            elif found is None or not self.topics.is_there(found.topic, read):
                return TransactionState.NOT_FOUND
            else:
                self.table.work_on(found.staged_for, now_ms=self.clock.monotonic_ms())
                return TransactionState.OPEN
        return None

    async def _half_at(
        self, offset: PhysicalOffset, identity: TransactionIdentity
    ) -> PlainCommit | HalfRecord | None:
        """Return the half message at an offset; None when it is not the transaction's.

        Raises:
            RefusedError: The disk failed.
        """
        data = await self.halves.reader.record(offset, is_checked=False)
        plain = None if data is None else plain_commit(data, identity)
        if plain is not None:
            return plain
        found = await self.halves.read(offset)
        if found is None or wrong_ids(identity, found[0]) is not None:
            return None
        return found[0]
