"""The RPCs of Transactions: ends, states and batches of transactions."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ternmq_broker.storage.yielding import RECORDS_AT_ONCE, yield_to_requests
from ternmq_broker.transactions.end_lookup import wrong_ids
from ternmq_broker.transactions.end_transaction import (
    EndRequest,
    EndResult,
    EndTransactionProcessor,
)
from ternmq_broker.transactions.half_codec import HalfRecord, TransactionIdentity
from ternmq_broker.transactions.open_batches import OpenBatches
from ternmq_broker.transactions.staged_codec import PlainCommit, plain_commit
from ternmq_broker.transactions.table import EndedTransaction
from ternmq_model.clock import Clock
from ternmq_model.errors import ConnectionLost, TernError, invalid
from ternmq_model.names import HALF_TOPIC, check_group
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode
from ternmq_model.transaction import Resolution
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_remoting.converters import status_of
from ternmq_remoting.rpc import Call, Handler, Permits, ServerStream, stream, unary
from ternmq_remoting.service_methods import (
    END_TRANSACTION,
    END_TRANSACTIONS,
    FIND_TRANSACTIONS,
    LIST_TRANSACTIONS,
    ROLL_BACK_STAGED,
)
from ternmq_remoting.status import refusal_from

FindStream = ServerStream[transactions.FindTransactionsRequest, transactions.FindTransactionsReply]
ListStream = ServerStream[transactions.ListTransactionsRequest, transactions.ListTransactionsReply]
RollBackStream = ServerStream[transactions.RollBackStagedRequest, transactions.RollBackStagedReply]
EndStream = ServerStream[transactions.EndTransactionsRequest, transactions.EndTransactionsReply]

_FOUND_MAX: Final = 1024
_STATES: Final = {
    Resolution.COMMIT: transactions.TRANSACTION_COMMITTED,
    Resolution.ROLLBACK: transactions.TRANSACTION_ROLLED_BACK,
}
_NOT_FOUND: Final = frozenset({ResponseCode.QUERY_NOT_FOUND, ResponseCode.INVALID_PARAMETER})


@dataclass(frozen=True, slots=True)
class TransactionService:
    """Handlers of the RPCs of Transactions."""

    ender: EndTransactionProcessor
    batches: OpenBatches
    clock: Clock

    def handlers(self) -> Sequence[Handler]:
        """Return the handlers of the RPCs of Transactions."""
        return (
            unary(END_TRANSACTION, self.end_transaction),
            stream(END_TRANSACTIONS, self.end_transactions),
            stream(FIND_TRANSACTIONS, self.find_transactions),
            stream(LIST_TRANSACTIONS, self.list_transactions),
            stream(ROLL_BACK_STAGED, self.roll_back_staged),
        )

    async def end_transaction(
        self, request: transactions.EndTransactionRequest, call: Call
    ) -> transactions.EndTransactionReply:
        """End one transaction."""
        (outcome,) = await self.ender.end([_request(request, call.permits)])
        return _reply(outcome)

    async def end_transactions(self, stream: EndStream, call: Call) -> None:
        """End many transactions, one request after the other."""
        with suppress(ConnectionLost):
            while (request := await stream.read()) is not None:
                ends = [_request(each, call.permits) for each in request.transactions]
                outcomes = await self.ender.end(ends)
                reply = transactions.EndTransactionsReply(outcomes=map(_reply, outcomes))
                await stream.write(reply)

    async def find_transactions(self, stream: FindStream, call: Call) -> None:
        """Return the states of many transactions, one request after the other."""
        with suppress(ConnectionLost):
            while (request := await stream.read()) is not None:
                identities = _identities(request)
                reply = transactions.FindTransactionsReply()
                try:
                    found = await self._located(identities)
                    states = await self._states_of(found, is_at_work=found is identities)
                    reply.states.extend(states)
                    if found is not identities:  # a question of an operator, about a few
                        pairs = zip(found, states, strict=True)
                        reply.checks.extend([await self._checks(*each) for each in pairs])
                except TernError as error:
                    reply.status.CopyFrom(status_of(refusal_from(error)))
                await stream.write(reply)

    async def list_transactions(self, stream: ListStream, call: Call) -> None:
        """List the open transactions."""
        with suppress(ConnectionLost):
            while (request := await stream.read()) is not None:
                await self.batches.list_open(request, stream.write)

    async def roll_back_staged(self, stream: RollBackStream, call: Call) -> None:
        """Roll back staged transactions."""
        with suppress(ConnectionLost):
            while (request := await stream.read()) is not None:
                await self.batches.roll_back(request, stream.write)

    async def _located(
        self, identities: Sequence[TransactionIdentity]
    ) -> Sequence[TransactionIdentity]:
        """Return transactions with their places. Cancelling is safe.

        The index has those that a request does not know. A place that it lacks, too, stays unknown:
        then there is no such transaction.

        Raises:
            TernError: The disk failed.
        """
        missing = [one.message_id for one in identities if one.transaction < 0]
        if not missing:
            return identities
        halves = self.ender.halves
        end = halves.reader.store.confirm_offset
        headers = await halves.reader.find_unique(HALF_TOPIC, missing, end=end)
        places = dict[str, PhysicalOffset]()
        for message_id, header in headers.items():
            found = await halves.read(header.physical_offset)
            if found is not None:
                places[message_id] = found[0].transaction
        return [
            one
            if one.transaction >= 0
            else one._replace(transaction=places.get(one.message_id, one.transaction))
            for one in identities
        ]

    async def _checks(
        self, identity: TransactionIdentity, state: transactions.TransactionState
    ) -> int:
        """Return the number of questions about an open transaction; 0 for any other."""
        offset = self.ender.transitions.table.physical_offset_of(identity.transaction)
        if state != transactions.TRANSACTION_OPEN or offset is None:
            return 0
        found = await self.ender.halves.read(offset)
        return 0 if found is None else found[0].checks

    async def _states_of(
        self, identities: Sequence[TransactionIdentity], *, is_at_work: bool
    ) -> list[transactions.TransactionState]:
        """Return the states of transactions, once they are safe. Cancelling is safe.

        A state waits for a request that works on the transaction's end. A transaction that is
        reported as open counts as worked on from then on: no operator's roll-back comes between
        this answer and its commit.

        Args:
            identities: Names of the transactions.
            is_at_work: False for a question of an operator, who commits nothing.

        Raises:
            TernError: The broker starts or closes, the disk failed, records are not confirmed in
                time, or there is no index to search.
        """
        await self.ender.check_ready()
        table, halves = self.ender.transitions.table, self.ender.halves
        offsets = [table.physical_offset_of(one.transaction) for one in identities]
        ends = [PhysicalOffset(offset + 1) for offset in offsets if offset is not None]
        await halves.confirmed(max(ends, default=PhysicalOffset(0)))
        states: dict[int, transactions.TransactionState] = {}
        over: list[int] = []
        for index, one in enumerate(identities):
            state = await self._state_of_open(one, is_at_work=is_at_work)
            if index % RECORDS_AT_ONCE == RECORDS_AT_ONCE - 1:
                await yield_to_requests()
            if state is None:
                over.append(index)
            else:
                states[index] = state
        ended = await self.ender.end_lookup.find([identities[index] for index in over])
        last = PhysicalOffset(0)
        for index, outcome in zip(over, ended, strict=True):
            if isinstance(outcome, EndedTransaction):
                states[index] = _STATES[outcome.resolution]
                last = max(last, outcome.end)
            elif outcome.code in _NOT_FOUND:
                states[index] = transactions.TRANSACTION_NOT_FOUND
            else:
                raise outcome
        await halves.confirmed(last)
        return [states[index] for index in range(len(identities))]

    async def _state_of_open(
        self, identity: TransactionIdentity, *, is_at_work: bool
    ) -> transactions.TransactionState | None:
        """Return the state of an open transaction; None when it has ended, perhaps meanwhile."""
        table, transaction = self.ender.transitions.table, identity.transaction
        read, found = PhysicalOffset(-1), None
        while (offset := table.physical_offset_of(transaction)) is not None:
            if table.is_ending(transaction):
                await self.ender.released()
            elif offset != read:
                found, read = await self._half_at(offset, identity), offset
            elif found is None or not self.ender.topics.is_there(found.topic, read):
                return transactions.TRANSACTION_NOT_FOUND
            else:
                if is_at_work:
                    table.work_on(found.staged_for, now_ms=self.clock.monotonic_ms())
                return transactions.TRANSACTION_OPEN
        return None

    async def _half_at(
        self, offset: PhysicalOffset, identity: TransactionIdentity
    ) -> PlainCommit | HalfRecord | None:
        """Return the half message at an offset; None when it is another transaction's."""
        data = await self.ender.halves.reader.record(offset, is_checked=False)
        plain = None if data is None else plain_commit(data, identity)
        if plain is not None:
            return plain
        found = await self.ender.halves.read(offset)
        return None if found is None or wrong_ids(identity, found[0]) else found[0]


def _identities(request: transactions.FindTransactionsRequest) -> list[TransactionIdentity]:
    """Return the transactions of a producer's question.

    Raises:
        TernError: The group's name is illegal, the transactions are too many, or the columns differ
            in length.
    """
    offsets, keys = request.transaction_offsets, request.message_ids
    if len(offsets) > _FOUND_MAX:
        remark = f"at most {_FOUND_MAX} transactions are looked up at once"
        raise invalid(remark)
    if len(offsets) != len(keys):
        remark = f"{len(offsets)} transaction offsets and {len(keys)} message ids"
        raise invalid(remark)
    group = check_group(request.producer_group)
    pairs = zip(offsets, keys, strict=True)
    return [TransactionIdentity(group, key, PhysicalOffset(offset)) for offset, key in pairs]


def _request(request: transactions.EndTransactionRequest, permits: Permits) -> EndRequest:
    identity = TransactionIdentity(
        check_group(request.producer_group),
        request.message_id,
        PhysicalOffset(request.transaction_offset),
        request.topic,
    )
    return EndRequest(identity, Resolution(request.resolution), permits)


def _reply(outcome: EndResult) -> transactions.EndTransactionReply:
    reply = transactions.EndTransactionReply(
        queue_id=outcome.queue_id, queue_offset=outcome.queue_offset
    )
    if outcome.error is not None:
        reply.status.CopyFrom(status_of(outcome.error))
    return reply
