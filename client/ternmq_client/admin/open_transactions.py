"""Administration of the open transactions of a cluster: batches and roll-backs."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection
from dataclasses import dataclass
from itertools import chain
from typing import Final

from ternmq_client.admin.admin_calls import AdminCalls
from ternmq_client.admin.descriptions import BrokerList, require_all
from ternmq_model.errors import RequestTimedOut, TernError, Unreachable, UsageError
from ternmq_model.route import BrokerData
from ternmq_model.transaction import TransactionState, check_not_in_use, check_states, is_in_use
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_remoting.converters import error_of
from ternmq_remoting.rpc import Connection, Rep, Req, StreamRpc
from ternmq_remoting.service_methods import FIND_TRANSACTIONS, LIST_TRANSACTIONS, ROLL_BACK_STAGED

_PAGE_TIMEOUT_S: Final = 30.0
"""Timeout of each reply, which the broker may read from a slow disk, s."""


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """Open transactions of one producer group on one broker, staged for one batch or not staged."""

    broker_name: str
    """Name of the broker."""

    staged_for: str
    """Name of the batch, such as `QUERY/BATCH`; empty = the messages are not staged, and the broker
    asks their producers."""

    group: str
    """Name of the producer group."""

    topic: str
    """Topic of the oldest message."""

    count: int
    """Number of messages."""

    oldest_ms: int
    """Age of the oldest message, ms; time since the broker's start where its clock was in doubt."""

    quiet_ms: int
    """Time since a message was staged or committed, or a producer asked for the state of one, ms;
    at most the time since the broker's start."""

    left_ms: int | None
    """Time until the broker rolls back the first message, ms. None = the messages are not
    staged."""

    @property
    def is_in_use(self) -> bool:
        """True while a driver may still work on the batch: for 3 minutes of quiet."""
        return is_in_use(self.quiet_ms)

    def check_not_in_use(self) -> None:
        """Refuse a roll-back while a driver may work on the batch.

        Raises:
            RefusedError: ILLEGAL_OPERATION; names the batch.
        """
        check_not_in_use(self.staged_for, self.quiet_ms, broker_name=self.broker_name)


@dataclass(frozen=True, slots=True)
class StagedRollback:
    """Outcome of a roll-back of staged messages on one broker."""

    broker_name: str
    """Name of the broker."""

    rolled_back: int
    """Number of messages that are rolled back."""

    already_ended: int
    """Number of messages that were committed or deleted before."""


@dataclass(frozen=True, slots=True)
class TransactionView:
    """State of one transaction at the broker that has its half message."""

    broker_name: str
    """Name of the broker."""

    group: str
    """Name of the producer group."""

    state: TransactionState
    """State; never `NOT_FOUND`."""

    checks: int
    """Number of times that the broker asked a producer about the open transaction."""


class TransactionAdmin(AdminCalls):
    """Calls about open transactions. Masters alone know them."""

    async def open_transactions(
        self, *, staged_for: str = "", brokers: Collection[str] = ()
    ) -> BrokerList[OpenBatch]:
        """Return the open transactions by broker, batch and producer group.

        Each broker reads its half messages, 20,000 to 70,000 a second, beside its other work.
        Transactions that begin or end meanwhile may be counted or not; ages are those at the start
        of the read.

        Args:
            staged_for: Batch `QUERY/BATCH`, or `QUERY` for all its batches. Empty = every
                transaction, staged or not.
            brokers: Names or registered addresses of masters; empty = every broker.

        Returns:
            Batches sorted by broker, the oldest first. A broker whose master is away is among
            `unreachable`: slaves are not asked.

        Raises:
            RefusedError: BROKER_NOT_EXIST: no such broker is registered; or the first refusal, when
                no broker answers.
            Unreachable: No master answers, and none refuses; names each broker.
        """

        async def listed(data: BrokerData, connection: Connection) -> list[OpenBatch]:
            if connection.identity is not None and connection.identity.broker_id:
                raise Unreachable(
                    f"{connection.address} is a slave; only masters know the open transactions"
                )
            request = transactions.ListTransactionsRequest(staged_for=staged_for)
            found: list[OpenBatch] = []
            async for reply in _replies(connection, LIST_TRANSACTIONS, request):
                found += [_open(data.broker_name, one) for one in reply.batches]
            return found

        asked = await self._ask_each(listed, brokers=brokers)
        return BrokerList(chain.from_iterable(asked.answers), asked.unreachable)

    async def transaction_views(
        self, message_id: str, groups: Collection[str]
    ) -> BrokerList[TransactionView]:
        """Return the states of the transactions whose half message has a unique key.

        Brokers find the half message by their index, and do not know it without one.

        Args:
            message_id: Unique key of the message.
            groups: Names of producer groups, one of which sent the half message.

        Raises:
            RefusedError: BROKER_NOT_EXIST: no broker is registered; or the first refusal, when no
                broker answers.
            Unreachable: No broker answers; names each.
        """

        async def found(data: BrokerData, connection: Connection) -> list[TransactionView]:
            views: list[TransactionView] = []
            for group in groups:
                request = transactions.FindTransactionsRequest(
                    producer_group=group, transaction_offsets=[-1], message_ids=[message_id]
                )
                async for reply in _replies(connection, FIND_TRANSACTIONS, request):
                    if reply.status.code:
                        raise error_of(reply.status, data.broker_name)
                    views += _views(reply, data.broker_name, group)
            return views

        asked = await self._ask_each(found)
        return BrokerList(chain.from_iterable(asked.answers), asked.unreachable)

    async def roll_back_staged(
        self,
        staged_for: str,
        *,
        brokers: Collection[str] = (),
        force: bool = False,
        progress: Callable[[StagedRollback], None] = lambda _: None,
    ) -> list[StagedRollback]:
        """Roll back staged messages whose driver is gone, and return the outcome.

        Every broker first lists its batches. A batch that was used during the last 3 minutes is
        refused, and no broker rolls back anything: a driver in the middle of its commit would leave
        one part of the batch visible and the rest rolled back. A driver before its commit finds
        that messages are rolled back and commits none. Each broker checks the batch again in the
        step that rolls back, so that a commit that began meanwhile causes a refusal; a driver whose
        commit reaches no message of a broker for 3 minutes is not noticed by that broker.

        Repeating the call is safe. Cancelling it leaves some messages rolled back and others not.

        Args:
            staged_for: Batch `QUERY/BATCH`, or `QUERY` for all its batches.
            brokers: Names or registered addresses of masters; empty = every broker.
            force: Roll back batches that are in use, too.
            progress: Function that gets a broker's outcome after each 1,000 messages or so.

        Returns:
            Outcome of each broker that has messages of the batch, sorted by cluster and name; empty
            when no broker has any.

        Raises:
            UsageError: `staged_for` is empty.
            RefusedError: ILLEGAL_OPERATION: a batch is in use; the text names it. Otherwise a
                broker refuses; the text names the brokers that have finished.
            Unreachable: A broker has no master, or its master does not answer: nothing is rolled
                back.
            TransportError: A broker gave no answer; some messages may be rolled back. Repeat the
                call.
        """
        if not staged_for:
            raise UsageError("staged_for must name the rows to roll back")
        found = await self.open_transactions(staged_for=staged_for, brokers=brokers)
        require_all(found.unreachable)
        if not force:
            for one in found:
                one.check_not_in_use()
        if not found:
            return []

        async def rolled_back(data: BrokerData, connection: Connection) -> StagedRollback:
            request = transactions.RollBackStagedRequest(staged_for=staged_for, force=force)
            done = StagedRollback(data.broker_name, 0, 0)
            try:
                async for reply in _replies(connection, ROLL_BACK_STAGED, request):
                    done = StagedRollback(
                        data.broker_name,
                        done.rolled_back + reply.rolled_back,
                        done.already_ended + reply.already_ended,
                    )
                    progress(done)
            except TernError as error:
                known = f"broker {data.broker_name} reported {done.rolled_back} rolled back before"
                error.args = (f"{error}; {known}; repeating the command is safe",)
                raise
            return done

        names = {one.broker_name for one in found}
        done, _ = await self._change_each(
            rolled_back, brokers=names, summary=lambda one: f" ({one.rolled_back})"
        )
        return [one for _, one in done]


async def _replies(
    connection: Connection, rpc: StreamRpc[Req, Rep], request: Req
) -> AsyncGenerator[Rep]:
    """Yield the replies of a stream to one request.

    Raises:
        RequestTimedOut: A reply did not arrive in time.
        TernError: The stream failed.
    """
    stream = connection.open(rpc)
    try:
        await stream.write(request)
        await stream.finish()
        while True:
            async with asyncio.timeout(_PAGE_TIMEOUT_S):
                reply = await stream.read()
            if reply is None:
                return
            yield reply
    except TimeoutError:
        raise RequestTimedOut(
            f"{connection.address}: no reply in {_PAGE_TIMEOUT_S:.0f} s"
        ) from None
    finally:
        stream.cancel()


def _views(
    reply: transactions.FindTransactionsReply, broker_name: str, group: str
) -> list[TransactionView]:
    """Return the transactions in an answer that there are."""
    check_states(reply.states, broker_name)
    checks = reply.checks or [0] * len(reply.states)
    return [
        TransactionView(broker_name, group, TransactionState(state), count)
        for state, count in zip(reply.states, checks, strict=False)
        if state != TransactionState.NOT_FOUND.value
    ]


def _open(broker_name: str, batch: transactions.OpenBatch) -> OpenBatch:
    return OpenBatch(
        broker_name,
        batch.staged_for,
        batch.producer_group,
        batch.topic,
        batch.count,
        batch.oldest_ms,
        batch.quiet_ms,
        None if batch.left_ms < 0 else batch.left_ms,
    )
