"""Administration of open transactions, over a whole cluster: their batches, and roll-backs."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection
from dataclasses import dataclass
from typing import Final

from ternmq_client.admin.admin_calls import AdminCalls
from ternmq_client.admin.descriptions import BrokerList, require_all
from ternmq_model.errors import RequestTimedOut, TernError, Unreachable, UsageError
from ternmq_model.route import BrokerData
from ternmq_model.transaction import check_not_in_use, is_in_use
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_remoting.rpc import Connection, Rep, Req, StreamRpc
from ternmq_remoting.service_methods import LIST_TRANSACTIONS, ROLL_BACK_STAGED

_PAGE_TIMEOUT_S: Final = 30.0
"""For each reply: a page may be read from a slow disk."""


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """Transactions of one producer group that are open on one broker.

    Those that are staged are one batch; all others of the group are one such, too.
    """

    broker_name: str
    """Name of the broker that has them."""

    staged_for: str
    """Batch that they are staged for, such as `QUERY/BATCH`; empty = they are not staged, and the
    broker asks their producers."""

    group: str
    """Producer group."""

    topic: str
    """Topic of the oldest."""

    count: int
    """Number of them."""

    oldest_ms: int
    """Age of the oldest, ms. Since the start of a broker whose clock was in doubt then."""

    quiet_ms: int
    """Time since one was staged or committed, or a producer asked for the state of one, ms; at most
    since the start of the broker, which does not know what was before."""

    left_ms: int | None
    """Time until the broker rolls the first back by itself, ms. None = they are not staged."""

    @property
    def is_in_use(self) -> bool:
        """True while a driver may still work on them: less than 3 minutes have passed."""
        return is_in_use(self.quiet_ms)

    def check_not_in_use(self) -> None:
        """Refuse to roll them back while somebody may work on them.

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
    """Number of messages that were committed, or gone, before it came to them."""


class TransactionAdmin(AdminCalls):
    """Transactions that nobody has decided yet. Masters alone know them."""

    async def open_transactions(
        self, *, staged_for: str = "", brokers: Collection[str] = ()
    ) -> BrokerList[OpenBatch]:
        """Return the transactions that are open, by broker, batch and producer group.

        Each broker reads its half messages, 20,000 to 70,000 a second, in pages beside its other
        work: what begins or ends meanwhile may be counted or not. Ages are those at its beginning.

        Args:
            staged_for: Only what is staged for this, or for something that begins with it and a
                slash: `QUERY` or `QUERY/BATCH`. Empty = everything, also what is not staged.
            brokers: Only these: names, or addresses that their masters are registered with.

        Returns:
            Sorted by broker, the oldest first. A broker whose master is away is among
            `unreachable`: its slave is not asked.

        Raises:
            RefusedError: BROKER_NOT_EXIST: there is no such broker; or what the first refuses with,
                when none answers.
            Unreachable: No master answers, and none refuses; names each broker.
        """

        async def listed(data: BrokerData, connection: Connection) -> list[OpenBatch]:
            if connection.identity is not None and connection.identity.broker_id:
                raise Unreachable(f"{connection.address} is a slave; masters know what is open")
            request = transactions.ListTransactionsRequest(staged_for=staged_for)
            found: list[OpenBatch] = []
            async for reply in _replies(connection, LIST_TRANSACTIONS, request):
                found += [_open(data.broker_name, one) for one in reply.batches]
            return found

        asked = await self._ask_each(listed, brokers=brokers)
        found = (one for _, told in asked.told for one in told)
        return BrokerList(found, asked.unreachable)

    async def roll_back_staged(
        self,
        staged_for: str,
        *,
        brokers: Collection[str] = (),
        force: bool = False,
        progress: Callable[[StagedRollback], None] = lambda _: None,
    ) -> list[StagedRollback]:
        """Roll back staged messages whose driver is gone, and return what that came to.

        First every broker tells what it has. A batch on which somebody worked less than 3 minutes
        ago is refused, and nothing is rolled back anywhere: beside a driver that is inside its
        commit, a part of the batch would be visible and the rest rolled back. Before its commit a
        driver that lives finds that messages are gone and commits none. A broker looks again in the
        step in which it rolls back: a driver that begins its commit meanwhile has it refused. One
        whose commit may reach no message at a broker for longer is not noticed there.

        To repeat it does no harm. Cancelling leaves some rolled back and others not.

        Args:
            staged_for: `QUERY/BATCH`, or `QUERY` for all batches of it.
            brokers: Only these: names, or addresses that their masters are registered with.
            force: Roll back also what somebody may work on.
            progress: Called with what it has come to on a broker so far, some 1,000 messages each.

        Returns:
            For each broker that has something of it, sorted by cluster and name; empty = nothing
            is staged for that.

        Raises:
            UsageError: `staged_for` is empty.
            RefusedError: ILLEGAL_OPERATION: a batch is in use; names it. Else a broker refuses; the
                text names those that are done.
            Unreachable: A master does not answer, or there is none: nothing is rolled back.
            TransportError: A broker gave no answer; some may be rolled back. Repeat it.
        """
        if not staged_for:
            raise UsageError("staged_for: what is to be rolled back must be named")
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
                known = f"broker {data.broker_name} told of {done.rolled_back} rolled back before"
                error.args = (f"{error}; {known}; to repeat it does no harm",)
                raise
            return done

        names = {one.broker_name for one in found}
        done, _ = await self._change_each(
            rolled_back, brokers=names, told=lambda one: f" ({one.rolled_back})"
        )
        return [one for _, one in done]


async def _replies(
    connection: Connection, rpc: StreamRpc[Req, Rep], request: Req
) -> AsyncGenerator[Rep]:
    """Give the replies to the one request of a stream.

    Raises:
        RequestTimedOut: The next one did not come in time.
        TernError: As the stream's read.
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


def _open(broker_name: str, told: transactions.OpenBatch) -> OpenBatch:
    return OpenBatch(
        *(broker_name, told.staged_for, told.producer_group, told.topic),
        *(told.count, told.oldest_ms, told.quiet_ms),
        None if told.left_ms < 0 else told.left_ms,
    )
