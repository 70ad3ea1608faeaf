"""The RPCs of Transactions: ends, states and batches of transactions."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ternmq_broker.transactions.end_lookup import TransactionIdentity
from ternmq_broker.transactions.end_transaction import (
    EndRequest,
    EndResult,
    EndTransactionProcessor,
)
from ternmq_broker.transactions.open_batches import OpenBatches
from ternmq_broker.transactions.state_lookup import StateLookup
from ternmq_model.errors import ConnectionLost, TernError, refusal
from ternmq_model.names import check_group
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode
from ternmq_model.transaction import Resolution, TransactionState
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_remoting.converters import status_of
from ternmq_remoting.rpc import Call, Handler, ServerStream, stream, unary
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
_STATES = {
    TransactionState.NOT_FOUND: transactions.TRANSACTION_NOT_FOUND,
    TransactionState.OPEN: transactions.TRANSACTION_OPEN,
    TransactionState.COMMITTED: transactions.TRANSACTION_COMMITTED,
    TransactionState.ROLLED_BACK: transactions.TRANSACTION_ROLLED_BACK,
}


@dataclass(frozen=True, slots=True)
class TransactionService:
    """Handlers of the RPCs of Transactions."""

    ender: EndTransactionProcessor
    states: StateLookup
    batches: OpenBatches

    def handlers(self) -> Sequence[Handler]:
        """Return the handlers of its RPCs."""
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
        (outcome,) = await self.ender.end([_request(request)])
        return _reply(outcome)

    async def end_transactions(self, stream: EndStream, call: Call) -> None:
        """End many transactions, one request after the other."""
        with suppress(ConnectionLost):
            while (request := await stream.read()) is not None:
                outcomes = await self.ender.end([_request(each) for each in request.transactions])
                reply = transactions.EndTransactionsReply(outcomes=map(_reply, outcomes))
                await stream.write(reply)

    async def find_transactions(self, stream: FindStream, call: Call) -> None:
        """Return the states of many transactions, one request after the other."""
        with suppress(ConnectionLost):
            while (request := await stream.read()) is not None:
                identities = _identities(request)
                reply = transactions.FindTransactionsReply()
                try:
                    states = await self.states.find(identities)
                    reply.states.extend([_STATES[state] for state in states])
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


def _identities(request: transactions.FindTransactionsRequest) -> list[TransactionIdentity]:
    """Return the transactions of a producer's question.

    Raises:
        TernError: The group's name is illegal, or they are too many, or the columns have two
            lengths.
    """
    offsets, keys = request.transaction_offsets, request.message_ids
    if len(offsets) > _FOUND_MAX:
        remark = f"at most {_FOUND_MAX} transactions are found at once"
        raise refusal(ResponseCode.INVALID_PARAMETER, remark)
    if len(offsets) != len(keys):
        remark = f"{len(offsets)} transaction offsets and {len(keys)} message ids"
        raise refusal(ResponseCode.INVALID_PARAMETER, remark)
    group = check_group(request.producer_group)
    pairs = zip(offsets, keys, strict=True)
    return [TransactionIdentity(group, key, PhysicalOffset(offset)) for offset, key in pairs]


def _request(request: transactions.EndTransactionRequest) -> EndRequest:
    identity = TransactionIdentity(
        check_group(request.producer_group),
        request.message_id,
        PhysicalOffset(request.transaction_offset),
        request.topic,
    )
    return EndRequest(identity, Resolution(request.resolution))


def _reply(outcome: EndResult) -> transactions.EndTransactionReply:
    reply = transactions.EndTransactionReply(
        queue_id=outcome.queue_id, queue_offset=outcome.queue_offset
    )
    if outcome.error is not None:
        reply.status.CopyFrom(status_of(outcome.error))
    return reply
